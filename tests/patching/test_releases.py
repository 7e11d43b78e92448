"""Every known release of vllm-ascend: a port with our own texts goes in and comes out."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ascendport.checkout.tree import Checkout, Layout, recognise
from ascendport.errors import UserError
from ascendport.patching.images import images
from ascendport.patching.journal import execute
from ascendport.patching.plan import Outcome, diff, plan_apply, plan_revert
from ascendport.patching.splice import splice
from ascendport.patching.status import Status, status
from ascendport.ports.catalogue import catalogue, select
from ascendport.ports.digest import Definition, digest, index, parse
from ascendport.ports.manifest import Port
from tests.conftest import RELEASES, ReleaseCopy, ReleaseTree
from tests.patching.conftest import Spec, make_port, our_files, snapshot

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("quick_disk")]

FOLDER = "vllm_ascend/worker/v2/sample"
WIRING = "vllm_ascend/patch/worker/patch_v2/patch_triton.py"
GRAMMAR_FILE = "vllm_ascend/worker/v2/structured_outputs.py"

BINCOUNT = b'''import operator


def _counted(things):
    """Ours: how often each thing comes."""
    found = {}
    for thing in things:
        found[thing] = operator.add(found.get(thing, 0), 1)
    return found


# Ours.
def bincount(*args, **kwargs):
    return _counted(args)
'''
LOGPROB = b"""def compute_token_logprobs(*args, **kwargs):
    return [args, kwargs]
"""
WIRE = b"""from vllm_ascend.worker.v2.sample.penalties import bincount as counted
from vllm.v1.worker.gpu.sample import penalties

