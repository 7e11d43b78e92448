"""Mends what Triton's interpreter (triton-ascend 3.2.0) computes otherwise than compiled code.

* bfloat16 lives in 16-bit integers there, and arithmetic, comparisons and casts to other types
  than float32 work on those integers; the cast from float32 cuts instead of rounding to nearest
  even; constants cannot be made. Here bfloat16 is computed in float32 and rounded once.
* Sums and scans of int32 come out in int64, of which a store then writes eight bytes a lane.
* A masked load with ``care_padding=False`` reads zeros. The NPU leaves what the buffer held in
  those lanes, so here they hold a value that shows when it is used. (Without ``other``,
  triton-ascend fills the lanes with zeros unless told not to care.)
* ``tl.minimum``, ``tl.maximum``, ``tl.min`` and ``tl.max`` take NaN for the result when one operand
  is NaN; unless asked to propagate it they give the other operand. triton-ascend's own ``tl.max``
  and ``tl.argmax`` are not recognised there and go element by element, a thousand times slower.
  So does ``tl.reduce`` with a function of the kernel's own; here it takes whole slices.
* ``tl.histogram`` counts the value that is one past the last bin.
* A scalar as a bound of ``range`` is an array of one element, which recent NumPy refuses to turn
  into an int.
* ``tl.get_element`` and ``tl.insert_slice`` are missing. Here an index outside the tensor is an
  error: the NPU would read or write whatever lies there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ascendport.harness.case import Array

UNDEFINED_INT = 0x5B3CA5D7
"""What undefined integer lanes hold, cut to the lane's width; floats hold NaN, booleans True."""

_REDUCTIONS = {
    "_elementwise_max": np.fmax,
    "_elementwise_max_default": np.fmax,
    "_elementwise_max_propagate_nan": np.maximum,
    "_elementwise_min": np.fmin,
}
"""triton's combine functions, by name, that NumPy can reduce with as a whole."""

_INDEX_REDUCTIONS = {
    f"_{which}_combine_tie_break_{tie}": f"_{which}_combine_tie_break_left"
    for which in ("argmax", "argmin")
    for tie in ("left", "fast")
}
"""The same that answer an index → the one that the interpreter knows."""

_applied = False


def undefined(dtype: np.dtype[Any], is_bf16: bool = False) -> Any:
    """The value of a lane that a masked load leaves undefined."""
    if dtype.kind == "f":
        return np.array(np.nan, dtype)[()]
    if dtype.kind == "b":
        return np.array(True)[()]
    if is_bf16:
        return np.array(0x7FC1, dtype)[()]
    return np.array(UNDEFINED_INT, np.uint64).astype(dtype)[()]


def slices(data: Array, axis: int) -> list[Array]:
    """The parts of ``data`` along ``axis``, which they lack."""
    return list(np.moveaxis(data, axis, 0))


def widen(data: Array) -> Array:
    """bfloat16 bits as float32 values."""
    import ml_dtypes

    wide: Array = data.view(ml_dtypes.bfloat16).astype(np.float32)
    return wide


def narrow(values: Array) -> Array:
    """Values as bfloat16 bits, rounded to nearest even."""
    import ml_dtypes

    bits: Array = np.asarray(values).astype(ml_dtypes.bfloat16).view(np.uint16)
    return bits


