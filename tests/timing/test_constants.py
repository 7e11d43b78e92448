"""The tables of numbers: each has a source, and nothing unsound is read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ascendport.timing
from ascendport.errors import UserError
from ascendport.timing.constants import KINDS, along, constants, parse
from ascendport.timing.measurements import ORIGINS, measurements, ratios

ENTRIES = constants().entries


@pytest.mark.parametrize("name", ENTRIES)
def test_every_constant_has_a_source_and_a_unit(name: str) -> None:
    constant = ENTRIES[name]
    assert constant.unit
    assert constant.kind in KINDS
    # Who assumed something says that there is no source, and fitted ones say on what.
    sourceless = constant.source.startswith("none")
    assert sourceless == (constant.kind == "assumed")
    if constant.kind == "fitted":
        assert "measurements.toml" in constant.source or "fit_table" in constant.source


def test_few_constants_are_fitted() -> None:
    fitted = {name for name, constant in ENTRIES.items() if constant.kind == "fitted"}
    assert fitted == {
        "fetch_cycles_per_core",
        "load_latency_ns",
        "model_error",
    }


SOUND = 'value = 1\nunit = "cycles"\nsource = "x"\nconfidence = "H"\nkind = "published"\n'


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SOUND.replace('source = "x"\n', ""), id="no source"),
        pytest.param(SOUND.replace('"x"', '""'), id="empty source"),
        pytest.param(SOUND.replace('"H"', '"sure"'), id="unknown confidence"),
        pytest.param(SOUND.replace('"published"', '"guessed"'), id="unknown kind"),
        pytest.param(SOUND + "more = 2\n", id="unknown key"),
    ],
)
def test_unsound_entries_are_refused(text: str) -> None:
    assert parse("[one]\n" + SOUND)["one"] == 1
    with pytest.raises(UserError, match="one"):
        parse("[one]\n" + text)


def test_no_large_number_hides_in_the_code() -> None:
    """Cycles, rates and latencies live in the table: code has shapes and small counts only."""
    # Bytes of a repeat, its most, packed booleans, an alignment, units, a limit of effort.
    allowed = {256, 255, 2048, 512, 1000, 1e6, 1e9, 200_000}
    for path in Path(ascendport.timing.__file__).parent.glob("*.py"):
        numbers = {
            node.value
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        }
        large = {number for number in numbers if number > 64}
        assert large <= allowed, (path.name, large - allowed)


def test_curves_are_flat_beyond_their_ends_and_straight_between() -> None:
    curve = ((8.0, 100.0), (24.0, 20.0))
    assert [along(curve, size) for size in (1, 8, 16, 24, 99)] == [100, 100, 60, 20, 20]


def test_every_measurement_has_a_source_and_a_reason_when_it_is_not_fitted() -> None:
    for kernel in measurements():
        assert kernel.source
        assert kernel.rows
        assert kernel.origin in ORIGINS
        assert kernel.fitted == (not kernel.why)
        assert all(row.us is None or row.us > 0 for row in kernel.rows)
        # What is no kernel of a release as it stands is never fitted on.
        assert not (kernel.fitted and (kernel.without or kernel.origin != "vllm-ascend"))


def test_ratios_are_of_rows_that_are_there() -> None:
    kernels = {kernel.name: kernel for kernel in measurements()}
    for ratio in ratios():
        assert ratio.source
        assert 1 < ratio.low <= ratio.high
        rows = [kernels[name].rows[number] for name, number in (ratio.before, ratio.after)]
        assert rows[0] != rows[1] or ratio.before[0] != ratio.after[0]
        if rows[0].us and rows[1].us:
            assert rows[0].us / rows[1].us == pytest.approx(ratio.low, rel=0.01)
