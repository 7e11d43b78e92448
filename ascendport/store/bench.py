"""``bench --tp-mismatch``: a store port's saves and loads, before and after, on a real store.

A process for each side and rank, with a client of its own. The sides take turns, round after
round, and are compared round by round, so that a machine whose speed drifts slows both alike.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ascendport.bench.rows import Row, Source, not_run
from ascendport.bench.statistics import Ratio, ratio
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.harness.children import Children, Failure
from ascendport.harness.workspace import Workspace, workspace
from ascendport.store import mooncake, pairs
from ascendport.store.bench_child import (
    FLOWS,
    Sample,
    Setup,
    clear,
    prepare,
    round_of,
    weighed_round,
)
from ascendport.store.scenario import Shape

BACKENDS = ("mooncake", "memory")
SWEEP_TOKENS = (1024, 4096, 16384, 65536, 131072)
SWEEP = "addresses only"
WEIGHED_TOKENS = 16384
"""Longest prompt whose memory is weighed: tracing every integer of a longer one takes minutes."""
SIDES = ("before", "after")
ADDRESSES = "keys and addresses"
MEMORY = "memory of keys and addresses"

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What is timed. ``sizes``: (prefill, decode) TP sizes. ``backend``: empty: Mooncake where it
    is installed, otherwise memory. ``ranks``: processes at work at one time on each side."""

    sizes: tuple[tuple[int, int], ...] = ((2, 4), (4, 2))
    blocks: tuple[int, ...] = (8,)
    layers: int = 32
    heads: int = 8
    head_dim: int = 128
    block_size: int = 128
    backend: str = ""
    ranks: int = 1
    rounds: int = 12
    sweep: bool = False
    warm_up: int = 1


def plan(
    sizes: Sequence[str],
    blocks: Sequence[int],
    layers: int,
    backend: str,
    ranks: int,
    *,
    sweep: bool,
) -> Plan:
    """The user's choices, checked; ``sizes`` as ``2:4``.

    Raises:
        UserError: a choice that cannot be.
    """
    if backend and backend not in BACKENDS:
        raise UserError("no such backend", where=backend, next=f"choose from {', '.join(BACKENDS)}")
    chosen = tuple(_sizes(text) for text in sizes) or Plan.sizes
    for name, value in (
        ("--layers", layers),
        ("--ranks", ranks),
        *(("--blocks", n) for n in blocks),
    ):
        if value < 1:
            raise UserError(f"{name} must be at least 1", where=str(value))
    small = min(decode for _, decode in chosen)
    if ranks > small:
        raise UserError(
            "more ranks than the smallest decode side has",
            where=f"--ranks {ranks}",
            next=f"at most {small}",
        )
    return Plan(
        sizes=chosen,
        blocks=tuple(blocks) or Plan.blocks,
        layers=layers,
        backend=backend,
        ranks=ranks,
        sweep=sweep,
    )


def _sizes(text: str) -> tuple[int, int]:
    heads = Plan.heads
    prefill, _, decode = text.partition(":")
    if not (prefill.isdigit() and decode.isdigit()):
        raise UserError("not a pair of TP sizes", where=text, next="give prefill:decode, as 2:4")
    pair = int(prefill), int(decode)
    if pair[0] == pair[1] or any(size < 1 or heads % size for size in pair):
        raise UserError(
            "no TP mismatch",
            where=text,
            next=f"give two different divisors of {heads}, the KV heads of the model",
        )
    large, small = max(pair), min(pair)
    if large % small:
        raise UserError("one size must divide the other", where=text)
    return pair


