"""Every form of assignment with its live and its dead twin."""

from __future__ import annotations

import pytest

from ascendport.wiring.model import Verdict
from tests.wiring.pairs import judged, only

LIVE, DEAD, ADDED = Verdict.LIVE, Verdict.NO_SUCH_NAME, Verdict.ADDED

FORMS = {
    "import as": "import vllm.core as c\nc.{name} = 1",
    "from import": "from vllm import core\ncore.{name} = 1",
    "dotted": "import vllm.core\nvllm.core.{name} = 1",
    "alias of alias": "import vllm.core as c\nd = c\ne = d\ne.{name} = 1",
    "sys.modules": "import sys\nsys.modules['vllm.core'].{name} = 1",
    "sys.modules.get": "import sys\nm = sys.modules.get('vllm.core')\n"
    "if m is not None:\n m.{name} = 1",
    "import_module": "import importlib\nimportlib.import_module('vllm.core').{name} = 1",
    "setattr": "import vllm.core as c\nsetattr(c, '{name}', 1)",
    "setattr of a constant": "import vllm.core as c\nN = '{name}'\nsetattr(c, N, 1)",
    "setattr of joined text": "import vllm.core as c\nsetattr(c, '' + '{name}', 1)",
    "type.__setattr__": "import vllm.core as c\ntype.__setattr__(c, '{name}', 1)",
    "loop over names": "import vllm.core as c\nfor n in ('{name}',):\n setattr(c, n, 1)",
    "loop over pairs": "import vllm.core as c\nfor n, v in [('{name}', 1)]:\n setattr(c, n, v)",
    "loop over a mapping": "import vllm.core as c\n"
    "for n, v in {{'{name}': 1}}.items():\n setattr(c, n, v)",
    "loop over modules": "import vllm.core as c\nfor m in [c]:\n m.{name} = 1",
    "__dict__": "import vllm.core as c\nc.__dict__['{name}'] = 1",
    "vars": "import vllm.core as c\nvars(c)['{name}'] = 1",
    "__dict__.update": "import vllm.core as c\nc.__dict__.update({{'{name}': 1}})",
    "__globals__": "from vllm.core import run\nrun.__globals__['{name}'] = 1",
    "delete": "import vllm.core as c\ndel c.{name}",
    "augmented": "import vllm.core as c\nc.{name} += 1",
    "annotated": "import vllm.core as c\nc.{name}: int = 1",
    "tuple target": "import vllm.core as c\nx, c.{name} = 1, 2",
    "walrus": "import vllm.core\n(c := vllm.core).{name} = 1",
    "under if": "import os, vllm.core as c\nif os.environ:\n c.{name} = 1",
    "under with": "import open_it, vllm.core as c\nwith open_it.now():\n c.{name} = 1",
    "under try": "try:\n import vllm.core as c\n c.{name} = 1\nexcept ImportError:\n pass",
    "in a called function": "import vllm.core as c\ndef go(m):\n m.{name} = 1\ngo(c)",
    "in a keyword call": "import vllm.core as c\ndef go(*, m):\n m.{name} = 1\ngo(m=c)",
    "deferred": "import vllm.core as c\ndef later():\n c.{name} = 1",
    "deferred in a method": "import vllm.core as c\nclass K:\n def f(self):\n  c.{name} = 1",
    "returned object": "import vllm.core as c\ndef which():\n return c\nwhich().{name} = 1",
    "star import": "from vllm.reexport import *\ncore.{name} = 1",
}


@pytest.mark.parametrize(("name", "verdict"), [("work", LIVE), ("wrok", DEAD)], ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: str, name: str, verdict: Verdict) -> None:
    found = only(
        FORMS[form].replace("{name}", name).replace("{{", "{").replace("}}", "}"),
        vllm={"vllm/reexport.py": "import vllm.core as core"},
    )
    assert found.verdict is verdict, found
    assert found.assignment.name == name
    assert found.assignment.deferred == form.startswith("deferred")
    if verdict is DEAD:
        assert found.instead == "work"
    else:
        assert found.reads[0].file == "vllm/core.py"


