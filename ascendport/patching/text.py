"""A Python file's bytes as text and back, without losing a byte; and differences for people."""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections import Counter
from dataclasses import dataclass

from ascendport.errors import UserError

_BOM = b"\xef\xbb\xbf"
# The line ends of Python's tokenizer; str.splitlines knows more (form feed, U+2028).
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Text:
    """A file's text, with what is needed to write it back."""

    text: str
    encoding: str
    bom: bool

    @property
    def newline(self) -> str:
        """The line end that most lines have; of two as frequent, the first; none: ``\\n``."""
        found = Counter(_LINE_END.findall(self.text)).most_common(1)
        return found[0][0] if found else "\n"

    @property
    def lines(self) -> list[str]:
        """The lines with their line ends."""
        return lines(self.text)

    def encode(self, text: str, where: object) -> bytes:
        """``text`` as this file would hold it.

        Raises:
            UserError: the file's encoding has no such character.
        """
        try:
            return (_BOM if self.bom else b"") + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = error.object[error.start]
            raise UserError(
                f"the file's encoding {self.encoding} cannot hold {bad!a}",
                where=where,
                next="mend the port's text, or give the file a UTF-8 coding line",
            ) from error


def decode(raw: bytes, where: object) -> Text:
    """The text of a Python file: byte-order mark and coding cookie honoured.

    Raises:
        UserError: the encoding is unknown, or the bytes are not in it.
    """
    bom = raw.startswith(_BOM)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        encoding = "utf-8" if bom else encoding
        body = raw[len(_BOM) :] if bom else raw
        text = body.decode(encoding)
        whole = text.encode(encoding) == body
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise UserError(f"cannot decode the file ({error})", where=where) from error
    if not whole:
        raise UserError(f"encoding {encoding} does not survive a rewrite", where=where)
    return Text(text, encoding, bom)


def lines(text: str) -> list[str]:
    """The lines of ``text`` as Python's tokenizer cuts them, line ends kept."""
    return _LINE.findall(text)


def with_newline(text: str, newline: str) -> str:
    """``text`` with every line end replaced."""
    return _LINE_END.sub(lambda _: newline, text)


def readable(raw: bytes) -> str:
    """Some text for any bytes, for showing: the file's own encoding, else Latin-1."""
    try:
        return decode(raw, "").text
    except UserError:
        return raw.decode("latin-1")


def unified(before: bytes | None, after: bytes | None, old: str, new: str) -> str:
    """A unified diff, ``""`` where nothing differs. None: there is no such file.

    Only ``\\n`` ends a line, so that a file with ``\\r\\n`` gives a diff that patch(1) and git
    apply; a last line without ``\\n`` is marked as they expect.
    """
    if before == after:
        return ""
    a, b = (re.findall(r"[^\n]*\n|[^\n]+", readable(side or b"")) for side in (before, after))
    names = (old if before is not None else "/dev/null", new if after is not None else "/dev/null")
    out = []
    for line in difflib.unified_diff(a, b, *names):
        out.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(out)
