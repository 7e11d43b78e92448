"""Fitting: the nearest candidate, without being pulled by one bad kernel, and left-out errors."""

from __future__ import annotations

import pytest

from ascendport.timing.fit import Candidate, Known, best, errors, left_out, pull, typical

# Made-up kernels whose time is launch + work x pace. "odd" follows another law.
WORK = {"one": (1.0, 4.0, 16.0), "two": (2.0, 8.0), "three": (3.0,)}
KNOWN = [Known(name, 2.0 + 5.0 * work) for name, works in WORK.items() for work in works]
ODD = Known("odd", 90.0)


def tried(*extra: float) -> list[Candidate]:
    works = [work for works in WORK.values() for work in works]
    return [
        Candidate(
            {"launch": launch, "pace": pace},
            (*(launch + pace * work for work in works), *(launch + pace * work for work in extra)),
        )
        for launch in (1.0, 2.0, 3.0)
        for pace in (3.0, 4.0, 5.0, 6.0, 40.0)
    ]


def test_the_true_values_are_found() -> None:
    assert best(KNOWN, tried()).values == {"launch": 2.0, "pace": 5.0}


def test_one_kernel_that_the_model_misses_does_not_pull_the_others() -> None:
    assert best([*KNOWN, ODD], tried(2.0)).values == {"launch": 2.0, "pace": 5.0}


def test_left_out_errors_are_of_a_fit_that_never_saw_the_kernel() -> None:
    known = [*KNOWN, ODD]
    left = left_out(known, tried(2.0))
    assert left[:-1] == [pytest.approx(0.0)] * len(KNOWN)
    assert left[-1] == pytest.approx(12 / 90 - 1)


def test_rows_that_are_not_fitted_do_not_count() -> None:
    shifted = [Known(row.kernel, 41.0 * row.us, fitted=False) for row in KNOWN[:3]]
    assert best([*shifted, *KNOWN[3:]], tried()).values["pace"] == 5.0
    assert best([Known(row.kernel, row.us) for row in shifted], _only(3)).values["pace"] == 40.0


def _only(rows: int) -> list[Candidate]:
    return [Candidate(item.values, item.predicted[:rows]) for item in tried()]


def test_errors_and_their_typical_size() -> None:
    rows = [Known("one", 10.0), Known("one", 10.0), Known("one", 10.0), Known("two", 10.0)]
    found = errors(rows, [11.0, 9.0, 20.0, 13.0])
    assert found == pytest.approx([0.1, -0.1, 1.0, 0.3])
    assert typical(rows, found) == pytest.approx((0.1 + 0.3) / 2)


def test_a_constant_that_rows_do_not_tell_stays_where_it_was_published() -> None:
    # "idle" has no part in any prediction.
    wide = [
        Candidate({**item.values, "idle": idle}, item.predicted)
        for item in tried()
        for idle in (1.0, 4.0, 9.0)
    ]
    published = {"idle": 4.0, "pace": 4.0}
    assert best(KNOWN, wide).values["idle"] == 1.0
    # What rows do tell is fitted all the same.
    assert best(KNOWN, wide, published=published).values == {
        "launch": 2.0,
        "pace": 5.0,
        "idle": 4.0,
    }


def test_departing_from_what_is_published_counts_the_same_up_and_down() -> None:
    assert pull({"pace": 4.0}, {"pace": 4.0}) == 0
    assert pull({"pace": 8.0}, {"pace": 4.0}) == pytest.approx(pull({"pace": 2.0}, {"pace": 4.0}))
    assert pull({"pace": 8.0}, {}) == 0