NAMES = {
    "read by its own function": ("core", "work", LIVE),
    "read by nobody": ("core", "unused", Verdict.NEVER_READ),
    "read while importing": ("core", "once", Verdict.ONLY_AT_IMPORT),
    "read in annotations": ("core", "typed", Verdict.ONLY_AT_IMPORT),
    "shadowed by a parameter": ("core", "taken", LIVE),
    "imported inside a function": ("late", "borrowed", LIVE),
    "attribute of the module": ("late", "dotted", LIVE),
    "dotted path in a string": ("late", "stringed", LIVE),
    "nowhere": ("late", "silent", Verdict.NEVER_READ),
    "re-exported and read": ("pack", "offered", LIVE),
    "re-exported and never read": ("pack", "kept", Verdict.NEVER_READ),
    "behind the re-export": ("pack.inner", "offered", Verdict.COPIED_BEFORE),
    "star-exported and read": ("pack", "starred", LIVE),
    "not star-exported": ("pack", "hidden", DEAD),
    "class in a table of names": ("models.tower", "Tower", LIVE),
    "class in no table": ("models.tower", "Cellar", Verdict.NEVER_READ),
    "read by vllm_ascend only": ("core", "ours", ADDED),
}


@pytest.mark.parametrize("case", NAMES, ids=str)
def test_name_of_a_module(case: str) -> None:
    module, name, verdict = NAMES[case]
    found = only(f"import vllm.{module} as m\nm.{name} = 1")
    assert found.verdict is verdict, found


def test_a_copy_taken_before_the_patch_is_dead() -> None:
    found = only("import vllm.user\nimport vllm.core as c\nc.taken = 1")
    assert found.verdict is Verdict.COPIED_BEFORE
    assert found.also_held == ("vllm.user",)


def test_a_copy_that_may_be_taken_after_the_patch_is_live_with_a_note() -> None:
    found = only("import vllm.core as c\nc.lent = 1")
    assert found.verdict is LIVE
    assert found.reads[0].copied == "vllm.model"
    assert "imported after the patch" in found.notes[0]


def test_a_copy_that_is_patched_itself_makes_the_first_redundant() -> None:
    found = judged("import vllm.user as u\nimport vllm.core as c\nc.taken = 1\nu.taken = 1")
    assert [item.verdict for item in found] == [Verdict.REDUNDANT, LIVE]


def test_a_patch_file_before_it_counts_as_loaded() -> None:
    files = {
        "vllm_ascend/patch/worker/__init__.py": (
            "import vllm_ascend.patch.worker.patch_first\nimport vllm_ascend.patch.worker.patch_one"
        ),
        "vllm_ascend/patch/worker/patch_first.py": "import vllm.user",
    }
    patch = "import vllm.core as c\nc.taken = 1"
    assert only(patch, ascend=files).verdict is Verdict.COPIED_BEFORE
    files["vllm_ascend/patch/worker/__init__.py"] = (
        "import vllm_ascend.patch.worker.patch_one\nimport vllm_ascend.patch.worker.patch_first"
    )
    assert only(patch, ascend=files).verdict is LIVE


CLASSES = {
    "method": ("area", LIVE),
    "inherited method": ("inherited", LIVE),
    "dunder": ("__init__", LIVE),
    "renamed method": ("aera", DEAD),
    "method that nobody calls": ("unasked", Verdict.NEVER_READ),
    "attribute of instances": ("filled", LIVE),
}
CLASS_FORMS = {
    "from import": "from vllm.shapes import Shape\nShape.{name} = 1",
    "dotted": "import vllm.shapes\nvllm.shapes.Shape.{name} = 1",
    "lazy module": "import vllm.lazy\nvllm.lazy.Shape.{name} = 1",
    "wrapped": "from vllm.shapes import Shape\nShape.{name} = classmethod(lambda c: 1)",
    "property": "from vllm.shapes import Shape\nShape.{name} = property(lambda s: 1)",
    "getattr": "import vllm.shapes as s\nC = getattr(s, 'Shape')\nsetattr(C, '{name}', 1)",
}


