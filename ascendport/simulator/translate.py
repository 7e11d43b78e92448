"""An `ir.Program` to LLVM text: one function that runs one program of the grid.

Scalar values become LLVM values; a view of memory becomes its base, offset, sizes and strides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ascendport.simulator import native
from ascendport.simulator.codegen.access import Access
from ascendport.simulator.codegen.arithmetic import DECLARATIONS, Arithmetic
from ascendport.simulator.codegen.control import RECORDED, Control
from ascendport.simulator.codegen.emit import View, Word
from ascendport.simulator.errors import MalformedError, UnsupportedError
from ascendport.simulator.ir import Block, MemRef, Op, Program, Type
from ascendport.simulator.sites import Site

ENTRY = "simulated_program"
"""Name of the generated function: i32 (state, callback, arguments). Nonzero: it was stopped."""


@dataclass(frozen=True)
class Translation:
    """``text``: the LLVM module. ``sites``: what records and findings point to, by number."""

    text: str
    sites: tuple[Site, ...]


def translate(program: Program) -> Translation:
    """Generates the code.

    Raises:
        UnsupportedError: an operation or library function that the simulator does not have.
    """
    return _Translator(program).result()


_NOT_COUNTED = {
    *RECORDED,
    *("arith.constant", "memref.cast", "hivm.hir.pointer_cast", "memref.memory_space_cast"),
    *("llvm.mlir.constant", "llvm.mlir.addressof", "llvm.getelementptr"),
    # Counted with their memory.
    *("memref.load", "memref.store"),
}
"""Operations that are no scalar work of their own; structured ones are not either."""


class _Translator(Arithmetic, Access, Control):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.strings = list(program.strings)

    def result(self) -> Translation:
        for number, parameter in enumerate(self.program.parameters):
            self.parameter(number, parameter.name, parameter.type)
        self.graph(self.program.body, self.program.blocks)
        body = "\n".join(
            [
                *(
                    f"declare {kind.replace(' (', f' @{name}(', 1)}"
                    for name, kind in native.EXPORTS.items()
                ),
                *self.tables,
                f"define i32 @{ENTRY}(ptr %m, ptr %cb, ptr %arguments) {{",
                "entry:",
                "  %stop.p = alloca i32",
                "  store i32 0, ptr %stop.p",
                *self.head,
                "  br label %body",
                "body:",
                *self.lines,
                "stopped:",
                "  ret i32 1",
                "}",
                *DECLARATIONS,
            ]
        )
        return Translation(body, tuple(self.sites))

    def parameter(self, number: int, name: str, kind: Type) -> None:
        pointer, word = self.fresh(), self.fresh()
        self.head.append(f"  {pointer} = getelementptr i64, ptr %arguments, i64 {number}")
        self.head.append(f"  {word} = load i64, ptr {pointer}")
        if isinstance(kind, MemRef):
            if len(kind.shape) != 1:
                raise UnsupportedError(f"a parameter of rank {len(kind.shape)}")
            self.values[name] = View(kind, word, "0", ("0",), ("1",))
            return
        self.values[name] = Word(self.from_bits(word, kind.name, self.head), kind.name)

    def block_of(self, block: Block) -> Op | None:
        """Emits the operations; returns the terminator, if the block has one."""
        for op in block.operations:
            self.location = op.location
            if op.name in ("scf.yield", "scf.condition", "cf.br", "cf.cond_br"):
                return op
            if op.name == "return":
                if op.operands:
                    raise self.unsupported("a kernel that returns values")
                return None
            self.operation(op)
        return None

    def operation(self, op: Op) -> None:
        name = op.name
        if name not in _NOT_COUNTED and not name.startswith("scf."):
            self.count_work(name)
        try:
            handler = _HANDLERS.get(name)
            if handler is not None:
                handler(self, op)
            elif name.startswith(("arith.", "math.")):
                self.arithmetic(op)
            else:
                raise self.unsupported(name)
        except KeyError as error:
            raise MalformedError(f"{name} uses a value that is not there: {error}") from error
        except (ValueError, IndexError, AssertionError, StopIteration) as error:
            raise MalformedError(
                f"the operands and types of {name} do not fit", op.location or ""
            ) from error

    def nothing(self, op: Op) -> None:
        """Changes nothing that is modelled: the template library sets masks itself."""


_HANDLERS: dict[str, Callable[[_Translator, Op], None]] = {
    "arith.constant": _Translator.constant,
    "llvm.mlir.constant": _Translator.constant,
    "llvm.mlir.addressof": _Translator.text,
    "llvm.getelementptr": _Translator.same,
    "builtin.unrealized_conversion_cast": _Translator.pointer_kind,
    "arith.cmpi": _Translator.compare,
    "arith.cmpf": _Translator.compare,
    "arith.select": _Translator.select,
    "arith.mulsi_extended": _Translator.extended,
    "arith.mului_extended": _Translator.extended,
    "affine.apply": _Translator.affine,
    "affine.min": _Translator.affine,
    "affine.max": _Translator.affine,
    "memref.load": _Translator.load,
    "memref.store": _Translator.store,
    "memref.cast": _Translator.memref_cast,
    "memref.memory_space_cast": _Translator.memref_cast,
    "memref.reinterpret_cast": _Translator.reinterpret,
    "memref.subview": _Translator.subview,
    "memref.collapse_shape": _Translator.collapse,
    "memref.expand_shape": _Translator.expand,
    "memref.view": _Translator.view_op,
    "memref.extract_strided_metadata": _Translator.metadata,
    "call": _Translator.call,
    "scf.for": _Translator.for_op,
    "scf.if": _Translator.if_op,
    "scf.while": _Translator.while_op,
    "hivm.hir.pointer_cast": _Translator.pointer_cast,
    "hivm.hir.bitcast": _Translator.bitcast,
    "hivm.hir.get_block_idx": _Translator.block_index,
    "hivm.hir.get_block_num": _Translator.block_number,
    "hivm.hir.get_sub_block_idx": _Translator.first_of_one,
    "hivm.hir.get_sub_block_num": _Translator.one_of_one,
    "hivm.hir.set_flag": _Translator.flag,
    "hivm.hir.wait_flag": _Translator.flag,
    "hivm.hir.pipe_barrier": _Translator.barrier,
    "hivm.hir.set_mask_norm": _Translator.nothing,
    "hivm.hir.set_ctrl": _Translator.nothing,
    "hivm.hir.set_ffts_base_addr": _Translator.nothing,
    "annotation.mark": _Translator.nothing,
}
