"""A small package pair of our own: a vllm that reads names in many ways, and patches on it."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent

from ascendport.wiring.analysis import Analysis, analyse
from ascendport.wiring.model import Judged
from ascendport.wiring.reading.reader import summarise
from ascendport.wiring.summary import ModuleSummary

VERSION = "1.2.0"
PATCH = "vllm_ascend/patch/worker/patch_one.py"

VLLM: Mapping[str, str] = {
    "vllm/__init__.py": "from .version import __version__",
    "vllm/version.py": "__version__ = '1.2.0'",
    # work: read by its own function. unused: by nobody. once: only while importing.
    "vllm/core.py": """
        def work(x): return x
        def unused(x): return x
        def once(x): return x
        def typed(x): return x
        def taken(x): return x
        def lent(x): return x
        TABLE = {}
        FLAG = once(1)
        note: typed = None
        def run(x):
            def typed_inner(taken): return taken
            return work(x) + len(TABLE)
    """,
    # Its own copies of core's names: taken is used, and imported together with vllm.user.
    "vllm/user.py": """
        from vllm.core import taken
        def use(x): return taken(x)
    """,
    # Imported by nobody: a patch may come before it.
    "vllm/model.py": """
        from vllm.core import lent
        def use(x): return lent(x)
    """,
    "vllm/late.py": """
        def borrowed(x): return x
        def dotted(x): return x
        def stringed(x): return x
        def silent(x): return x
    """,
    "vllm/readers.py": """
        import vllm.late as deferred
        PATH = "vllm.late.stringed"
        def use(x):
            from vllm.late import borrowed
            return borrowed(x) + deferred.dotted(x)
    """,
    "vllm/pack/__init__.py": """
        from .inner import offered, kept
        from .wide import *
    """,
    "vllm/pack/inner.py": """
        def offered(x): return x
        def kept(x): return x
    """,
    "vllm/pack/wide.py": """
        __all__ = ["starred"]
        def starred(x): return x
        def hidden(x): return x
    """,
    "vllm/pack/caller.py": """
        import vllm.pack as pack
        def use(x): return pack.offered(x) + pack.starred(x)
    """,
    "vllm/lazy.py": """
        _NAMES = {"Shape": ".shapes.Shape"}
        def __getattr__(name): return name
    """,
    "vllm/shapes.py": """
        class Base:
            def inherited(self): return 1
        class Shape(Base):
            size = 1
            def __init__(self): self.filled = 0
            def area(self): return self.size + self.inherited() + self.filled
            def unasked(self): return 0
        class Round(Shape):
            def use(self): return self.area()
        def use(shape): return shape.area()
    """,
    "vllm/models/registry.py": """
        MODELS = {"Tall": ("tower", "Tower")}
    """,
    "vllm/models/tower.py": """
        class Tower: pass
        class Cellar: pass
    """,
}

ASCEND: Mapping[str, str] = {
    "vllm_ascend/__init__.py": "",
    "vllm_ascend/utils.py": "def vllm_version_is(version): return True",
    "vllm_ascend/ops/__init__.py": "",
    "vllm_ascend/ops/fast.py": """
        def fast(x): return helper(x)
        def helper(x): return x
        def lonely(x): return x
        class Pool:
            def put(self): return 1
            def drop(self): return 1
        def serve(): return Pool().put()
    """,
    "vllm_ascend/worker.py": """
        from vllm_ascend.ops.fast import serve
        import vllm.core as core
        def main(): return serve() + core.ours
    """,
    "vllm_ascend/patch/__init__.py": "",
    "vllm_ascend/patch/worker/__init__.py": "import vllm_ascend.patch.worker.patch_one",
}


def summarised(files: Mapping[str, str]) -> dict[str, ModuleSummary]:
    found = {path: summarise(dedent(text).encode(), path) for path, text in files.items()}
    return {path: summary for path, summary in found.items() if summary is not None}


def analysed(
    patch: str,
    *,
    vllm: Mapping[str, str] | None = None,
    ascend: Mapping[str, str] | None = None,
    path: str = PATCH,
) -> Analysis:
    """The analysis of one patch file; ``vllm`` and ``ascend`` add files to the pair."""
    ours = {**ASCEND, **(ascend or {}), path: patch}
    patches = {
        name: dedent(text).encode()
        for name, text in ours.items()
        if name.startswith("vllm_ascend/patch/")
    }
    return analyse(patches, summarised(ours), summarised({**VLLM, **(vllm or {})}), VERSION)


def judged(patch: str, **files: Mapping[str, str]) -> list[Judged]:
    return list(analysed(patch, **files).wiring.judged)  # type: ignore[arg-type]


def only(patch: str, **files: Mapping[str, str]) -> Judged:
    """The one judged assignment of a patch file."""
    found = judged(patch, **files)
    assert len(found) == 1, [(item.assignment.target, item.verdict) for item in found]
    return found[0]
