"""What to change: said where the model shows time at stake, and true of the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascendport.ascend import toolchain
from ascendport.ascend.soc import soc
from ascendport.explain.hints import advice, hints
from ascendport.explain.lines import scalar_loops, work_of
from ascendport.explain.model import (
    Latency,
    LaunchFacts,
    LockUse,
    PipeUse,
    Place,
    ScalarLoop,
    SlowCall,
    Transfers,
    UbUse,
)
from ascendport.explain.sources import Sources
from ascendport.simulator import Simulator
from ascendport.timing.pipes import SCALAR
from tests.ascend.conftest import load
from tests.simulator.conftest import compiled, run_time_arguments

B3 = soc("Ascend910B3")
HERE = Place("k.py", 7, "x")
UB = UbUse(64 << 10, 64 << 10, 192 << 10, ())


def facts(us: float = 100.0, **more: Any) -> LaunchFacts:
    """A launch of 40 programs on 40 cores that nothing is to be said of."""
    causes = more.pop("causes", (("vector", us - 3.0), ("launch", 3.0)))
    given: dict[str, Any] = {
        "grid": (40,),
        "programs": 40,
        "cores_used": 40,
        "waves": 1,
        "latency": Latency(us, us / 1.42, us * 1.42, 0.42, causes[0][0], causes),
        "ub": UB,
        **more,
    }
    return replace(
        LaunchFacts("k", "k.py", (1,), 1, 1, 1, 1, 1, 10**6, 10**6, 10**6, True, ()), **given
    )


def loop(*operations: str, us: float = 50.0, **more: Any) -> ScalarLoop:
    given: dict[str, Any] = {"trips": 1024, "times": 8, "outside": False, "written": False, **more}
    return ScalarLoop(HERE, operations=operations, us=us, **given)


def texts(launch: LaunchFacts, calls: tuple[int, int] = (0, 0)) -> list[str]:
    return [hint.text for hint in hints(launch, B3, calls)]


def test_nothing_to_say() -> None:
    assert hints(facts(), B3, (100, 100 * 8192)) == ()


def test_without_a_time_nothing_is_said() -> None:
    assert hints(facts(latency=None, scalar_loops=(loop("shrsi i32"),)), B3) == ()


def waiting(us: float, behind: float = 0.0) -> tuple[PipeUse, ...]:
    return (
        PipeUse("V", 1, 1.0, (("wait for MTE2", us),)),
        PipeUse("MTE2", 1, 1.0, (("wait for MTE3", behind),)),
    )


def moved(burst: int, us: float, calls: int = 10) -> Transfers:
    return Transfers(HERE, True, calls, burst * 10, 10, us)


FULL = replace(UB, planned=190 << 10)
SITUATIONS = {
    "scalar-loop": (
        facts(scalar_loops=(loop("shrsi i32"),), vector_us=40.0),
        "would take 40.0 us (modelled)",
    ),
    "written-loop": (
        facts(scalar_loops=(loop("addi i32", written=True),)),
        "one by one, as written (lines 7)",
    ),
    "written-loop-over-gm": (
        facts(scalar_loops=(loop("addi i32", written=True, outside=True),)),
        "load a tile and pick from it",
    ),
    "arange-in-two-axes": (
        facts(slow_calls=(SlowCall(HERE, "arange_2d_int32_t", 2, 2048, 30.0),)),
        "1024 elements a call: make it in one axis and broadcast it, once, outside of the loop",
    ),
    "arange-in-one-axis": (
        facts(slow_calls=(SlowCall(HERE, "arange_1d_int64_t", 1, 1024, 30.0),)),
        "1024 elements a call: make it in int32",
    ),
    "histogram": (
        facts(slow_calls=(SlowCall(HERE, "histogram_1d_int32_t", 1, 1024, 30.0),)),
        "no vector form of it",
    ),
    "misaligned": (
        facts(slow_calls=(SlowCall(HERE, "vadd_1d_float", 1, 1024, 30.0),)),
        "start alike within 32 bytes",
    ),
    "lock": (facts(locks=(LockUse(HERE, 4.0, 60.0),)), "which one has for 4 us"),
    "waits-for-loads": (
        facts(pipes=waiting(20.0), transfers=(moved(8192, 1.0),)),
        "UB has 128 KiB left",
    ),
    "waits-for-loads-in-a-full-ub": (
        facts(pipes=waiting(20.0), transfers=(moved(8192, 1.0),), ub=FULL),
        "a smaller tile",
    ),
    "loads-behind-stores": (
        facts(pipes=waiting(20.0, 30.0), transfers=(moved(8192, 1.0),)),
        "until the tile before it is stored",
    ),
    "short-pieces": (facts(transfers=(moved(64, 20.0),)), "loads 10 pieces of 64 bytes"),
    "moving": (
        facts(causes=(("load", 40.0), ("store", 30.0), ("vector", 30.0))),
        "moving data bounds it (20 GB/s",
    ),
    "fetch": (facts(causes=(("vector", 80.0), ("instruction fetch", 20.0))), "fetched"),
    "launch": (facts(us=8.0, causes=(("vector", 5.0), ("launch", 3.0))), "38 % of it"),
    "idle-cores": (facts(programs=10, cores_used=10), "30 of 40 cores"),
    "last-wave": (facts(programs=41, waves=2), "leaves 39 of 40 cores idle"),
    "many-waves": (
        facts(programs=4000, waves=100, causes=(("vector", 80.0), ("launch", 20.0))),
        "4000 programs on 40 cores",
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_is_told(name: str) -> None:
    launch, said = SITUATIONS[name]
    (hint,) = [hint for hint in hints(launch, B3) if said in hint.text]
    assert hint.us > 0


def test_small_vector_calls_are_told_where_ub_has_room() -> None:
    assert "vector calls work on 256 bytes" in texts(facts(), (100, 25600))[0]
    assert texts(facts(ub=FULL), (100, 25600)) == []


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(facts(scalar_loops=(loop("shrsi i32", us=4.0),)), id="little-time"),
        pytest.param(
            facts(scalar_loops=(loop("shli i32", trips=32, times=1),)), id="few-iterations"
        ),
        pytest.param(
            facts(pipes=waiting(20.0), transfers=(moved(8192, 1.0, calls=1),)), id="one-tile"
        ),
        pytest.param(facts(transfers=(moved(256, 20.0),)), id="pieces-long-enough"),
        pytest.param(facts(programs=80, waves=2), id="full-waves"),
        pytest.param(facts(programs=401, waves=11), id="many-waves-cheap"),
    ],
)
def test_what_is_not_worth_it_is_not_told(launch: LaunchFacts) -> None:
    assert hints(launch, B3) == ()


def test_what_is_at_stake_is_compared_with_the_rest_of_the_launch() -> None:
    # Once the loop and the lock are gone, 20 us are left: 2 of them count.
    more = {"transfers": (moved(64, 2.0),)}
    assert texts(facts(us=1000.0, **more)) == []
    slow = facts(us=1000.0, scalar_loops=(loop("shrsi i32", us=980.0),), vector_us=20.0, **more)
    assert len(texts(slow)) == 2
    locked = facts(us=1000.0, locks=(LockUse(HERE, 1.0, 980.0),), **more)
    assert len(texts(locked)) == 2


def test_most_at_stake_comes_first() -> None:
    found = hints(
        facts(scalar_loops=(loop("shrsi i32", us=20.0),), locks=(LockUse(HERE, 1.0, 60.0),)), B3
    )
    assert [hint.us for hint in found] == [60.0, 20.0]
    assert found[0].place == HERE


# --- the advice on loops, against the compiler -------------------------------------------------

ADVICE = {
    "shift": "a shift by a tensor",
    "wide": "64-bit integers",
    "remainder": "a remainder of int32",
    "short": "a comparison of int16",
    "index": "an index of a maximum",
    "running": "a running sum",
}


@pytest.fixture(scope="module")
def remedies() -> Any:
    if why := toolchain.missing():
        pytest.skip(why)
    return load(Path(__file__).with_name("remedies.py"), "ascendport_test_remedies")


def loops_of(kernel: Any, result: str) -> Iterator[ScalarLoop]:
    """The loops of a program on 1024 elements, as a launch's explanation finds them."""
    types: dict[str, object] = {"x_ptr": "*i32", "y_ptr": "*i32", "z_ptr": result, "BLOCK": 1024}
    simulator = Simulator(compiled(kernel, types))
    arrays = {
        "x_ptr": np.arange(1024, dtype=np.int32),
        "y_ptr": np.ones(1024, np.int32),
        "z_ptr": np.zeros(1024, np.int64 if result == "*i64" else np.int32),
    }
    arguments = [arrays[name] for name in run_time_arguments(kernel, types)]
    trace = simulator.run(arguments, trace=[0]).traces[0]
    sources = Sources(Path("/none"), {"explain/remedies.py": b""})
    work = work_of(trace.operations(), simulator.program, frozenset(), sources)
    everything = {item.place: {SCALAR: 1.0} for item in work.loops.values()}
    yield from scalar_loops(work, everything)


