"""Trees before and after the port tp_mismatch, and their stores loaded in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascendport.checkout.tree import recognise
from ascendport.checks.subject import Options, Subject
from ascendport.harness.workspace import Tree, write_tree
from ascendport.patching.images import images
from ascendport.ports.catalogue import catalogue
from ascendport.ports.manifest import Port
from tests.conftest import ReleaseTree

MakeSubject = Callable[..., Subject]


def port() -> Port:
    return next(port for port in catalogue() if port.name == "tp_mismatch")


@pytest.fixture(scope="session")
def made(release_tree: ReleaseTree) -> Callable[[str], Subject]:
    """The port on a release; images are made once."""
    kept: dict[str, Subject] = {}

    def make(release: str) -> Subject:
        if release not in kept:
            checkout = recognise(release_tree(release))
            found = images(checkout, port())
            kept[release] = Subject(
                checkout, port(), found.variant, found.before, found.after, Options()
            )
        return kept[release]

    return make


@contextmanager
def overlay(subject: Subject, files: Mapping[str, bytes], folder: Path) -> Iterator[Tree]:
    """The checkout with some files replaced."""
    folder.mkdir(parents=True)
    write_tree(folder, files)
    yield Tree(folder, subject.checkout.root)
