"""Each port takes, on each release, the variant that lists it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ascendport.patching.recognise import Status, match
from ascendport.ports.catalogue import catalogue
from tests.conftest import RELEASES, ReleaseTree


def _text(root: Path, file: str) -> bytes | None:
    path = root / file
    return path.read_bytes() if path.is_file() else None


@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
def test_the_variant_that_fits_lists_the_release(release: str, release_tree: ReleaseTree) -> None:
    read = partial(_text, release_tree(release))
    for port in catalogue():
        found = match(port, read)
        assert found.status is Status.APPLICABLE, f"{port.name}: {found.reason}"
        assert found.variant is not None
        assert release in found.variant.releases(), f"{port.name}: {found.variant.name}"


@pytest.mark.network
def test_tests_are_not_brought_to_a_tree_without_tests(release_tree: ReleaseTree) -> None:
    root = release_tree("0.30.0rc2")

    def installed(file: str) -> bytes | None:
        return _text(root, file) if file.startswith("vllm_ascend/") else None

    found = {port.name: match(port, installed).status for port in catalogue()}
    assert found.pop("failure_tests") is Status.MISSING
    assert set(found.values()) == {Status.APPLICABLE}
