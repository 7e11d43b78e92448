"""The whole analysis: the files of a vllm-ascend tree against the vllm it is made for."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ascendport.checkout.cache import Cache
from ascendport.wiring.extract import Patches, extract
from ascendport.wiring.index import SourceIndex
from ascendport.wiring.judge import judge
from ascendport.wiring.model import Judged, Kind, Where, Wiring
from ascendport.wiring.sources import Progress, summaries, vllm_summaries
from ascendport.wiring.summary import ANALYSIS_VERSION, ModuleSummary, module_name
from ascendport.wiring.things import What
from ascendport.wiring.verdicts.facts import Facts

if TYPE_CHECKING:
    from ascendport.checkout.index import Index

PATCH_FOLDER = "vllm_ascend/patch/"

VERDICTS_VERSION = 2
"""Raise it whenever verdicts change for the same summaries: cached ones are then made anew."""


@dataclass(frozen=True)
class Analysis:
    """The verdicts, and the names of both packages that they rest on."""

    wiring: Wiring
    index: SourceIndex


def analyse(
    patch_files: Mapping[str, bytes],
    ascend: Mapping[str, ModuleSummary],
    vllm: Mapping[str, ModuleSummary],
    version: str,
) -> Analysis:
    """Every assignment of the patch files, judged.

    ``patch_files``: path below the checkout → contents. ``ascend``, ``vllm``: summaries of all
    files of either package, by path. ``version``: that vllm's, for version guards.
    """
    index = SourceIndex({**vllm, **ascend})
    patches: dict[str, Patches] = {}
    unreadable: list[str] = []
    for path, source in sorted(patch_files.items()):
        try:
            patches[path] = extract(source, path, index, version)
        except (SyntaxError, ValueError):
            unreadable.append(path)
    every = [item for found in patches.values() for item in found.assignments]
    judged_ones = [item for item in every if item.where not in (Where.OWN, Where.STATE)]
    active = [item for item in judged_ones if not item.inactive]
    facts = Facts(
        index,
        patched=frozenset(
            (item.base.module, item.name)
            for item in active
            if item.base is not None
            and item.base.what is What.MODULE
            and item.kind is Kind.ATTRIBUTE
            and not item.deferred
        ),
        swept=frozenset(item.name for item in active if item.where is Where.SWEEP),
        loaded=_loaded(index, patches),
        probed={path: found.probes for path, found in patches.items()},
    )
    judged = tuple(_with_overrides([judge(facts, item) for item in judged_ones]))
    wiring = Wiring(
        vllm=version,
        judged=judged,
        own=sum(item.where is Where.OWN for item in every),
        state=sum(item.where is Where.STATE for item in every),
        unreadable=tuple(unreadable),
        counts=dict(Counter(item.verdict.value for item in judged)),
    )
    return Analysis(wiring, index)


def _loaded(index: SourceIndex, patches: Mapping[str, Patches]) -> dict[str, frozenset[str]]:
    """Patch file → modules certainly imported when its assignments run: what it imports itself,
    and what the patch files do that its package imports before it."""
    order: dict[str, list[str]] = {}
    for found in patches.values():
        names = [module for _, module in sorted(found.imports, key=lambda item: item[0])]
        files = [index.paths[name] for name in names if index.paths.get(name) in patches]
        for position, path in enumerate(files):
            order.setdefault(path, []).extend(files[:position])
    loaded: dict[str, frozenset[str]] = {}
    for path, found in patches.items():
        roots: list[str] = [module for _, module in found.imports]
        for earlier in order.get(path, []):
            roots.append(module_name(earlier)[0])
        closure = index.closure(roots)
        own = module_name(path)[0]
        loaded[path] = frozenset(closure - {own})
    return loaded


def _with_overrides(judged: list[Judged]) -> list[Judged]:
    """Notes on assignments that another one in the same file replaces for certain."""
    last: dict[tuple[object, ...], int] = {}
    for item in judged:
        one = item.assignment
        if one.base is not None and not (one.inactive or one.conditions or one.deferred):
            last[one.file, one.base, one.name] = one.line
    marked = []
    for item in judged:
        one = item.assignment
        line = last.get((one.file, one.base, one.name), 0)
        if line > one.line and not one.deferred:
            item = replace(item, notes=(*item.notes, f"overwritten in line {line}"))
        marked.append(item)
    return marked


def analyse_tree(
    files: Mapping[str, bytes],
    version: str,
    progress: Progress,
    *,
    name: str,
    index: Index | None = None,
    cache: Cache | None = None,
) -> Analysis:
    """The analysis of a tree. ``files``: every Python file below ``vllm_ascend/``, path below the
    checkout → contents. ``version``: the vllm it is made for. ``name``: for the cache, one a tree.

    Raises:
        UserError: that vllm cannot be had.
    """
    from pydantic import TypeAdapter

    cache = cache or Cache.of_user()
    vllm = vllm_summaries(version, progress, index=index, cache=cache)
    ascend = summaries(files, name, progress, cache)
    digest = hashlib.sha256(json.dumps(vllm).encode())
    for path in sorted(files):
        digest.update(f"{path} {hashlib.sha256(files[path]).hexdigest()}\n".encode())
    key = f"wiring verdicts {VERDICTS_VERSION} {ANALYSIS_VERSION} {version} {digest.hexdigest()}"
    adapter = TypeAdapter(Wiring)
    known = cache.fact(key)
    if known is not None:
        return Analysis(adapter.validate_python(known), SourceIndex({**vllm, **ascend}))
    patches = {path: data for path, data in files.items() if path.startswith(PATCH_FOLDER)}
    found = analyse(patches, ascend, vllm, version)
    cache.learn(key, adapter.dump_python(found.wiring, mode="json"))
    return found
