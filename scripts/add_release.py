"""Looks at one release of vllm-ascend with every port, and makes it known to them.

    python scripts/add_release.py RELEASE [--tree DIR] [--only PORT]… [--write] [--variant NAME]

Prints, for each port and variant, the digests that the release has and whether the port knows
them. ``--write`` adds the release to those digests in each port.toml, comments and order kept.
``--variant NAME`` takes digests that are not known yet as originals of that variant: look at the
difference first, the port's text replaces whatever they stand for.

Exit status: 0 every port has a variant for the release, 1 some have none, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from packaging.version import InvalidVersion, Version

from ascendport.checkout.tree import Checkout, recognise
from ascendport.errors import ExitCode, UserError
from ascendport.ports.catalogue import catalogue, select
from ascendport.ports.digest import digest_of, index, normal, parse
from ascendport.ports.manifest import MANIFEST, Port, Target, Variant, load


@dataclass(frozen=True)
class Finding:
    """One symbol that a variant replaces or needs, in the release."""

    port: str
    variant: str
    file: str
    symbol: str
    digest: str
    """16 hexadecimal digits; empty where the release has no such symbol."""
    known: bool


def findings(port: Port, checkout: Checkout) -> Iterator[Finding]:
    """What the release has of everything that the port replaces or needs.

    Raises:
        UserError: a file of the release is not Python.
    """
    for variant in port.manifest.variants:
        for file, needed in variant.needs.items():
            raw = checkout.read(file)
            symbols = {} if raw is None else index(parse(raw, file))
            for symbol in needed:
                nodes = symbols.get(normal(symbol), [])
                digest = digest_of(nodes[0]) if nodes else ""
                yield Finding(port.name, variant.name, file, symbol, digest, bool(nodes))
        for target in variant.targets:
            raw = checkout.read(target.file)
            symbols = {} if raw is None else index(parse(raw, target.file))
            for symbol in target.changes:
                nodes = symbols.get(normal(symbol), [])
                digest = digest_of(nodes[0]) if len(nodes) == 1 else ""
                known = digest in target.digests[symbol]
                yield Finding(port.name, variant.name, target.file, symbol, digest, known)


def fitting(port: Port, found: Sequence[Finding], accept: str | None) -> Variant | None:
    """The first variant whose symbols are all known, or ``accept`` where it has all of them."""
    for variant in port.manifest.variants:
        own = [one for one in found if one.variant == variant.name]
        if own and all(one.known for one in own):
            return variant
    for variant in port.manifest.variants:
        own = [one for one in found if one.variant == variant.name]
        if variant.name == accept and own and all(one.digest for one in own):
            return variant
    return None


def written(port: Port, variant: Variant, found: Sequence[Finding], release: str) -> str:
    """port.toml with ``release`` among the variant's digests; nothing else is changed."""
    document = tomlkit.parse((port.folder / MANIFEST).read_text("utf-8"))
    at = port.manifest.variants.index(variant)
    variants: Any = document["variants"]
    if not variant.targets:
        if release not in variant.seen_in:
            variants[at]["seen_in"] = _with(variants[at]["seen_in"], release)
        return tomlkit.dumps(document)
    tables = variants[at]["targets"]
    for target, table in zip(variant.targets, tables, strict=True):
        for symbol in target.changes:
            digest = _digest(found, variant, target, symbol)
            known = table["digests"][symbol]
            releases = known.get(digest)
            if releases is None:
                known[digest] = [release]
            elif release not in releases:
                known[digest] = _with(releases, release)
    return tomlkit.dumps(document)


def _digest(found: Sequence[Finding], variant: Variant, target: Target, symbol: str) -> str:
    wanted = (variant.name, target.file, symbol)
    return next(one.digest for one in found if (one.variant, one.file, one.symbol) == wanted)


def _with(releases: Any, release: str) -> Any:
    """The array with the release in its place by version; one that is no version goes last."""
    try:
        later = [at for at, known in enumerate(releases) if Version(known) > Version(release)]
    except InvalidVersion:
        later = []
    at = later[0] if later else len(releases)
    if "\n" in releases.as_string():
        releases.insert(at, release)  # may hold comments
        return releases
    # Inserted in place, the first of a one-line array would lose its blank.
    return tomlkit.item([*releases[:at], release, *releases[at:]])


def table(found: Sequence[Finding]) -> str:
    """The findings as aligned text."""
    head = ("port", "variant", "file", "symbol", "digest", "known")
    rows = [head]
    for one in found:
        known = "yes" if one.known else "no" if one.digest else "-"
        rows.append((one.port, one.variant, one.file, one.symbol, one.digest or "absent", known))
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("release")
    parser.add_argument("--tree", type=Path, help="a checkout of the release; default: fetch it")
    parser.add_argument("--only", action="append", default=[], metavar="PORT")
    parser.add_argument("--ports", action="append", default=[], type=Path, metavar="DIR")
    parser.add_argument("--write", action="store_true", help="add the release to port.toml")
    parser.add_argument("--variant", help="take unknown digests as originals of this variant")
    args = parser.parse_args(argv)
    try:
        ports = select(catalogue(args.ports), args.only)
        if args.tree is not None:
            return _report(ports, recognise(args.tree), args)
        with tempfile.TemporaryDirectory() as folder:
            from ascendport.checkout.fetch import fetch

            checkout = fetch(args.release, Path(folder) / "tree", lambda what, done, total: None)
            return _report(ports, checkout, args)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code


def _report(ports: Sequence[Port], checkout: Checkout, args: argparse.Namespace) -> int:
    everything: list[Finding] = []
    lines: list[str] = []
    status = ExitCode.OK
    for port in ports:
        found = list(findings(port, checkout))
        everything += found
        variant = fitting(port, found, args.variant)
        if variant is None:
            status = ExitCode.FAILED
            lines.append(f"{port.name}: no variant for {args.release}")
            continue
        lines.append(f"{port.name}: variant {variant.name}")
        if args.write:
            path = port.folder / MANIFEST
            text = written(port, variant, found, args.release)
            if text != path.read_text("utf-8"):
                path.write_text(text, "utf-8")
                load(port.folder)
                lines.append(f"{port.name}: wrote {path}")
    print(table(everything))
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