def rows(subject: Subject, chosen: Plan) -> Iterator[Row]:
    """The rows of a store port on a tree.

    Rows say why where something is missing here.
    """
    name = subject.port.name
    reason = pairs.missing()
    backend = chosen.backend or ("memory" if mooncake.missing() else "mooncake")
    if not reason and backend == "mooncake":
        reason = mooncake.missing()
    if reason:
        yield not_run(name, reason, target=backend, quantity="total", source=Source.MEASURED)
        return
    jobs = [(sizes, blocks, False) for sizes in chosen.sizes for blocks in chosen.blocks]
    if chosen.sweep:
        counts = [tokens // chosen.block_size for tokens in SWEEP_TOKENS]
        jobs += [(sizes, blocks, True) for sizes in chosen.sizes for blocks in counts]
    with workspace(subject.checkout.root, subject.before, subject.after) as places:
        for number, (sizes, blocks, dry) in enumerate(jobs):
            what = f"{sizes[0]}:{sizes[1]}, {blocks} blocks{', ' + SWEEP if dry else ''}"
            subject.progress(f"store, {what}", number, len(jobs))
            yield from _job(subject, chosen, places, sizes, blocks, backend, dry=dry)
        subject.progress("store", len(jobs), len(jobs))


def _job(
    subject: Subject,
    chosen: Plan,
    places: Workspace,
    sizes: tuple[int, int],
    blocks: int,
    backend: str,
    *,
    dry: bool,
) -> Iterator[Row]:
    """One shape: all flows, round after round."""
    prefill, decode = sizes
    shape = Shape(
        layers=chosen.layers,
        heads=chosen.heads,
        key_dim=chosen.head_dim,
        value_dim=chosen.head_dim,
        block_size=chosen.block_size,
        blocks=blocks + 1,
    )
    tokens = blocks * chosen.block_size
    case = (
        f"{prefill} to {decode}, {blocks} blocks"
        if not dry
        else f"{prefill} to {decode}, {tokens} tokens"
    )
    target = (
        SWEEP if dry else f"mooncake {mooncake.version()}" if backend == "mooncake" else "memory"
    )
    if chosen.ranks > 1 and not dry:
        case += f", {chosen.ranks} ranks"
    # A long prompt takes seconds a round, and there is no store whose first use has to pass.
    rounds, warm_up = (2, 0) if dry else (chosen.rounds, chosen.warm_up)
    ranks = 1 if dry else chosen.ranks
    real = backend == "mooncake" and not dry
    samples: dict[str, list[list[dict[str, Sample]]]] = {side: [] for side in SIDES}
    try:
        with ExitStack() as stack:
            master = stack.enter_context(mooncake.master(_log(stack))) if real else None
            group = {
                side: [stack.enter_context(Children(1)) for _ in range(ranks)] for side in SIDES
            }
            setups = {
                side: [
                    Setup(
                        side,
                        index,
                        prefill,
                        decode,
                        shape,
                        blocks,
                        master,
                        _segment(shape, sizes),
                        dry,
                        subject.options.timeout_s,
                    )
                    for index in range(ranks)
                ]
                for side in SIDES
            }
            trees = {"before": places.before, "after": places.after}
            version = pairs.pinned(subject)
            begun = [
                (side, child, child.submit(prepare, trees[side], version, setup))
                for side in SIDES
                for child, setup in zip(group[side], setups[side], strict=True)
            ]
            for side, child, started in begun:
                _value(child, started, subject, side)
            for repeat in range(warm_up + rounds):
                order = SIDES if repeat % 2 else SIDES[::-1]
                for side in order:
                    done = _round(subject, group[side], side, round_of, repeat)
                    if repeat >= warm_up:
                        samples[side].append(done)
                subject.progress(f"store, {case}", repeat + 1, warm_up + rounds)
            # One rank after the other, so that what the master counts is that rank's.
            weighed = {
                side: [
                    one
                    for child in group[side]
                    for one in _round(subject, [child], side, weighed_round, warm_up + rounds)
                ]
                for side in SIDES
                if tokens <= WEIGHED_TOKENS
            }
    except UserError as error:
        yield not_run(
            subject.port.name,
            str(error),
            case=case,
            target=target,
            quantity="total",
            source=Source.MEASURED,
        )
        return
    for flow in FLOWS:
        yield from _flow(subject.port.name, f"{flow}, {case}", target, samples, weighed, flow)


def _round(
    subject: Subject,
    group: Sequence[Children],
    side: str,
    work: Callable[[int], dict[str, Sample]],
    repeat: int,
) -> list[dict[str, Sample]]:
    """A round of all ranks of a side at one time; what they saved is gone afterwards."""
    futures = [child.submit(work, repeat) for child in group]
    done = [
        _value(child, future, subject, side) for child, future in zip(group, futures, strict=True)
    ]
    for child in group:
        _value(child, child.submit(clear), subject, side)
    return done


def _log(stack: ExitStack) -> Path:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ascendport-"))
    return Path(folder) / "master.log"


def _segment(shape: Shape, sizes: tuple[int, int]) -> int:
    """Bytes that a rank's process gives to the pool: the saves of a round and half of one more,
    with room to spare."""
    block = 2 * shape.layers * shape.block_size * shape.heads * shape.key_dim * 2
    ranks = max(1, sizes[0] // sizes[1])
    need = shape.blocks * block * ranks // sizes[0]
    return int(max(256 << 20, 3 * need)) // (16 << 20) * (16 << 20)


def _value(child: Children, future: Future[T], subject: Subject, side: str) -> T:
    found: T | Failure = child.result(future, subject.options.timeout_s)
    if isinstance(found, Failure):
        raise UserError(f"{side}: {found.reason}")
    return found


def _flow(
    port: str,
    case: str,
    target: str,
    samples: dict[str, list[list[dict[str, Sample]]]],
    weighed: dict[str, list[dict[str, Sample]]],
    flow: str,
) -> Iterator[Row]:
    """Rows of one flow: times of the slowest rank of each round, memory of the rank that holds
    most where that was weighed, and what was asked."""
    sides = {
        side: [max((one[flow] for one in ranks), key=lambda s: s.seconds) for ranks in taken]
        for side, taken in samples.items()
    }
    for side in SIDES:
        problem = next((one.problem for one in sides[side] if one.problem), "")
        if problem:
            yield not_run(
                port,
                f"{side}: {problem}",
                case=case,
                target=target,
                quantity="total",
                source=Source.MEASURED,
            )
            return
    old, new = sides["before"], sides["after"]
    parts: tuple[tuple[str, Callable[[Sample], float]], ...] = (
        ("total", lambda one: one.seconds),
        (ADDRESSES, lambda one: max(one.seconds - one.store_seconds, 1e-9)),
        ("store", lambda one: max(one.store_seconds, 1e-9)),
    )
    for quantity, read in parts:
        yield _timed(
            port,
            case,
            target,
            quantity,
            [read(one) for one in old],
            [read(one) for one in new],
            new,
        )
    for method in ("exists", "put", "get"):
        was, now = old[-1].counts.get(method, (0, 0, 0)), new[-1].counts.get(method, (0, 0, 0))
        for unit, at in (("calls", 0), ("keys", 1), ("slices", 2)):
            if was[at] or now[at]:
                yield Row(
                    port, case, target, f"{method} {unit}", "1", Source.COUNTED, was[at], now[at]
                )
    if not weighed:
        return
    held = {side: max(one[flow].held for one in ranks) for side, ranks in weighed.items()}
    yield Row(
        port,
        case,
        target,
        MEMORY,
        "KiB",
        Source.MEASURED,
        held["before"] / 1024,
        held["after"] / 1024,
        reason="most that Python and NumPy hold before a call of the store, in one round more",
    )
    for method, before in weighed["before"][0][flow].at_master.items():
        after = weighed["after"][0][flow].at_master[method]
        if before or after:
            quantity = f"{method} keys at the master"
            yield Row(port, case, target, quantity, "1", Source.COUNTED, before, after)


def _timed(
    port: str,
    case: str,
    target: str,
    quantity: str,
    old: list[float],
    new: list[float],
    samples: list[Sample],
) -> Row:
    found: Ratio = ratio(old, new)
    remark = f"p95 {1e3 * _p95(old):.3g} → {1e3 * _p95(new):.3g} ms"
    if quantity == "store":
        share = statistics.median(one.store_seconds / one.seconds for one in samples)
        remark += f", {100 * share:.0f} % of the total after"
    return Row(
        port,
        case,
        target,
        quantity,
        "ms",
        Source.MEASURED,
        before=1e3 * statistics.median(old),
        after=1e3 * statistics.median(new),
        ratio_low=found.low,
        ratio_high=found.high,
        reason=remark,
        measured_ratio=found.median,
    )


def _p95(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
