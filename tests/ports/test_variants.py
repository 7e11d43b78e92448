"""Each port takes, on each release, the variant that lists it."""

from __future__ import annotations

import pytest

from ascendport.patching.recognise import Status, match
from ascendport.ports.catalogue import catalogue
from tests.conftest import RELEASES, ReleaseTree


@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
def test_the_variant_that_fits_lists_the_release(release: str, release_tree: ReleaseTree) -> None:
    root = release_tree(release)

    def read(file: str) -> bytes | None:
        path = root / file
        return path.read_bytes() if path.is_file() else None

    for port in catalogue():
        found = match(port, read)
        assert found.status is Status.APPLICABLE, f"{port.name}: {found.reason}"
        assert found.variant is not None
        assert release in found.variant.releases(), f"{port.name}: {found.variant.name}"