@pytest.mark.parametrize("form", CLASS_FORMS, ids=str)
@pytest.mark.parametrize("case", CLASSES, ids=str)
def test_attribute_of_a_class(case: str, form: str) -> None:
    name, verdict = CLASSES[case]
    found = only(
        CLASS_FORMS[form].replace("{name}", name),
        vllm={"vllm/lazy.py": "T = {'Shape': 'vllm.shapes.Shape'}\ndef __getattr__(n): return n"},
    )
    assert found.verdict is verdict, found
    if case == "renamed method":
        assert found.instead == "area"
    if case == "attribute of instances":
        assert "instances set their own filled" in found.notes[0]


OBJECTS = {
    "missing class": ("import vllm.shapes as s\ns.Shaep.area = 1", "vllm.shapes.Shape"),
    "missing module": ("import vllm.sahpes as s\ns.area = 1", "vllm.shapes"),
    "missing name": ("from vllm.shapes import Shaep\nShaep.area = 1", "vllm.shapes.Shape"),
}


@pytest.mark.parametrize("case", OBJECTS, ids=str)
def test_missing_object(case: str) -> None:
    patch, instead = OBJECTS[case]
    found = judged(patch)
    assert {item.verdict for item in found} <= {Verdict.NO_SUCH_OBJECT, Verdict.INACTIVE}
    assert found[0].verdict is Verdict.NO_SUCH_OBJECT
    assert found[0].instead == instead


GUARDS = {
    "another version": ("if vllm_version_is('1.1.0'):\n c.{name} = 1", False),
    "this version": ("if vllm_version_is('1.2.0'):\n c.{name} = 1", True),
    "not this version": ("if not vllm_version_is('1.2.0'):\n c.{name} = 1", False),
    "else of another version": (
        "if vllm_version_is('1.1.0'):\n pass\nelse:\n c.{name} = 1",
        True,
    ),
    "kept in a flag": ("F = vllm_version_is('1.1.0')\nif F:\n c.{name} = 1", False),
    "and": ("if E and vllm_version_is('1.1.0'):\n c.{name} = 1", False),
    "or": ("if E or vllm_version_is('1.2.0'):\n c.{name} = 1", True),
    "compared": ("if Version(vllm.__version__) >= Version('1.3'):\n c.{name} = 1", False),
    "compared, true": ("if Version(vllm.__version__) < Version('1.3'):\n c.{name} = 1", True),
    "hasattr": ("if hasattr(c, '{name}x'):\n c.{name} = 1", False),
    "hasattr, true": ("if hasattr(c, 'work'):\n c.{name} = 1", True),
    "early return": (
        "def go():\n if vllm_version_is('1.2.0'):\n  return\n c.{name} = 1\ngo()",
        False,
    ),
    "failing import, caught": (
        "try:\n import vllm.gone\n c.{name} = 1\nexcept ImportError:\n pass",
        False,
    ),
    "failing import, suppressed": (
        "with contextlib.suppress(ImportError):\n import vllm.gone\n c.{name} = 1",
        False,
    ),
    "fallback import": (
        "try:\n from vllm.gone import x\nexcept ImportError:\n c.{name} = 1",
        True,
    ),
    "needless fallback": (
        "try:\n from vllm.core import work\nexcept ImportError:\n c.{name} = 1",
        False,
    ),
    "find_spec": ("if find_spec('vllm.gone') is not None:\n c.{name} = 1", False),
}
_HEAD = (
    "import os, contextlib, vllm\nimport vllm.core as c\nfrom importlib.util import find_spec\n"
    "from packaging.version import Version\nfrom vllm_ascend.utils import vllm_version_is\n"
    "E = os.environ.get('E')\n"
)


@pytest.mark.parametrize(("name", "verdict"), [("work", LIVE), ("wrok", DEAD)], ids=str)
@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_guard(guard: str, name: str, verdict: Verdict) -> None:
    text, runs = GUARDS[guard]
    found = only(_HEAD + text.replace("{name}", name))
    assert found.verdict is (verdict if runs else Verdict.INACTIVE), found
    assert bool(found.assignment.inactive) != runs


