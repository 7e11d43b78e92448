"""Every kernel port leaves a tenth of the Unified Buffer free, by what the compiler plans."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ascendport.ascend import soc as socs
from ascendport.checks import compile as compiling
from ascendport.checks.compiled import Side
from ascendport.checks.subject import Options, Subject
from ascendport.ports.catalogue import catalogue
from ascendport.ports.manifest import Kind
from tests.conftest import ReleaseTree
from tests.kernels.subjects import subject

PORTS = [port.name for port in catalogue() if port.kind is Kind.KERNEL]
MOST = 0.9

pytestmark = [pytest.mark.ascend, pytest.mark.network]


def _peak(subject: Subject, *parts: str) -> float:
    """The fullest program's share of its buffer; infinite where the compiler refuses one."""
    side = compiling.compile_sides(subject, parts)["after"]
    assert isinstance(side, Side), side
    assert side.compiled
    shares = [
        program.ub_peak_bytes / program.ub_capacity_bytes
        for compiled in side.compiled
        for program in compiled.programs
    ]
    return math.inf if any(one.refusals for one in side.compiled) else max(shares)


@pytest.mark.parametrize(
    "port",
    [
        pytest.param(port, marks=() if port == "grammar_bitmask" else pytest.mark.slow)
        for port in PORTS
    ],
)
def test_a_tenth_stays_free(port: str, release_tree: ReleaseTree) -> None:
    assert 0 < _peak(subject(release_tree("0.30.0rc2"), port, Options()), *socs.DEFAULTS) < MOST


@pytest.mark.parametrize(
    ("port", "constant", "larger"),
    [
        pytest.param("grammar_bitmask", b"(4 * element_size + 12)", b"12", id="grammar_bitmask"),
        pytest.param(
            "penalties",
            b"_LANE_BYTES = 42",
            b"_LANE_BYTES = 20",
            marks=pytest.mark.slow,
            id="penalties",
        ),
    ],
)
def test_a_larger_tile_is_seen(
    port: str, constant: bytes, larger: bytes, release_tree: ReleaseTree
) -> None:
    given = subject(release_tree("0.30.0rc2"), port, Options())
    after = {file: text.replace(constant, larger) for file, text in given.after.items()}
    assert after != given.after
    assert _peak(replace(given, after=after), "Ascend910B3") >= MOST
