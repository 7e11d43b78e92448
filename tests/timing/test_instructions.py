"""What library calls issue, against counts worked out by hand from the template library."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.simulator.layout import Pipe
from ascendport.simulator.trace import Call
from ascendport.timing.instructions import Barrier, RoundTrip, Transfer, Vector, expand
from tests.timing.operations import buffer, line, load, vector


def counted(call: Call) -> tuple[int, float, int, int]:
    """(vector instructions, repeats, barriers, round trips)."""
    steps = expand(call).steps
    vectors = [step for step in steps if isinstance(step, Vector)]
    return (
        sum(step.count for step in vectors),
        sum(step.repeats for step in vectors),
        sum(isinstance(step, Barrier) for step in steps),
        sum(isinstance(step, RoundTrip) for step in steps),
    )


@pytest.mark.parametrize(
    ("call", "instructions", "repeats", "barriers", "trips"),
    [
        pytest.param(
            vector("vadd_1d_float", (12944,), (12944,), to=(12944,)), 1, 203, 0, 0, id="add"
        ),
        pytest.param(
            vector("vmul_1d_half", (128,), (128,), to=(128,), element="f16"), 1, 1, 0, 0, id="half"
        ),
        pytest.param(
            vector("vdiv_vs_1d_float", (640,), to=(640,)), 2, 11, 1, 0, id="divide by a scalar"
        ),
        pytest.param(
            vector("vadd_1d_float", (640,), (1,), to=(640,)), 2, 11, 1, 1, id="source of size one"
        ),
        pytest.param(
            vector("vmul_2d_float", (16, 512), (16, 1), to=(16, 512)),
            9,
            130,
            1,
            0,
            id="source of one column",
        ),
        pytest.param(
            vector("vadd_2d_float", (64, 8), (1, 8), to=(64, 8)), 1, 64, 0, 0, id="narrow rows"
        ),
        pytest.param(
            vector("vand_1d_bool", (4096,), (4096,), to=(4096,), element="i1"),
            1,
            2,
            0,
            0,
            id="packed booleans",
        ),
        pytest.param(
            vector("vxor_1d_int32_t", (64,), (64,), to=(64,), element="i32"), 4, 4, 3, 0, id="xor"
        ),
        pytest.param(
            vector("vcmp_ne_1d_int32_t", (1024,), (1024,), to=(1024,), element="i32", result="i1"),
            2,
            17,
            1,
            0,
            id="not equal",
        ),
        pytest.param(
            vector("vsel_sv_1d_float", (1024,), to=(1024,)), 2, 17, 1, 1, id="select a scalar"
        ),
        pytest.param(
            vector("broadcast_scalar_bfloat16_t_to_2d", to=(300, 8), element="bf16"),
            2,
            300,
            0,
            0,
            id="fill narrow rows",
        ),
        pytest.param(
            vector("broadcast_scalar_float_to_2d", to=(4, 640)), 4, 40, 0, 0, id="fill wide rows"
        ),
        pytest.param(
            vector("enablevc_reduce_max_r_float", (12944,), to=(1,)),
            4,
            1 + 202 + 1 + 1,
            3,
            1,
            id="largest",
        ),
        pytest.param(
            # 8192, then 4096 … 64 by halves of 4096, 2048, … 64; the rest of 4752 joins once.
            vector("enablevc_reduce_sum_r_float", (12944,), to=(1,)),
            9,
            64 + 64 + 32 + 16 + 8 + 4 + 2 + 1 + 1,
            9,
            1,
            id="sum",
        ),
        pytest.param(
            vector("arange_1d_int32_t", to=(1024,), element="i32"), 7, 16 + 2, 7, 1, id="arange"
        ),
        pytest.param(
            vector("arange_2d_int32_t", to=(256, 32), element="i32"), 0, 0, 0, 1, id="arange 2d"
        ),
        pytest.param(
            vector("gather_1d_float", (16,), (1024,), to=(1024,)), 3, 48, 2, 0, id="gather"
        ),
    ],
)
def test_counts(call: Call, instructions: int, repeats: float, barriers: int, trips: int) -> None:
    assert counted(call) == (instructions, repeats, barriers, trips)


def test_an_arange_of_two_axes_stores_every_element_alone() -> None:
    call = vector("arange_2d_int32_t", to=(256, 32), element="i32")
    assert expand(call).scalar_elements == 8192


@pytest.mark.parametrize("address", [4, 32], ids=["misaligned", "aligned"])
def test_misaligned_operands_go_element_by_element(address: int) -> None:
    call = vector("vadd_1d_float", (100,), (100,), to=(100,), address=address)
    scalar = expand(call).scalar_elements
    assert scalar == (300 if address == 4 else 0)


def test_an_unknown_call_says_so() -> None:
    assert not expand(vector("vwonder_1d_float", (64,), to=(64,))).known
    assert expand(vector("vadd_1d_float", (64,), (64,), to=(64,))).known


def test_a_load_is_one_transfer() -> None:
    assert expand(load(1000)).steps == (Transfer(1, 4000),)


@pytest.mark.parametrize(
    ("outside", "inside", "step"),
    [
        pytest.param((16, 1), (16, 1), Transfer(64, 16), id="rows at blocks"),
        pytest.param((16, 2), (8, 1), None, id="gaps in GM closed in UB"),
        pytest.param((16, 1), (9, 1), None, id="UB rows between blocks"),
    ],
)
def test_matrices_move_by_dma_where_blocks_allow(
    outside: tuple[int, int], inside: tuple[int, int], step: Transfer | None
) -> None:
    call = Call(
        Pipe.MTE2,
        "load_gm_to_ubuf_2d_bfloat16_t",
        (
            buffer("gm-read", (64, 8), "bf16", space="gm", strides=outside),
            buffer("write", (64, 8), "bf16", strides=inside),
        ),
        (0, 0, 0),
        line(1),
    )
    expansion = expand(call)
    if step:
        assert expansion.steps == (step,)
    else:
        assert expansion.scalar_elements == 2 * 64 * 8


FAMILIES = (
    "vadd_1d_float",
    "vexp_1d_float",
    "vcmp_gt_1d_float",
    "vcast_float_to_bfloat16_t_1d_with_mode",
    "broadcast_scalar_float_to_1d",
    "enablevc_reduce_sum_r_float",
    "enablevc_reduce_max_r_float",
    "reduce_min_r_int32_t",
    "copy_ubuf_to_ubuf_1d_float",
    "gather_1d_float",
)


@given(st.sampled_from(FAMILIES), st.integers(1, 20000), st.integers(1, 20000))
def test_more_elements_never_take_fewer_repeats(callee: str, one: int, other: int) -> None:
    def repeats(elements: int) -> float:
        to = (1,) if "reduce" in callee else (elements,)
        return counted(vector(callee, (elements,), to=to))[1]

    small, large = sorted((one, other))
    # Sums fold at powers of two: a power folds in one go, what is a little more in two.
    slack = 2 if "reduce" in callee else 1
    assert repeats(small) <= slack * repeats(large)


@given(st.integers(1, 300), st.integers(1, 300))
def test_every_element_of_a_matrix_is_in_a_repeat(rows: int, columns: int) -> None:
    call = vector("vadd_2d_float", (rows, columns), (rows, columns), to=(rows, columns))
    assert counted(call)[1] * 64 >= prod((rows, columns))