penalties.bincount = counted
"""
GRAMMAR = b'''def _apply_grammar_bitmask_kernel(*args):
    """Ours."""
    return args
'''


def small_copy(release: str, release_copy: ReleaseCopy, root: Path) -> Checkout:
    """The few files that the ports of this module touch."""
    old = RELEASES.index(release) < RELEASES.index("0.27.1rc1")
    release_copy(release, root, (FOLDER, WIRING, GRAMMAR_FILE) if old else (FOLDER, WIRING))
    return Checkout(root.resolve(), Layout.SOURCE, release)


def original(checkout: Checkout, file: str) -> bytes:
    raw = checkout.read(file)
    assert raw is not None
    return raw


def sampling(folder: Path, checkout: Checkout) -> Port:
    penalties, logprob = f"{FOLDER}/penalties.py", f"{FOLDER}/logprob.py"
    specs = [
        Spec(penalties, BINCOUNT, ["bincount"], ["_counted"], original(checkout, penalties)),
        Spec(logprob, LOGPROB, ["compute_token_logprobs"], [], original(checkout, logprob)),
        Spec(WIRING, WIRE, ["penalties.bincount"], [], original(checkout, WIRING)),
    ]
    return make_port(folder, "sampling", {"only": specs}, {"tests/ours/test_it.py": b"a = 1\n"})


@pytest.mark.parametrize("release", RELEASES)
def test_in_and_out(release: str, release_copy: ReleaseCopy, tmp_path: Path) -> None:
    checkout = small_copy(release, release_copy, tmp_path / "tree")
    port = sampling(tmp_path / "port", checkout)
    before = snapshot(checkout.root)
    assert status(checkout, [port])[0].status is Status.APPLICABLE
    found = images(checkout, port)
    execute(plan_apply(checkout, [port]))
    assert status(checkout, [port])[0].status is Status.APPLIED
    assert {file: checkout.read(file) for file in found.after} == found.after
    wiring = original(checkout, WIRING)
    assert digest(wiring, "penalties.bincount") == digest(WIRE, "penalties.bincount")
    assert digest(wiring, "penalties.apply_penalties") == digest(
        found.before[WIRING], "penalties.apply_penalties"
    )
    assert wiring.count(b"sample import penalties\n") <= found.before[WIRING].count(b"penalties\n")
    again = plan_apply(checkout, [port])
    assert [one.outcome for one in again.ports] == [Outcome.ALREADY_APPLIED]
    assert not again.changes
    execute(plan_revert(checkout, [port]))
    assert snapshot(checkout.root) == before


def test_git_applies_the_diff_to_a_release(release_copy: ReleaseCopy, tmp_path: Path) -> None:
    checkout = small_copy(RELEASES[-1], release_copy, tmp_path / "tree")
    port = sampling(tmp_path / "port", checkout)
    plan = plan_apply(checkout, [port])
    subprocess.run(["git", "init", "-q"], cwd=checkout.root, check=True)
    subprocess.run(["git", "apply", "-"], input=diff(plan).encode(), cwd=checkout.root, check=True)
    assert {change.file: checkout.read(change.file) for change in plan.changes} == {
        change.file: change.after for change in plan.changes
    }


@pytest.mark.parametrize("release", RELEASES)
def test_a_kernel_that_moved_away(release: str, release_copy: ReleaseCopy, tmp_path: Path) -> None:
    first = small_copy(RELEASES[0], release_copy, tmp_path / "first")
    spec = Spec(
        GRAMMAR_FILE, GRAMMAR, ["_apply_grammar_bitmask_kernel"], [],
        original(first, GRAMMAR_FILE),
    )  # fmt: skip
    port = make_port(tmp_path / "port", "grammar", {"only": [spec]})
    # The version that the tree gives itself plays no part.
    checkout = replace(small_copy(release, release_copy, tmp_path / "tree"), release="9.9")
    here = checkout.read(GRAMMAR_FILE) is not None
    expected = Status.APPLICABLE if here else Status.MISSING
    assert status(checkout, [port])[0].status is expected
    assert bool(plan_apply(checkout, [port], force=True).refused) is not here


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        pytest.param("0.24.0rc1", RELEASES[-1], ["grammar_bitmask", "tp_mismatch"], id="newer"),
        pytest.param("0.24.0rc1", RELEASES[-1], [], id="newer, every port", marks=pytest.mark.slow),
        pytest.param(RELEASES[-1], "0.26.0rc1", [], id="older, every port", marks=pytest.mark.slow),
    ],
)
def test_our_ports_go_with_a_checkout_of_another_release(
    old: str, new: str, names: list[str], release_copy: ReleaseCopy, tmp_path: Path
) -> None:
    """Targets move, appear and go between the two; the ports come into their form for the new
    one, or leave."""
    ports = [port for port in select(catalogue(), names) if {old, new} <= known_releases(port)]
    assert len(ports) > 1

    def fresh() -> Checkout:
        shutil.rmtree(tmp_path / "tree", ignore_errors=True)
        files = our_files(old, ports)
        checkout = recognise(release_copy(old, tmp_path / "tree", files))
        execute(plan_apply(checkout, ports))
        for file in files:
            checkout.path(file).unlink()
        release_copy(new, tmp_path / "tree", our_files(new, ports))
        return checkout

    pristine = snapshot(release_copy(new, tmp_path / "pristine", our_files(new, ports)))
    texts = {path: seen for path, seen in pristine.items() if seen[0] & 0o100000}

    def same(checkout: Checkout) -> bool:
        found = snapshot(checkout.root)
        return {path: seen for path, seen in found.items() if seen[0] & 0o100000} == texts

    checkout = fresh()
    plan = plan_apply(checkout, ports)
    assert not plan.refused
    execute(plan)
    assert {found.status for found in status(checkout, ports)} == {Status.APPLIED}
    execute(plan_revert(checkout))
    assert same(checkout)
    checkout = fresh()
    execute(plan_revert(checkout, known=ports))
    assert same(checkout)


def known_releases(port: Port) -> set[str]:
    return {release for variant in port.manifest.variants for release in variant.releases()}


def test_one_changed_token_is_drift(release_copy: ReleaseCopy, tmp_path: Path) -> None:
    checkout = small_copy(RELEASES[-1], release_copy, tmp_path / "tree")
    port = sampling(tmp_path / "port", checkout)
    path = checkout.path(f"{FOLDER}/penalties.py")
    raw = path.read_bytes()
    at = raw.index(b"def bincount(")
    begin = raw.index(b"torch.", at)
    path.write_bytes(raw[:begin] + b"torch.x." + raw[begin + len(b"torch.") :])
    (found,) = status(checkout, [port], lambda release, file: raw)
    assert found.status is Status.DRIFTED
    assert "torch.x." in found.difference
    before = snapshot(checkout.root)
    assert plan_apply(checkout, [port]).refused
    assert snapshot(checkout.root) == before


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_every_definition_can_be_replaced_by_itself(
    release: str, release_tree: ReleaseTree
) -> None:
    """Bytes outside a symbol are kept, and what belongs to it is found, on all real texts."""
    tried = refused = 0
    for path in sorted((release_tree(release) / "vllm_ascend").rglob("*.py"))[::4]:
        raw = path.read_bytes()
        symbols = [
            symbol
            for symbol, nodes in index(parse(raw)).items()
            if len(nodes) == 1 and isinstance(nodes[0], Definition) and "." not in symbol
        ]
        try:
            assert splice(raw, raw, symbols, [], path.name) == raw
            tried += len(symbols)
        except UserError as error:
            # Names bound in several ways at once (try an import, else a function) are refused.
            assert "its manifest neither replaces nor adds" in str(error)
            refused += 1
    assert tried > 250
    assert refused < 10
