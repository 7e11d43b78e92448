import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.bench.statistics import ratio

times = st.floats(0.1, 1e6, allow_nan=False)


def test_ratios_are_taken_pair_by_pair() -> None:
    # A machine that slows down tenfold half way does not change the ratio.
    found = ratio([2.0, 2.0, 20.0, 20.0], [1.0, 1.0, 10.0, 10.0])
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=50))
def test_the_median_lies_in_its_bounds(pairs: list[tuple[float, float]]) -> None:
    found = ratio([b for b, _ in pairs], [a for _, a in pairs])
    assert found.low <= found.median <= found.high


@given(st.lists(times, min_size=2, max_size=20))
def test_a_side_against_itself_is_one(one: list[float]) -> None:
    assert ratio(one, one).median == 1.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [], id="none"),
        pytest.param([1.0], [1.0, 2.0], id="lengths-differ"),
        pytest.param([1.0], [0.0], id="zero-time"),
    ],
)
def test_what_is_no_measurement_is_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match=r"timings|positive"):
        ratio(before, after)