def apply() -> None:
    """Mends the interpreter of this process, once."""
    global _applied
    if _applied:
        return
    _applied = True
    import triton.language as tl
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    handle = interpreter.TensorHandle
    modes = interpreter._ir.ROUNDING_MODE
    plain_binary, plain_unary = builder.binary_op, builder.unary_op
    plain_load, plain_fp_to_fp = builder.create_masked_load, builder.create_fp_to_fp

    def is_bf16(operand: Any) -> bool:
        return bool(operand.dtype.scalar == tl.bfloat16) and operand.data.dtype == np.uint16

    def wide(operand: Any) -> Array:
        return widen(operand.data) if is_bf16(operand) else operand.data

    def back(result: Array, operand: Any) -> Any:
        data = result if result.dtype == np.bool_ else narrow(result)
        return handle(data, operand.dtype.scalar)

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        if not (is_bf16(lhs) or is_bf16(rhs)):
            return plain_binary(self, lhs, rhs, op)
        return back(op(wide(lhs), wide(rhs)), lhs)

    def unary_op(self: Any, arg: Any, op: Any) -> Any:
        if not is_bf16(arg):
            return plain_unary(self, arg, op)
        return back(op(widen(arg.data)), arg)

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        dst = dst_type.scalar
        data = wide(src)
        if dst == tl.bfloat16:
            return handle(src.data if is_bf16(src) else narrow(data.astype(np.float32)), dst)
        return handle(data.astype(np_dtype(dst_type)), dst)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding: Any) -> Any:
        common = (tl.float16, tl.bfloat16, tl.float32, tl.float64)
        known = src.dtype.scalar in common and dst_type.scalar in common
        if known and rounding in (None, modes.RTNE):
            return cast_impl(self, src, dst_type)
        return plain_fp_to_fp(self, src, dst_type, rounding)

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if is_bf16(z):
            return back(wide(x) * wide(y) + wide(z), z)
        return handle(x.data * y.data + z.data, z.dtype.scalar)

    def create_masked_load(
        self: Any, ptrs: Any, mask: Any, other: Any, cache: Any, eviction: Any, volatile: Any
    ) -> Any:
        # With one lane, `other=0` arrives as None too: its truth is taken for its presence.
        if other is None and ptrs.data.size > 1:
            element = ptrs.get_element_ty()
            dtype = np_dtype(element)
            fill = undefined(dtype, element == tl.bfloat16)
            other = handle(np.full(ptrs.data.shape, fill, dtype), element)
        return plain_load(self, ptrs, mask, other, cache, eviction, volatile)

    def create_histogram(self: Any, data: Any, bins: int) -> Any:
        values = data.data[(data.data >= 0) & (data.data < bins)]
        counts = np.bincount(values.astype(np.int64), minlength=bins)
        return handle(counts.astype(np.int32), tl.int32)

    def get_bf16(self: Any, value: float) -> Any:
        return handle(narrow(np.array([value], np.float32)), tl.bfloat16)

    builder.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)
    builder.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)
    builder.get_bf16 = get_bf16
    builder.binary_op = binary_op
    builder.unary_op = unary_op
    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp
    builder.create_fma = create_fma
    builder.create_masked_load = create_masked_load
    builder.create_histogram = create_histogram

    # It builds its table anew at each call, a tenth of a kernel's time.
    plain_np_dtype = interpreter._get_np_dtype
    known: dict[str, np.dtype[Any]] = {}

    def np_dtype(kind: Any) -> np.dtype[Any]:
        found = known.get(kind.name)
        if found is None:
            found = known[kind.name] = plain_np_dtype(kind)
        return found

    interpreter._get_np_dtype = np_dtype

    plain_patch = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor: Any) -> None:
        plain_patch(tensor)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch_lang_tensor

    base: Any = interpreter.ReduceScanOpIneterface
    plain_to_tensor = base.to_tensor

    def to_tensor(self: Any, result: Any, dtype: Any) -> Any:
        if hasattr(result, "shape") and result.shape:
            result = result.astype(np_dtype(dtype.scalar), copy=False)
        return plain_to_tensor(self, result, dtype)

    base.to_tensor = to_tensor

    _elements(builder, handle, interpreter)

    reduction: Any = interpreter.ReduceOps
    plain_apply = reduction.apply_impl

    def fold(self: Any, operand: Any) -> Any:
        """A kernel's own combine function, on whole slices: elementwise, so lanes are apart."""
        data = operand.handle.data
        first, *others = (self.to_tensor(part, operand.dtype) for part in slices(data, self.axis))
        for other in others:
            first = self.combine_fn.fn(first, other)
        result = first.handle.data
        if self.keep_dims:
            result = np.expand_dims(result, self.axis)
        return self.to_tensor(result, operand.dtype)

    def apply_impl(self: Any, inputs: Any) -> Any:
        combine = getattr(self.combine_fn, "fn", None)
        own = getattr(combine, "__module__", "").startswith("triton.")
        name = getattr(combine, "__name__", "") if own else ""
        if name in _REDUCTIONS and len(inputs) == 1:
            (operand,) = inputs
            result = _REDUCTIONS[name].reduce(
                wide(operand.handle), axis=self.axis, keepdims=self.keep_dims
            )
            if is_bf16(operand.handle):
                result = narrow(result)
            return self.to_tensor(result, operand.dtype)
        if not own and combine is not None and len(inputs) == 1 and self.axis is not None:
            return fold(self, inputs[0])
        if name in _INDEX_REDUCTIONS:
            self.combine_fn = getattr(tl.standard, _INDEX_REDUCTIONS[name])
        return plain_apply(self, inputs)

    reduction.apply_impl = apply_impl


def _elements(builder: Any, handle: Any, interpreter: Any) -> None:
    """`tl.get_element` and `tl.insert_slice`, which only triton-ascend has."""
    try:
        from triton.triton_patch.language import semantic
    except ImportError:
        return

    def place(data: Array, offsets: Any, sizes: Any, strides: Any) -> tuple[slice, ...]:
        where = []
        for extent, offset, size, stride in zip(data.shape, offsets, sizes, strides, strict=True):
            first = int(offset.data.item())
            last = first + (size - 1) * stride
            if first < 0 or last >= extent:
                raise IndexError(f"element {first} … {last} of a tensor of {extent}")
            where.append(slice(first, last + 1, max(1, stride)))
        return tuple(where)

    def create_extract_scalar(self: Any, source: Any, indices: Any) -> Any:
        ones = [1] * len(indices)
        data = source.data[place(source.data, indices, ones, ones)].reshape(1)
        return handle(data.copy(), source.dtype.scalar)

    def create_insert_slice(
        self: Any, full: Any, part: Any, offsets: Any, sizes: Any, strides: Any
    ) -> Any:
        data = full.data.copy()
        data[place(data, offsets, sizes, strides)] = part.data
        return handle(data, full.dtype.scalar)

    builder.create_extract_scalar = create_extract_scalar
    builder.create_insert_slice = create_insert_slice

    # The counter of a `tl.range` loop is a plain int there, without a handle.
    plain_get, plain_insert = semantic.get_element, semantic.insert_slice

    def traced(indices: Any) -> list[Any]:
        return [interpreter._implicit_cvt(i) if isinstance(i, int) else i for i in indices]

    def get_element(source: Any, indices: Any, builder: Any) -> Any:
        return plain_get(source, traced(indices), builder)

    def insert_slice(full: Any, part: Any, offsets: Any, *rest: Any) -> Any:
        return plain_insert(full, part, traced(offsets), *rest)

    semantic.get_element, semantic.insert_slice = get_element, insert_slice
