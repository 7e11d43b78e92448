"""What the last verify of a port found, kept between runs for whoever describes the port.

Kept in the user's cache under the texts before and after, so that results of other texts are
never shown for these.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import ascendport
from ascendport.checkout.cache import Cache
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.errors import UserError

Texts = Mapping[str, bytes]


def keep(
    port: str,
    before: Texts,
    after: Texts,
    results: Sequence[CheckResult],
    cache: Cache | None = None,
) -> None:
    """Remembers each check that ran; what earlier runs found in other checks stays.

    A cache that cannot be written is no reason for verify to fail.
    """
    cache = cache or Cache.of_user()
    ran = [result for result in results if result.outcome is not Outcome.NOT_RUN]
    if not ran:
        return
    with contextlib.suppress(UserError):
        known = cache.fact(_key(port, before, after)) or {}
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        for result in ran:
            cases = [case for case in result.cases if case.outcome is not Outcome.NOT_RUN]
            known[result.check] = {
                "outcome": result.outcome.value,
                "cases": len(cases),
                "date": date,
                "tool": ascendport.__version__,
            }
        cache.learn(_key(port, before, after), known)


def figures(port: str, before: Texts, after: Texts, cache: Cache | None = None) -> str:
    """A line a check; empty: these texts were never verified here."""
    known = (cache or Cache.of_user()).fact(_key(port, before, after)) or {}
    return "\n".join(
        f"{check}: {found['outcome']}, {found['cases']} cases ({found['date']}, {found['tool']})"
        for check, found in sorted(known.items())
    )


def _key(port: str, before: Texts, after: Texts) -> str:
    digest = hashlib.sha256()
    for texts in (before, after):
        for file, text in sorted(texts.items()):
            digest.update(f"{file}\0{hashlib.sha256(text).hexdigest()}\n".encode())
        digest.update(b"--\n")
    return f"verify:{port}:{digest.hexdigest()}"