@pytest.mark.ascend
@pytest.mark.parametrize("name", ADVICE)
def test_the_loop_that_the_advice_is_about_is_there(remedies: Any, name: str) -> None:
    found = list(loops_of(getattr(remedies, f"{name}_loop"), "*i64" if name == "wide" else "*i32"))
    said = [advice(item) for item in found]
    assert any(text.startswith(ADVICE[name]) for text in said), (found, said)
    assert {(item.trips * item.times) for item in found} <= {1023, 1024}
    assert not any(item.written for item in found)


@pytest.mark.ascend
@pytest.mark.parametrize("name", [*ADVICE, "bits", "remainder_of_two"])
def test_what_the_advice_names_has_a_vector_form(remedies: Any, name: str) -> None:
    assert list(loops_of(getattr(remedies, name), "*i64" if name == "wide" else "*i32")) == []


@pytest.mark.ascend
@pytest.mark.parametrize(
    ("most", "exact"), [pytest.param(2**24, True, id="below"), pytest.param(2**31, False, id="any")]
)
def test_a_remainder_by_division_is_exact_as_far_as_the_advice_says(
    remedies: Any, most: int, exact: bool
) -> None:
    types: dict[str, object] = {"x_ptr": "*i32", "y_ptr": "*i32", "z_ptr": "*i32", "BLOCK": 1024}
    simulator = Simulator(compiled(remedies.remainder, types))
    rng = np.random.default_rng(0)
    wrong = 0
    for divisor in (3, 7, 1000, 46341):
        arrays = {
            "x_ptr": rng.integers(most // 2, most, 1024).astype(np.int32),
            "y_ptr": np.full(1024, divisor, np.int32),
            "z_ptr": np.zeros(1024, np.int32),
        }
        simulator.run([arrays[name] for name in run_time_arguments(remedies.remainder, types)])
        wrong += int(np.count_nonzero(arrays["z_ptr"] != arrays["x_ptr"] % divisor))
    assert (wrong == 0) is exact


def test_an_unknown_loop_is_told_as_such() -> None:
    assert advice(loop("divf f32")) == "the compiler found no vector form for this line"
