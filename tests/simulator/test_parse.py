"""Reading programs: types, maps, locations, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ascendport.simulator import Location, MalformedError, Simulator, UnsupportedError, parse
from ascendport.simulator.affine import parse_map
from ascendport.simulator.ir import MemRef, Scalar
from ascendport.simulator.syntax import SyntaxUnknownError, type_of
from tests.simulator.programs import program

UB = "#hivm.address_space<ub>"


@pytest.mark.parametrize(
    ("text", "shape", "strides", "offset", "space"),
    [
        (f"memref<4x8xf32, {UB}>", (4, 8), (8, 1), 0, "ub"),
        ("memref<?xi8, #hivm.address_space<gm>>", (None,), (1,), 0, "gm"),
        (f"memref<2x?xbf16, strided<[?, 1], offset: ?>, {UB}>", (2, None), (None, 1), None, "ub"),
        (f"memref<f32, {UB}>", (), (), 0, "ub"),
        (f"memref<3x?x5xi1, {UB}>", (3, None, 5), (None, 5, 1), 0, "ub"),
        (f"memref<6xi64, strided<[16], offset: 4>, {UB}>", (6,), (16,), 4, "ub"),
    ],
)
def test_memref_types(
    text: str,
    shape: tuple[int | None, ...],
    strides: tuple[int | None, ...],
    offset: int | None,
    space: str,
) -> None:
    kind = type_of(text)
    assert isinstance(kind, MemRef)
    assert (kind.shape, kind.strides, kind.offset, kind.space) == (shape, strides, offset, space)


def test_scalar_types() -> None:
    assert type_of("index") == Scalar("index")
    for text in ("f64", "vector<4xf32>", "memref<4xf64>", "tensor<4xf32>", "memref<4xf32, foo>"):
        with pytest.raises(SyntaxUnknownError):
            type_of(text)


def test_affine_maps() -> None:
    mapping = parse_map("affine_map<(d0)[s0] -> (d0 * -2 + s0 mod 4, (s0 - 1) floordiv 3)>")
    assert mapping.inputs == ("d0", "s0")
    assert mapping.results == (
        ("+", ("*", "d0", ("*", -1, 2)), ("mod", "s0", 4)),
        ("floordiv", ("-", "s0", 1), 3),
    )
    for text in ("affine_map<(d0) -> (d0 $ 2)>", "affine_map<(d0) -> (d0 +)>", "nothing"):
        with pytest.raises(ValueError):
            parse_map(text)


def test_user_parameters_leave_out_the_runtimes_and_the_grid() -> None:
    made = parse(program("%0 = arith.constant 1 : i32", {"x": "gm<?xf32>", "n": "i32"}))
    assert [parameter.name for parameter in made.user_parameters] == ["%x", "%n"]
    assert (made.name, made.ub_bytes, made.vector_cores) == ("kernel", 196608, 40)


def test_locations_follow_aliases() -> None:
    text = program("%0 = arith.constant 1 : i32", {}).replace('loc("kernel.py":1:1)', "loc(#loc1)")
    text += (
        '#loc1 = loc(callsite(#loc2 at #loc3))\n#loc2 = loc("a.py":7:3)\n#loc3 = loc("b.py":1:1)'
    )
    inlined = Location("a.py", 7, 3, within=Location("b.py", 1, 1))
    assert parse(text).body.operations[0].location == inlined


def test_a_location_keeps_every_call_it_was_inlined_through() -> None:
    text = program("%0 = arith.constant 1 : i32", {}).replace('loc("kernel.py":1:1)', "loc(#loc1)")
    text += (
        "#loc1 = loc(callsite(#loc2 at #loc3))\n#loc2 = loc(callsite(#loc4 at #loc5))\n"
        '#loc3 = loc("c.py":1:1)\n#loc4 = loc("name"("a.py":7:3))\n#loc5 = loc("b.py":4:1)'
    )
    place, files = parse(text).body.operations[0].location, []
    while place:
        files.append(place.file)
        place = place.within
    assert files == ["a.py", "b.py", "c.py"]


def test_an_unknown_operation_is_named_with_its_place() -> None:
    body = "%0 = arith.constant 1 : i32\n%1 = arith.sparkle %0, %0 : i32"
    with pytest.raises(
        UnsupportedError, match=r"not supported: arith.sparkle: kernel.py:2"
    ) as seen:
        parse(program(body, {}))
    assert seen.value.construct == "arith.sparkle"


def test_an_unknown_library_function_is_named_with_its_place() -> None:
    body = """
    %a = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a) : ub<8xf16>
    call @reduce_median_r_half(%u, %u)
    """
    with pytest.raises(UnsupportedError, match=r"reduce_median_r_half: kernel\.py:3"):
        Simulator(program(body, {}))


@pytest.mark.parametrize(
    "body",
    [
        "cf.br ^bb7",
        "cf.switch %gx : i32, [default: ^bb1]",
        "%0 = llvm.mlir.addressof @missing : !llvm.ptr",
        "%0 = arith.constant dense<0> : vector<4xi32>",
        "%0 = memref.alloc() : ub<4xf32>",
        "hivm.hir.set_flag[<PIPE_M>, <PIPE_V>, <EVENT_ID0>]",
    ],
)
def test_unsupported_forms(body: str) -> None:
    with pytest.raises(UnsupportedError, match="not supported: "):
        Simulator(program(body, {}))


def test_cube_code_is_refused() -> None:
    text = program("%0 = arith.constant 1 : i32", {})
    cube = text.replace("AIV", "AIC").replace("@kernel", "@kernel_mix_aic")
    with pytest.raises(UnsupportedError, match="cube core"):
        parse(text + cube)


@pytest.mark.parametrize("text", ["", "module {}", "func.func @f() {\n}"])
def test_no_program(text: str) -> None:
    with pytest.raises(MalformedError, match="no entry function"):
        parse(text)


def test_lack_of_device_and_of_grid() -> None:
    text = program("%0 = arith.constant 1 : i32", {})
    with pytest.raises(MalformedError, match="UB_SIZE"):
        parse(text.replace("UB_SIZE", "UB"))
    with pytest.raises(MalformedError, match="grid"):
        parse(text.replace(", %gy: i32, %gz: i32", ""))
    with pytest.raises(MalformedError, match="region"):
        parse(text.replace("    return\n", "    scf.if %x {\n"))


def test_a_program_without_locations_runs() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %v = arith.constant 7 : i32
    memref.store %v, %x[%c0] : gm<?xi32>
    """
    text = program(body, {"x": "gm<?xi32>"})
    bare = "\n".join(line.partition(" loc(")[0] for line in text.split("\n"))
    out = np.zeros(1, np.int32)
    assert Simulator(bare).run([out]).clean
    assert out[0] == 7
