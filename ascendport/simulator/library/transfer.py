"""DMA and locks: functions whose work the core does, since they touch GM.

A load pads on the right up to the end of the last 32-byte block: with the given value (mode 2),
else with zeros that count as undefined. `left padding` elements before the first one get the
padding value. Where UB elements are not dense or the first one is not at a block's start, the
library moves element by element and pads nothing on the right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ascendport.simulator.ir import MemRef, Type
from ascendport.simulator.layout import Pipe
from ascendport.simulator.library.base import TYPE, Core, Entry, Run
from ascendport.simulator.sites import CallSite

_LOAD = re.compile(rf"load_gm_to_ubuf_([123])d_({TYPE})")
_STORE = re.compile(rf"store_ubuf_to_gm_([123])d_({TYPE})")


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` moves between GM and UB or locks."""
    if _LOAD.fullmatch(callee):
        roles = ("gm-read", "write", *("scalar",) * (len(types) - 2))
        return Entry(roles, Pipe.MTE2, _load)
    if _STORE.fullmatch(callee):
        roles = ("read", "gm-write", *("scalar",) * (len(types) - 2))
        return Entry(roles, Pipe.MTE3, _store)
    if callee in ("sync_block_lock", "sync_block_unlock", "free_lock_var"):
        if len(types) != 1 or not isinstance(types[0], MemRef):
            return None
        make = {"sync_block_lock": _lock, "sync_block_unlock": _unlock}.get(callee, _free)
        return Entry(("gm-lock",), Pipe.S, make)
    return None


def _load(site: CallSite, core: Core) -> Run:
    return lambda words: core.load(site, words)


def _store(site: CallSite, core: Core) -> Run:
    return lambda words: core.store(site, words)


def _lock(site: CallSite, core: Core) -> Run:
    return lambda words: core.lock(site, words)


def _unlock(site: CallSite, core: Core) -> Run:
    return lambda words: core.unlock(site, words)


def _free(site: CallSite, core: Core) -> Run:
    return lambda words: core.free_lock(site, words)
