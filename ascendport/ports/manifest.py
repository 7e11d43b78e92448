"""port.toml as data: what a port replaces, in which file, and which originals it knows."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ascendport.errors import UserError

MANIFEST = "port.toml"


def _inside(path: str) -> str:
    """A relative POSIX path that stays inside the tree it is joined to."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\\" in path or "\0" in path:
        raise ValueError("must be a relative path without '..'")
    return str(pure)


RelativePath = Annotated[str, AfterValidator(_inside)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Dotted = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
Release = Annotated[str, Field(pattern=r"^[0-9A-Za-z.+-]+$")]


class Kind(StrEnum):
    """What a port changes."""

    KERNEL = "kernel"
    STORE = "store"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(_Model):
    """One file of the checkout and the symbols in it that a port replaces or adds.

    A symbol is the name that a module-level statement binds (``apply_penalties``), a method as
    ``Class.method``, or the target of a module-level assignment (``sampler.apply_penalties``).
    """

    file: RelativePath
    """Path in the checkout, POSIX separators."""
    source: RelativePath
    """Path in the port's folder of the text that holds the new symbols."""
    shared: tuple[RelativePath, ...] = ()
    """Texts of the port's folder that several variants use; they stand in front of ``source``.
    `Port.text` gives the whole."""
    replace: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    """Symbols of ``source`` that the file does not have; they go in front of the first
    changed symbol, in the order of ``source``."""
    decorate: dict[str, Dotted] = {}
    """Function → decorator that is put on it, above those that it has. Its text stays the
    file's own: for a small change to a long function."""
    digests: dict[str, dict[Digest, tuple[Release, ...]]] = {}
    """For each replaced or decorated symbol: digest of a known original → releases it was seen
    in."""
    superseded: dict[str, dict[Digest, tuple[Release, ...]]] = {}
    """Digests of texts with which upstream has taken the change itself, or a better one."""

    @property
    def changes(self) -> tuple[str, ...]:
        """Symbols that the file must have: those replaced, then those decorated."""
        return (*self.replace, *self.decorate)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every symbol that it is about: those changed, then those added."""
        return (*self.changes, *self.add)

    @model_validator(mode="after")
    def _complete(self) -> Target:
        if not self.changes and not self.add:
            raise ValueError(f"{self.file}: declares neither 'replace', 'decorate' nor 'add'")
        missing = [symbol for symbol in self.changes if symbol not in self.digests]
        if missing:
            raise ValueError(f"{self.file}: no digests for {', '.join(missing)}")
        stray = [symbol for symbol in self.digests if symbol not in self.changes]
        stray += [symbol for symbol in self.superseded if symbol not in self.changes]
        if stray:
            raise ValueError(
                f"{self.file}: digests for {', '.join(stray)}, which is neither replaced "
                "nor decorated"
            )
        return self


class NewFile(_Model):
    """A file that the port brings into the checkout (a test, a module)."""

    file: RelativePath
    source: RelativePath


class Baseline(_Model):
    """vllm-core's own code for the same job, in the vllm that a release pins."""

    file: RelativePath
    """Path inside the vllm wheel, e.g. ``vllm/v1/worker/gpu/sample/penalties.py``."""
    symbol: str


class Variant(_Model):
    """One form of the port: all of its targets are installed together, or none."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    targets: tuple[Target, ...] = ()
    new_files: tuple[NewFile, ...] = ()
    entry: str = ""
    """Kernel ports: the name (a symbol of the first target) that vllm calls."""
    baseline: Baseline | None = None
    """In place of the manifest's, where vllm-core's own code has another place or name."""
    needs: dict[RelativePath, Annotated[tuple[str, ...], Field(min_length=1)]] = {}
    """File → symbols that it must have and keeps: they tell variants apart whose replaced symbols
    look alike, where the difference lies in the code around them."""
    seen_in: tuple[Release, ...] = ()
    """Variants of new files alone, which have no digests: releases that they were tried on."""

    @model_validator(mode="after")
    def _does_something(self) -> Variant:
        if not self.targets and not self.new_files:
            raise ValueError("declares neither 'targets' nor 'new_files'")
        if bool(self.seen_in) == bool(self.targets):
            raise ValueError("'seen_in' is for variants of new files alone, which need it")
        return self

    def releases(self) -> tuple[str, ...]:
        """Releases in which every changed symbol was seen with a known digest, in order."""
        if not self.targets:
            return self.seen_in
        seen = [
            {release for releases in digests.values() for release in releases}
            for target in self.targets
            for digests in target.digests.values()
        ]
        common = set.intersection(*seen) if seen else set()
        first = next(iter(self.targets[0].digests.values()), {})
        ordered = [release for releases in first.values() for release in releases]
        return tuple(release for release in ordered if release in common)


class Manifest(_Model):
    """A port's manifest, ``port.toml``."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    kind: Kind
    summary: str = Field(min_length=1, max_length=100)
    task: str = Field(pattern=r"^https://")
    variants: tuple[Variant, ...] = Field(min_length=1)
    baseline: Baseline | None = None
    checks: tuple[str, ...] = ()
    """Names of the checks that prove it; empty: those for every port of its kind."""
    tests: str = ""
    """The port whose new test files show what this one mends; empty: its own, if it has any."""
    cases: RelativePath = "cases.py"
    reference: RelativePath = "reference.py"

    @model_validator(mode="after")
    def _distinct(self) -> Manifest:
        names = [variant.name for variant in self.variants]
        if len(set(names)) != len(names):
            raise ValueError("two variants share a name")
        return self


class Port(BaseModel):
    """A manifest and the folder it was read from."""

    model_config = ConfigDict(frozen=True)

    manifest: Manifest
    folder: Path

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def kind(self) -> Kind:
        return self.manifest.kind

    def text(self, target: Target) -> bytes:
        """What a target's symbols are taken from: its shared texts, then its source."""
        return b"\n\n".join(self.read(path) for path in (*target.shared, target.source))

    def read(self, path: str) -> bytes:
        """A file of the port's folder.

        Raises:
            UserError: the manifest names a file that the folder does not hold.
        """
        try:
            return (self.folder / path).read_bytes()
        except OSError as error:
            raise UserError(
                f"port {self.name} names a file that cannot be read ({error.strerror})",
                where=self.folder / path,
                next=f"mend {self.folder / MANIFEST}",
            ) from error


def load(folder: Path) -> Port:
    """The port in ``folder``.

    Raises:
        UserError: naming file, key and reason where the manifest is not valid.
    """
    path = folder / MANIFEST
    try:
        data = tomllib.loads(path.read_text("utf-8"))
        return Port(manifest=Manifest.model_validate(data), folder=folder)
    except OSError as error:
        raise UserError(f"cannot read the manifest ({error.strerror})", where=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"not valid TOML ({error})", where=path) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "(whole)"
        raise UserError(
            f"bad manifest, key {key}: {first['msg']}", where=path, next="mend that key"
        ) from error
