"""What is saved and loaded: head counts, TP sizes, prefixes, failures."""

from __future__ import annotations

from typing import Any

from ascendport.store.scenario import (
    Evict,
    Fault,
    Load,
    Mend,
    Preempt,
    Request,
    Save,
    Scenario,
    Shape,
    Step,
)

LOST = ("lost-024", "lost-025", "lost-026")
SHARDED = ("sharded",)

EIGHT = Shape(heads=8)
FOUR = Shape(heads=4)
LARGE = Shape(heads=8, layers=1, key_dim=2, value_dim=2, block_size=128, blocks=8)

WHOLE = Request("a", 4 * 16)
PARTIAL = Request("a", 3 * 16 + 5)
SHARING = (WHOLE, Request("b", 3 * 16, like="a", shared=2 * 16))

REAL = frozenset({"real"})
"""Also on a real Mooncake, where it is installed."""

ROUND: tuple[Step, ...] = (Save(("a",)), Load(("a",)))
SIZES = ((1, 2), (2, 4), (4, 2), (8, 2), (2, 8))


def _case(
    name: str,
    prefill: int = 2,
    decode: int = 4,
    steps: tuple[Step, ...] = ROUND,
    requests: tuple[Request, ...] = (WHOLE,),
    **more: Any,
) -> Scenario:
    return Scenario(name, prefill, decode, steps, requests, **more)


def _both(name: str, steps: tuple[Step, ...], **more: Any) -> tuple[Scenario, ...]:
    """In both directions: heads of a rank split into two keys, and whole."""
    return (
        _case(f"{name}, 2 to 4", 2, 4, steps, **more),
        _case(f"{name}, 4 to 2", 4, 2, steps, **more),
    )


