"""Builds port folders, the victim checkout and the subject of a check, under a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ascendport.checkout.tree import Checkout, Layout
from ascendport.checks.subject import Options, Subject
from ascendport.harness.workspace import write_tree
from ascendport.ports.manifest import Port, load
from tests.evil import texts

MANIFEST = """\
name = "scale"
kind = "kernel"
summary = "Scales rows"
task = "https://example.org/scale"
{baseline}
[[variants]]
name = "only"
entry = "{entry}"
[[variants.targets]]
file = "{file}"
source = "kernel.py"
replace = ["_scale_kernel", "scale"]
[variants.targets.digests]
_scale_kernel = {{ "0000000000000000" = ["0.0.0"] }}
scale = {{ "0000000000000000" = ["0.0.0"] }}
"""

BASELINE = '[baseline]\nfile = "vllm/v1/scaling.py"\nsymbol = "scale"\n'


def port(
    folder: Path,
    kernel: str,
    *,
    cases: str = texts.CASES,
    reference: str = texts.REFERENCE,
    baseline: str = "",
) -> Port:
    """The port folder of one replacement text."""
    manifest = MANIFEST.format(entry=texts.ENTRY, file=texts.FILE, baseline=baseline)
    files = {
        "port.toml": manifest,
        "kernel.py": kernel,
        "cases.py": cases,
        "reference.py": reference,
    }
    write_tree(folder, {name: text.encode() for name, text in files.items()})
    return load(folder)


def checkout(folder: Path, files: Mapping[str, str] = texts.TREE) -> Checkout:
    """The victim tree."""
    write_tree(folder, {name: text.encode() for name, text in files.items()})
    return Checkout(root=folder, layout=Layout.SOURCE)


def subject(
    folder: Path,
    kernel: str,
    *,
    options: Options | None = None,
    cases: str = texts.CASES,
    reference: str = texts.REFERENCE,
    baseline: str = "",
    before: str = texts.VICTIM,
) -> Subject:
    """The victim tree with ``kernel`` as the whole text of its kernel file after."""
    built = port(folder / "port", kernel, cases=cases, reference=reference, baseline=baseline)
    return Subject(
        checkout=checkout(folder / "tree"),
        port=built,
        variant=built.manifest.variants[0],
        before={texts.FILE: before.encode()},
        after={texts.FILE: kernel.encode()},
        options=options or Options(timeout_s=60.0, large=True),
    )
