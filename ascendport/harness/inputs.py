"""Draws the inputs of a case, and the right answers to them."""

from __future__ import annotations

import zlib

import numpy as np

from ascendport.harness.case import Array, Case, Role, Workload
from ascendport.harness.portcode import PortCode


class BadCaseError(ValueError):
    """The port's own cases or reference are wrong; the message says how."""


def generator(case: Case, seed: int) -> np.random.Generator:
    """The random numbers of a case: set by its name and the seed alone, the same everywhere."""
    return np.random.default_rng([seed, zlib.crc32(case.name.encode())])


def draw(port: PortCode, case: Case, variant: str, seed: int) -> Workload:
    """The inputs of ``case`` for that seed.

    Raises:
        BadCaseError: they are not what `Workload` asks for.
    """
    workload = port.workload(case, variant, generator(case, seed))
    if not isinstance(workload, Workload):
        raise BadCaseError(f"workload() gave {type(workload).__name__}, not a Workload")
    for name, tensor in workload.tensors.items():
        if not isinstance(tensor.values, np.ndarray) or tensor.values.ndim not in (1, 2):
            raise BadCaseError(f"tensor {name}: the values must be an array of 1 or 2 dimensions")
        if tensor.values.ndim == 2 and tensor.stride < tensor.values.shape[1]:
            raise BadCaseError(f"tensor {name}: row_stride is less than the number of columns")
    if all(tensor.role is Role.IN for tensor in workload.tensors.values()):
        raise BadCaseError("no tensor is OUT or INOUT: nothing to compare")
    return workload


def expected(port: PortCode, workload: Workload, variant: str) -> dict[str, Array]:
    """The right contents of every OUT and INOUT tensor after the launch, from ``reference.py``.

    The reference works on copies: what it does to its arguments stays with it.

    Raises:
        BadCaseError: a value is missing, too many, or of another shape or type than the tensor.
    """
    answers = port.reference(copy_of(workload), variant)
    written = {n: t for n, t in workload.tensors.items() if t.role is not Role.IN}
    if set(answers) != set(written):
        raise BadCaseError(
            f"reference() answers {sorted(answers)}, the tensors written are {sorted(written)}"
        )
    for name, tensor in written.items():
        answer = answers[name]
        if answer.shape != tensor.values.shape or answer.dtype != tensor.values.dtype:
            raise BadCaseError(
                f"reference() gives {name} as {answer.dtype}{list(answer.shape)}, "
                f"the tensor is {tensor.values.dtype}{list(tensor.values.shape)}"
            )
    return {name: np.array(answers[name], copy=True) for name in written}


def copy_of(workload: Workload) -> Workload:
    """The same inputs in memory of their own."""
    from dataclasses import replace

    return replace(
        workload,
        tensors={n: replace(t, values=t.values.copy()) for n, t in workload.tensors.items()},
        scalars=dict(workload.scalars),
    )


def same_inputs(left: Workload, right: Workload) -> bool:
    """Whether two draws are equal bit for bit, tensors and scalars."""
    return (
        dict(left.scalars) == dict(right.scalars)
        and left.tensors.keys() == right.tensors.keys()
        and all(
            tensor.values.shape == right.tensors[name].values.shape
            and tensor.values.tobytes() == right.tensors[name].values.tobytes()
            for name, tensor in left.tensors.items()
        )
    )
