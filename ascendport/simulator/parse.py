"""The text of a finished program to `ir.Program`.

The text is what bishengir-compile hands to its assembler: pretty-printed MLIR, one operation a
line, regions in braces, a location at the end of each line. Reading it as it stands needs no
MLIR library and takes milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ascendport.simulator import affine, syntax
from ascendport.simulator.affine import AffineMap, split
from ascendport.simulator.errors import MalformedError, UnsupportedError
from ascendport.simulator.ir import (
    GRID_PARAMETERS,
    Block,
    Location,
    Op,
    Parameter,
    Program,
    Type,
)

_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_MAP = re.compile(r"^(#map\d*) = (affine_map<.*>)$", re.MULTILINE)
_ALIAS = re.compile(r"#loc\d*")
_INLINED = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)$")
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
_ENTRY = re.compile(r"^( *)func\.func @([\w$.]+)\((?=.*\bhacc\.entry\b)(?=.*func_core_type<AIV>)")
_CUBE = re.compile(
    r"^ *func\.func @[\w$.]+\(.*func_core_type<AIC>(?!.*always_inline)", re.MULTILINE
)
_UB_SIZE = re.compile(r'"UB_SIZE", (\d+) :')
_CORES = re.compile(r'"VECTOR_CORE_COUNT", (\d+) :')
_PARAMETER = re.compile(r"^(%\w+): (.*)$", re.DOTALL)
_KIND = re.compile(r"hacc\.arg_type = #hacc\.arg_type<(\w+)>")
_RESULTS = re.compile(r"^((?:%[\w-]+(?::\d+)?(?:, )?)+) = (.*)$", re.DOTALL)
_NAME = re.compile(r"^([a-z_]\w*(?:\.[a-z_]\w*)*)(.*)$", re.DOTALL)
_FOR = re.compile(
    r"^ (%[\w-]+) = (%[\w#-]+) to (%[\w#-]+) step (%[\w#-]+)"
    r"(?: iter_args\((.*?)\) -> \((.*)\))? *(?: : (\w+))? *$"
)
_WHILE = re.compile(r"^ ?\((.*?)\) : \((.*)\) -> (.*)$")
_IF = re.compile(r"^ (%[\w#-]+)(?: -> \((.*)\))? *$")
_ENTER = re.compile(r"^\^(bb\d+)(?:\((.*)\))?:(?: *//.*)?$")
_STRING = re.compile(r'^ *llvm\.mlir\.global [\w ]*constant @([\w$.]+)\("(.*?)"\)', re.MULTILINE)


def parse(text: str) -> Program:
    """Reads a finished program.

    Args:
        text: the module as bishengir-compile prints it, with or without locations.

    Raises:
        MalformedError: no entry function for a vector core is in it.
        UnsupportedError: it holds an operation or a form that has no reader, or code for the
            cube core.
    """
    try:
        return _Parser(text).program()
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise MalformedError("the text is no program in this form") from error


def parse_map_table(text: str) -> dict[str, AffineMap]:
    """Affine maps of a module by alias."""
    return {alias: affine.parse_map(body) for alias, body in _MAP.findall(text)}


class _Locations:
    def __init__(self, text: str) -> None:
        self.raw = dict(_LOCATION.findall(text))
        self.known: dict[str, Location | None] = {}

    def of(self, text: str) -> Location | None:
        """The first place that ``text`` (what stands in ``loc(…)``) leads to."""
        if text not in self.known:
            place: Location | None = None
            for file, line, column in reversed(self._calls(text)):
                place = Location(file, int(line), int(column), place)
            self.known[text] = place if place and place.line else None
        return self.known[text]

    def _calls(self, text: str, depth: int = 0) -> list[tuple[str, ...]]:
        """The place itself, then the places of the calls that it was inlined through."""
        text = self.raw.get(text, text)
        if (inlined := _INLINED.match(text)) and depth < 16:
            callee, caller = (self._calls(alias, depth + 1) for alias in inlined.groups())
            return callee + caller
        match = _PLACE.search(self._expand(text))
        return [match.groups()] if match else []

    def _expand(self, text: str, depth: int = 0) -> str:
        if depth > 16:
            return text
        return _ALIAS.sub(lambda use: self._expand(self.raw.get(use[0], ""), depth + 1), text)


@dataclass
class _Frame:
    """A region that is being read."""

    opener: str
    """The text that opened it; empty for the function's body."""
    results: tuple[str, ...]
    blocks: list[tuple[list[Op], tuple[tuple[str, Type], ...]]] = field(
        default_factory=lambda: [([], ())]
    )


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.locations = _Locations(text)
        self.maps = parse_map_table(text)
        self.counts: dict[str, int] = {}

    def program(self) -> Program:
        lines = self.text.split("\n")
        starts = [number for number, line in enumerate(lines) if _ENTRY.match(line)]
        if _CUBE.search(self.text):
            raise UnsupportedError("code for the cube core (matrix products)")
        if len(starts) != 1:
            raise MalformedError(
                "no entry function for a vector core" if not starts else "several entry functions"
            )
        header = lines[starts[0]]
        match = _ENTRY.match(header)
        assert match is not None
        end = match[1] + "}"
        body: list[str] = []
        closing = ""
        for line in lines[starts[0] + 1 :]:
            if line.startswith(end):
                closing = line
                break
            body.append(line)
        ub_bits, cores = _UB_SIZE.search(self.text), _CORES.search(self.text)
        if ub_bits is None or cores is None:
            raise MalformedError("the module does not say UB_SIZE and VECTOR_CORE_COUNT")
        parameters = tuple(self._parameters(header))
        if sum(not parameter.kind for parameter in parameters) < GRID_PARAMETERS:
            raise MalformedError("the entry function lacks the three grid parameters", match[2])
        first, blocks = self._body(body)
        return Program(
            match[2],
            parameters,
            first,
            int(ub_bits[1]) // 8,
            int(cores[1]),
            self._strip(closing)[1],
            blocks,
            dict(_STRING.findall(self.text)),
        )

    def _parameters(self, header: str) -> Iterator[Parameter]:
        start = header.index("(") + 1
        depth, at = 1, start
        quoted = False
        while depth:
            character = header[at]
            if character == '"':
                quoted = not quoted
            elif not quoted:
                depth += (character == "(") - (character == ")")
            at += 1
        for part in split(header[start : at - 1]):
            match = _PARAMETER.match(self._strip(part)[0])
            if not match:
                raise MalformedError("a parameter has no name", part)
            kind = _KIND.search(match[2])
            declared = re.sub(r" \{.*\}$", "", match[2])
            yield Parameter(match[1], self._type(declared), kind[1] if kind else "")

    def _type(self, text: str) -> Type:
        try:
            return syntax.type_of(text)
        except syntax.SyntaxUnknownError as error:
            raise UnsupportedError(str(error)) from error

    def _strip(self, line: str) -> tuple[str, Location | None]:
        """The line without its location, and the location."""
        at = line.rfind(" loc(")
        if at < 0 or not line.endswith(")"):
            return line, None
        return line[:at], self.locations.of(line[at + 5 : -1])

    def _body(self, lines: list[str]) -> tuple[Block, tuple[tuple[str, Block], ...]]:
        """The function's first block, and the others by label."""
        frames = [_Frame("", ())]
        labels: list[str] = []
        for raw in lines:
            line, location = self._strip(raw.strip())
            if not line or line.startswith("//"):
                continue
            frame = frames[-1]
            if line.startswith("}"):
                rest = line[1:].strip()
                if rest in ("else {", "do {"):
                    frame.blocks.append(([], ()))
                    continue
                frames.pop()
                if not frames:
                    raise MalformedError("a bracket closes nothing", raw.strip())
                frames[-1].blocks[-1][0].append(self._structured(frame, location))
            elif entered := _ENTER.match(line):
                arguments = tuple(self._arguments(entered[2] or ""))
                if len(frames) == 1:
                    labels.append(entered[1])
                    frame.blocks.append(([], arguments))
                elif frame.blocks[-1][0] or len(frame.blocks) < 2:
                    raise UnsupportedError("branches between blocks of a loop", location)
                else:
                    frame.blocks[-1] = (frame.blocks[-1][0], arguments)
            elif line.endswith("{"):
                results, rest = self._results(line[:-1].rstrip())
                frames.append(_Frame(rest, results))
            else:
                frame.blocks[-1][0].append(self._operation(line, location))
        if len(frames) != 1:
            raise MalformedError("the entry function ends inside a region")
        first, *others = (Block(tuple(found), named) for found, named in frames[0].blocks)
        return first, tuple(zip(labels, others, strict=True))

    def _arguments(self, text: str) -> Iterator[tuple[str, Type]]:
        for part in split(text):
            name, _, declared = self._strip(part)[0].partition(": ")
            yield name, self._type(declared)

    def _results(self, line: str) -> tuple[tuple[str, ...], str]:
        match = _RESULTS.match(line)
        if not match:
            return (), line
        names: list[str] = []
        for part in match[1].split(","):
            name, _, count = part.strip().partition(":")
            names += [f"{name}#{number}" for number in range(int(count))] if count else [name]
        return tuple(names), match[2]

    def _operation(self, line: str, location: Location | None) -> Op:
        results, rest = self._results(line)
        match = _NAME.match(rest)
        name = match[1] if match else rest.split(" ", 1)[0]
        reader = syntax.READERS.get(name)
        if match is None or reader is None:
            raise UnsupportedError(name, location)
        try:
            parts = reader(match[2])
        except (syntax.SyntaxUnknownError, ValueError) as error:
            what = str(error) if isinstance(error, syntax.SyntaxUnknownError) else f"{name}: {rest}"
            raise UnsupportedError(what, location) from error
        if "map" in parts.attributes:
            alias = str(parts.attributes["map"])
            known = self.maps.get(alias)
            parts.attributes["map"] = known if known else affine.parse_map(alias)
        name = name.removeprefix("func.")
        return Op(
            name,
            results,
            tuple(parts.operands),
            tuple(parts.types),
            parts.attributes,
            (),
            location,
        )

    def _structured(self, frame: _Frame, location: Location | None) -> Op:
        match = _NAME.match(frame.opener)
        name = match[1] if match else frame.opener
        text = match[2] if match else ""
        try:
            if name == "scf.for":
                return self._for(frame, text, location)
            if name == "scf.if":
                return self._if(frame, text, location)
            if name == "scf.while":
                return self._while(frame, text, location)
        except syntax.SyntaxUnknownError as error:
            raise UnsupportedError(str(error), location) from error
        raise UnsupportedError(name, location)

    def _for(self, frame: _Frame, text: str, location: Location | None) -> Op:
        match = _FOR.match(re.sub(r" \{[^{}]*\}$", "", text))
        if not match or len(frame.blocks) != 1:
            raise UnsupportedError("scf.for of this form", location)
        pairs = [part.split(" = ") for part in split(match[5])] if match[5] else []
        types = syntax.types_of(match[6]) if match[6] else []
        counter = syntax.type_of(match[7] or "index")
        arguments = ((match[1], counter), *zip((pair[0] for pair in pairs), types, strict=True))
        operands = (match[2], match[3], match[4], *(pair[1] for pair in pairs))
        block = Block(tuple(frame.blocks[0][0]), tuple(arguments))
        return Op("scf.for", frame.results, operands, (counter, *types), {}, (block,), location)

    def _if(self, frame: _Frame, text: str, location: Location | None) -> Op:
        match = _IF.match(re.sub(r" \{[^{}]*\}$", "", text))
        if not match:
            raise UnsupportedError("scf.if of this form", location)
        types = syntax.types_of(match[2]) if match[2] else []
        blocks = tuple(Block(tuple(operations)) for operations, _ in frame.blocks)
        return Op("scf.if", frame.results, (match[1],), tuple(types), {}, blocks, location)

    def _while(self, frame: _Frame, text: str, location: Location | None) -> Op:
        match = _WHILE.match(text)
        if not match or len(frame.blocks) != 2:
            raise UnsupportedError("scf.while of this form", location)
        pairs = [part.split(" = ") for part in split(match[1])]
        arguments = tuple(zip((pair[0] for pair in pairs), syntax.types_of(match[2]), strict=True))
        before = Block(tuple(frame.blocks[0][0]), arguments)
        after = Block(tuple(frame.blocks[1][0]), frame.blocks[1][1])
        return Op(
            "scf.while",
            frame.results,
            tuple(pair[1] for pair in pairs),
            tuple(syntax.types_of(match[3])),
            {},
            (before, after),
            location,
        )