CASES: tuple[Scenario, ...] = (
    # Every pair of sizes, K and V of 8 and of 4 heads; both block sizes.
    *(
        _case(f"{prefill} to {decode}, 8 heads", prefill, decode, shape=EIGHT)
        for prefill, decode in SIZES
    ),
    *(
        _case(f"{prefill} to {decode}, 4 heads", prefill, decode, shape=FOUR)
        for prefill, decode in ((1, 2), (2, 4), (4, 2))
    ),
    *(
        _case(
            f"{prefill} to {decode}, blocks of 128",
            prefill,
            decode,
            shape=LARGE,
            requests=(Request("a", 2 * 128 + 70),),
        )
        for prefill, decode in SIZES
    ),
    # One size on both sides: not this port's way, and not changed by it.
    _case("2 to 2", 2, 2, requests=(PARTIAL,)),
    _case("2 to 2, loads by a thread", 2, 2, requests=(PARTIAL,), load_async=True),
    _case("2 to 2, some missing", 2, 2, (Save(("a",)), Evict("a", (1,)), Load(("a",)))),
    # How loads are started, what the configuration looks like, what is laid out how.
    _case("loads by a thread", load_async=True, requests=(PARTIAL,)),
    _case("loads by a thread, 8 to 2", 8, 2, load_async=True),
    _case("sizes as text", sizes_as_text=True),
    _case("partial last block, 2 to 4", requests=(PARTIAL,), tags=REAL),
    _case("partial last block, 4 to 2", 4, 2, requests=(PARTIAL,), tags=REAL),
    _case("padded blocks, 2 to 4", shape=Shape(padding=96)),
    _case("padded blocks, 4 to 2", 4, 2, shape=Shape(padding=96)),
    _case("V narrower than K, 2 to 4", shape=Shape(key_dim=12, value_dim=8)),
    _case("V narrower than K, 4 to 2", 4, 2, shape=Shape(key_dim=12, value_dim=8)),
    # What is in the store already.
    *_both("save again", (Save(("a",)), Save(("a",)), Load(("a",)))),
    *_both("some blocks present", (Save(("a",)), Evict("a", (0, 3)), *ROUND), events=True),
    *_both(
        "one in the middle missing",
        (Save(("a",)), Evict("a", (1,)), *ROUND),
        events=True,
        tags=REAL,
    ),
    *_both("one rank's key missing", (Save(("a",)), Evict("a", (2,), (1,)), *ROUND), events=True),
    *_both(
        "a prefix is shared",
        (Save(("a", "b")), Load(("a", "b"))),
        requests=SHARING,
        events=True,
    ),
    _case(
        "a prefix is shared, one after the other",
        2,
        4,
        (Save(("a",)), Save(("b",)), Load(("b", "a"))),
        SHARING,
        events=True,
    ),
    _case("a prefix is on the rank already", 2, 4, (Save(("a",)), Load(("a",), cached=32))),
    _case("all is on the rank already", 2, 4, (Save(("a",)), Load(("a",), cached=64))),
    _case("preempted", 2, 4, (Preempt(("a",)), *ROUND)),
    _case("events of a first save", 4, 2, requests=(PARTIAL,), events=True),
    # A store that replaces the bytes of a key that it has.
    _case("overwriting store", 2, 4, (Save(("a",)), Evict("a", (1,)), *ROUND), overwrites=True),
    # PCP ranks share the chunks of a save out.
    _case("2 PCP ranks, 2 to 4", variants=SHARDED, pcp=2, events=True),
    _case("2 PCP ranks, 4 to 2", 4, 2, variants=SHARDED, pcp=2, events=True),
    _case("4 PCP ranks, few blocks", 2, 4, variants=SHARDED, pcp=4, requests=(Request("a", 33),)),
    _case(
        "2 PCP ranks, one block there",
        2,
        4,
        (Save(("a",)), Evict("a", (0, 2, 3)), *ROUND),
        variants=SHARDED,
        pcp=2,
        events=True,
    ),
    # The store fails.
    *_both(
        "put fails for one block",
        (Fault("put", code=-800, blocks=(2,)), Save(("a",)), Load(("a",)), Mend(), *ROUND),
        events=True,
    ),
    *_both(
        "put fails for one rank's key",
        (Fault("put", code=-800, blocks=(1,), ranks=(3,)), Save(("a",)), Load(("a",))),
        events=True,
    ),
    *_both(
        "the store is full",
        (Fault("put", code=-200), Save(("a",)), Load(("a",)), Mend(), *ROUND),
        events=True,
    ),
    *_both("exists raises", (Save(("a",)), Fault("exists", "raises"), *ROUND), events=True),
    *_both("exists answers short", (Fault("exists", "short"), *ROUND), events=True),
    *_both("get lacks one key", (Save(("a",)), Fault("get", code=-704, blocks=(1,)), Load(("a",)))),
    *_both(
        "get lacks one rank's key",
        (Save(("a",)), Fault("get", code=-704, blocks=(1,), ranks=(3,)), Load(("a",))),
    ),
    *_both("get answers short", (Save(("a",)), Fault("get", "short"), Load(("a",)))),
    *_both("get raises", (Save(("a",)), Fault("get", "raises"), Load(("a",)), Mend(), *ROUND[1:])),
    _case(
        "get raises in the thread",
        2,
        4,
        (Save(("a",)), Fault("get", "raises"), Load(("a",)), Mend(), *ROUND[1:]),
        load_async=True,
    ),
    *_both(
        "get breaks in the backend",
        (Save(("a",)), Fault("get", "breaks"), Load(("a",)), Mend(), *ROUND[1:]),
    ),
    _case(
        "get breaks in the thread",
        2,
        4,
        (Save(("a",)), Fault("get", "breaks"), Load(("a",)), Mend(), *ROUND[1:]),
        load_async=True,
    ),
    *_both(
        "put breaks in the backend",
        (Fault("put", "breaks"), Save(("a",)), Load(("a",)), Mend(), *ROUND),
        events=True,
    ),
    *_both(
        "the store goes in mid-save",
        (
            Fault("put", "raises"),
            Fault("exists", "raises"),
            Fault("get", "raises"),
            Save(("a",)),
            Load(("a",)),
            Mend(),
            *ROUND,
        ),
        events=True,
    ),
    _case("nothing was saved", 2, 4, (Load(("a",)), *ROUND)),
)
