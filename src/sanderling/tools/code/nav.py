"""`code_nav`: finds a symbol's locations through the editor's language servers."""

import re
from typing import NamedTuple

import msgspec

from sanderling.errors import ToolError
from sanderling.text import counted
from sanderling.tools.base import Context
from sanderling.tools.code.inputs import NavInput
from sanderling.tools.code.reach import Reach, servers_of
from sanderling.tools.code.rows import LocationListing, Rows, names_in, outlined, within_symbol
from sanderling.tools.code.servers import CodeFile, LanguageServerAnswer, LanguageServers, Locations
from sanderling.tools.disclosure import Disclosure
from sanderling.tools.grep import Matches
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import escaped
from sanderling.tools.ripgrep import Filter
from sanderling.tools.texts import fitting as fitting_lines

MAX_CANDIDATES = 8
MAX_BODY_LINES, MAX_BODY_BYTES = 60, 6 * 1024
MAX_SEARCHED, MAX_LINES_OF_FILE = 200, 20
SHOWS_OUTSIDE = frozenset({"definition", "type", "implementations", "hover"})
NOUNS = {
    "definition": "definition",
    "references": "reference",
    "implementations": "implementation",
    "type": "type definition",
    "callers": "call",
    "callees": "call",
    "symbols": "symbol",
}
_DECLARES = re.compile(
    r"\b(class|def|fn|func|function|interface|let|const|var|struct|enum|type|trait|module)\b"
)
NOT_FOUND = "The language servers know no symbol {symbol}. Check the spelling, or use grep for text that is not a symbol."
NOTHING = "{server} knows no {what} {symbol}. If in doubt, use grep."


class _Spot(NamedTuple):
    """A file that contains a symbol, and its line if known."""

    file: CodeFile
    line: int | None


class _Several(Exception):  # noqa: N818 - it is not an error
    """The symbol is ambiguous; `str` is the result for the model."""