def test_an_unknown_condition_is_kept_as_text() -> None:
    found = only(_HEAD + "if E:\n c.work = 1")
    assert found.assignment.conditions == ("if E",)
    assert found.assignment.conditional


def test_a_failing_import_that_nothing_catches_is_a_finding() -> None:
    found = judged("import vllm.core as c\nimport vllm.gone\nc.work = 1")
    assert [item.verdict for item in found] == [Verdict.NO_SUCH_OBJECT, Verdict.INACTIVE]
    assert "nothing catches" in found[0].reason


def test_both_objects_of_a_fallback_are_judged() -> None:
    patch = _HEAD + "if E:\n import vllm.late as m\nelse:\n m = c\nm.work = 1"
    found = {item.assignment.base: item.verdict for item in judged(patch)}
    assert {base.dotted: verdict for base, verdict in found.items() if base} == {
        "vllm.late": DEAD,
        "vllm.core": LIVE,
    }


OTHERS = {
    "outside vllm": ("import torch\ntorch.empty = 1", Verdict.OUTSIDE),
    "entry of a table": ("from vllm.core import TABLE\nTABLE['x'] = 1", LIVE),
    "entry of an unread table": (
        "from vllm.models.registry import MODELS\nMODELS['x'] = 1",
        Verdict.NEVER_READ,
    ),
    "whole module": ("import sys, types\nsys.modules['vllm.core'] = types.ModuleType('x')", LIVE),
    "whole module that nobody imports": (
        "import sys\nsys.modules['vllm.nothing'] = object()",
        DEAD,
    ),
    "sweep": (
        "import sys\nfor m in list(sys.modules.values()):\n m.taken = 1",
        LIVE,
    ),
    "sweep for nothing": (
        "import sys\nfor n, m in list(sys.modules.items()):\n m.wrok = 1",
        DEAD,
    ),
    "mark": (
        "import vllm.core as c\nif not hasattr(c, '_mark'):\n c._mark = 1",
        ADDED,
    ),
    "unknown value": ("import vllm.core as c\nc.TABLE.get(1).x = 1", Verdict.UNKNOWN),
    "unknown name": (
        "import os, vllm.core as c\nsetattr(c, os.environ['x'], 1)",
        Verdict.UNKNOWN,
    ),
}


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_other_targets(case: str) -> None:
    patch, verdict = OTHERS[case]
    found = only(patch)
    assert found.verdict is verdict, found


KEPT = {
    "module": ("m = vllm.core\nN = 'unused'", "unused", Verdict.NEVER_READ),
    "class": ("m = vllm.shapes.Shape", "unasked", Verdict.NEVER_READ),
    "module, read elsewhere": ("m = vllm.core", "work", LIVE),
}


@pytest.mark.parametrize("case", KEPT, ids=str)
def test_keeping_the_original_is_no_read(case: str) -> None:
    head, name, verdict = KEPT[case]
    patch = f"import vllm.core, vllm.shapes\n{head}\ndef go():\n original = m.{name}\n"
    found = only(patch + f" def new(*a): return original(*a)\n m.{name} = new\ngo()")
    assert found.verdict is verdict, found


def test_own_and_run_time_objects_are_counted_and_not_judged() -> None:
    from tests.wiring.pairs import analysed

    wiring = analysed("def f(request):\n request.status = 1\nf.mark = 1").wiring
    assert (wiring.judged, wiring.own, wiring.state) == ((), 1, 1)


def test_an_overwritten_assignment_says_so() -> None:
    first, second = judged("import vllm.core as c\nc.work = 1\nc.work = 2")
    assert first.notes == ("overwritten in line 3",)
    assert second.notes == ()


def test_an_unreadable_patch_file_is_named() -> None:
    from tests.wiring.pairs import PATCH, analysed

    assert analysed("def (").wiring.unreadable == (PATCH,)