class Navigation:
    """One call of the tool."""

    def __init__(self, args: NavInput, context: Context) -> None:
        self._args = args
        self._context = context
        self._workspace = context.workspace
        self._servers: LanguageServers = servers_of(context)
        self._reach = Reach(context)
        self._rows = Rows(context, self._reach, shows_outside=args.op in SHOWS_OUTSIDE)
        within = self._workspace.path(args.within) if args.within else ""
        self._within = (within, self._workspace.disk.real_path(within)) if within else ()

    async def run(self) -> Outcome:
        args = self._args
        if args.op == "outline":
            return await self._outline()
        if not args.symbol.strip():
            raise ToolError(f"{args.op} needs a symbol.")
        if args.op == "symbols":
            answer = await self._servers.symbols(self._workspace.project, args.symbol, is_like=True)
            return await self._result(answer)
        try:
            spot = await self._spot()
            answer = await self._ask(args.op, spot)
            await self._require_clear(spot.file, answer)
        except _Several as several:
            return Outcome(content=str(several), summary="ambiguous")
        if args.op == "hover" and answer.hover:
            answer = await self._disclosed(spot.file, answer)
        return await self._result(answer)

    async def _disclosed(
        self, file: CodeFile, answer: LanguageServerAnswer
    ) -> LanguageServerAnswer:
        """Return the answer with undisclosed text removed from the hover."""
        disclosure = Disclosure(self._workspace, self._context.may_read)
        defining = (places.path for places in answer.files)
        for path in dict.fromkeys((file.path, *defining, *answer.sources)):
            if await self._reach.file(path):
                await disclosure.learn(path)
        return msgspec.structs.replace(answer, hover=disclosure.hover(answer.hover))

    async def _outline(self) -> Outcome:
        if not self._args.path:
            raise ToolError("outline needs a path.")
        file = await self._reach.named(self._workspace.path(self._args.path))
        answer = await self._servers.navigate(file, "outline", "", None)
        if not answer.symbols:
            return Outcome(content=f"{answer.server} knows no symbols there.", summary="no symbols")
        symbols = answer.symbols
        if name := self._args.symbol.strip():
            symbols = within_symbol(symbols, names_in(name))
            if not symbols:
                raise ToolError(
                    f"{answer.server} knows no symbol {escaped(name)} in {self._rows.shown(file.path)}: omit `symbol` to see all."
                )
        lines = outlined(symbols, least_depth=1 if name else 0)
        count = f"{len(symbols):,} symbols"
        return Outcome(
            content="\n".join([f"{self._rows.shown(file.path)}: {count}", *lines]), summary=count
        )

    # --- finding the symbol ------------------------------------------------------------------------------------------------

    async def _spot(self) -> _Spot:
        """Find a place where the symbol occurs."""
        args = self._args
        if args.path:
            file = await self._reach.named(self._workspace.path(args.path))
            return _Spot(file, args.line or None)
        return await self._spot_in_workspace() or await self._spot_in_texts()

    async def _spot_in_workspace(self) -> _Spot | None:
        """Return the place that the servers report for the name."""
        answer = await self._servers.symbols(
            self._workspace.project, self._args.symbol, is_like=False
        )
        known = [
            (_Spot(file, row + 1), name)
            for places in answer.files
            if self._reach.is_inside(places.path) and (file := await self._reach.file(places.path))
            for row, name in zip(places.rows, places.names, strict=False)
        ]
        fitting = [spot for spot, name in known if name]
        fitting = fitting or await self._in_their_files([spot for spot, _ in known])
        spots = list(dict.fromkeys((spot.file.path, spot.line) for spot in fitting))
        if len(spots) > 1 and self._args.op == "callees" and len({path for path, _ in spots}) == 1:
            return _Spot(fitting[0].file, None)  # overloads: the implementation in that file
        if len(spots) > 1:
            raise await self._several(list(dict.fromkeys(fitting)))
        return fitting[0] if fitting else None

    async def _in_their_files(self, spots: list[_Spot]) -> list[_Spot]:
        """Find the whole name in these files, because some servers do not report a symbol's container."""
        found: list[_Spot] = []
        for path in list(dict.fromkeys(spot.file.path for spot in spots))[:MAX_CANDIDATES]:
            file = next(spot.file for spot in spots if spot.file.path == path)
            answer = await self._ask("definition", _Spot(file, None))
            if answer.row is not None:
                found.append(_Spot(file, answer.row + 1))
        return found or spots

    async def _spot_in_texts(self) -> _Spot:
        """Find the symbol by text search, confirmed by the language server."""
        name = _last_name(self._args.symbol)
        definitions: dict[tuple[str, int], _Spot] = {}
        found = await self._search(name)
        for spot in found[:MAX_CANDIDATES]:
            try:
                answer = await self._ask("definition", spot)
            except ToolError:
                if spot is found[min(len(found), MAX_CANDIDATES) - 1] and not definitions:
                    raise
                continue
            if answer.row is not None and answer.files and answer.files[0].rows:
                first = answer.files[0]
                definitions.setdefault((first.path, first.rows[0]), spot)
        if not definitions:
            raise ToolError(NOT_FOUND.format(symbol=escaped(self._args.symbol)))
        if len(definitions) > 1:
            raise await self._several(list(definitions.values()))
        return next(iter(definitions.values()))

    async def _search(self, name: str) -> list[_Spot]:
        """Search for files with the name; return the line most like a definition in each, best first."""
        directory = self._workspace.project
        files = Filter(self._workspace.disk, directory, may_read=self._context.may_read)
        found = Matches(files, MAX_SEARCHED, MAX_LINES_OF_FILE)
        options = [f"--max-count={MAX_LINES_OF_FILE}", "--fixed-strings", "--word-regexp"]
        await found.search(self._workspace, [*options, f"--regexp={name}"], [directory])
        ranked: list[tuple[bool, str, int]] = []
        for each in found.sorted():
            declaring = [line for line in each.lines if _DECLARES.search(line.text)]
            line = (declaring or each.lines)[0]
            ranked.append((not declaring, each.path, line.number))
        spots: list[_Spot] = []
        for _, path, line in sorted(ranked):
            if len(spots) < MAX_CANDIDATES and (file := await self._reach.file(path)):
                spots.append(_Spot(file, line))
        return spots

    async def _several(self, spots: list[_Spot]) -> _Several:
        few, more = spots[:MAX_CANDIDATES], len(spots) - MAX_CANDIDATES
        by_path: dict[str, list[int]] = {}
        for spot in few:
            by_path.setdefault(spot.file.path, []).append((spot.line or 1) - 1)
        listing = await self._rows.listing(
            [Locations(p, tuple(rows)) for p, rows in by_path.items()]
        )
        also = [f"… and {more:,} more"] if more > 0 else []
        head = (
            f"{escaped(self._args.symbol)} is ambiguous. Nothing was done; ask again with path and line of one, or with more of its name"
            " (`Class/method`):"
        )
        return _Several("\n".join([head, *listing.lines, *also]))

    # --- answers -----------------------------------------------------------------------------------------------------------

    async def _ask(self, op: str, spot: _Spot) -> LanguageServerAnswer:
        return await self._servers.navigate(spot.file, op, self._args.symbol, spot.line)

    async def _require_clear(self, file: CodeFile, answer: LanguageServerAnswer) -> None:
        if answer.candidates:
            raise _Several(await self._rows.candidates(file, answer.candidates))
        if answer.row is None:
            raise ToolError(
                f"{answer.server} knows no symbol {escaped(self._args.symbol)} in {self._rows.shown(file.path)}."
            )

    async def _result(self, answer: LanguageServerAnswer) -> Outcome:
        args = self._args
        listing = await self._rows.listing(answer.files, self._within)
        notes = [f"{answer.still}: there may be more."] if answer.still else []
        if listing.elsewhere:
            notes.append(f"{listing.elsewhere:,} more outside the project.")
        if answer.count > sum(len(each.rows) for each in answer.files):
            notes.append("There are too many to check all of them.")
        if args.op == "hover":
            return self._hovered(answer, listing, notes)
        if not listing.place_count:
            what = f"{NOUNS[args.op]}s of" if args.op != "symbols" else "symbol like"
            text = NOTHING.format(server=answer.server, what=what, symbol=escaped(args.symbol))
            return Outcome(content="\n".join([text, *notes]), summary=f"no {NOUNS[args.op]}s")
        body = await self._body(answer) if args.op == "definition" else []
        files = f" in {listing.file_count:,} files" if listing.file_count > 1 else ""
        summary = f"{counted(listing.place_count, NOUNS[args.op])}{files}"
        content = "\n".join([f"{summary} ({answer.server}):", *listing.lines, *body, *notes])
        return Outcome(content=content, summary=summary)

    async def _body(self, answer: LanguageServerAnswer) -> list[str]:
        """Return the lines of a definition after its first; empty if there are several, or its server does not know where it ends."""
        if len(answer.files) != 1 or len(answer.files[0].rows) != 1:
            return []
        [places] = answer.files
        [row] = places.rows
        file = await self._reach.file(places.path)
        if not file or not self._reach.is_inside(places.path):
            return []
        try:
            outline = await self._servers.navigate(file, "outline", "", None)
            defined = [each for each in outline.symbols if each.row == row]
            last = max((each.last_row for each in defined), default=row)
            shown = min(last, row + MAX_BODY_LINES - 1)
            modified = places.is_modified
            lines = await self._reach.numbered(file.path, row + 1, shown, is_modified=modified)
        except ToolError:
            return []
        text = fitting_lines(lines, MAX_BODY_BYTES)
        left = last - row - len(text)
        more = [f"… and {left:,} more lines, to line {last + 1}"] if left > 0 else []
        return [*text, *more]

    def _hovered(
        self, answer: LanguageServerAnswer, listing: LocationListing, notes: list[str]
    ) -> Outcome:
        """Return the hover text, unless the symbol is defined in a file that is hidden from the model."""
        is_hidden = bool(answer.files) and not listing.place_count
        if not answer.hover or is_hidden:
            symbol = escaped(self._args.symbol)
            text = NOTHING.format(server=answer.server, what="details of", symbol=symbol)
            return Outcome(content=text, summary="nothing")
        where = ["", "Defined:", *listing.lines] if listing.lines else []
        content = "\n".join([answer.hover, *where, *notes])
        return Outcome(content=content, summary=f"{len(answer.hover.splitlines())} lines")


def _last_name(symbol: str) -> str:
    return names[-1] if (names := names_in(symbol)) else symbol
