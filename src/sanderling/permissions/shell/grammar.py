"""
The grammar of a shell line: its commands as words, or why they cannot be known before it runs.

Two parsers must agree. tree-sitter's bash grammar gives the structure; a small lexer (`lexer.py`), which knows only the plain part of the
language, gives the word boundaries. A grammar for editors guesses where a shell is strict, and the author of the line may exploit that.
So whatever the two read differently, or one does not know, counts as not understood.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from sanderling.permissions.shell.lexer import (
    IN_QUOTES,
    VARIABLE,
    WORD,
    Lexed,
    Span,
    in_double_quotes,
    lex,
)
from sanderling.text import CONTROL, name_set, visible

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARACTERS = 10_000
MAX_PARTS, MAX_WORDS = 500, 2_000
"""The grammar's time grows with the square of some operators: 1.1 s for 5,000 pipes, 10 ms for 500."""
MAX_GUESSED = 20_000
"""How many characters of a line that is too long to parse are searched for what the user's rules forbid."""
MAX_TRIES = 3
"""How often a line is parsed, each time with semicolons for line ends that the grammar took for blanks."""
MAX_DEPTH = 100
"""The depth beyond which a nested line is not read."""


class Opaque(msgspec.Struct, frozen=True):
    """A word whose value the shell computes at run time, from a variable or a glob; it may become several words."""

    can_be_option: bool
    can_be_many: bool = True


Word = str | Opaque
Words = Sequence[Word]


def literals(words: Words) -> list[str]:
    return [word for word in words if isinstance(word, str)]


class Redirection(msgspec.Struct, frozen=True):
    """A redirection. `descriptor` is "" if the line has no number; `target` is a descriptor, "-", or a file."""

    descriptor: str
    operator: str
    target: Word


class SimpleCommand(msgspec.Struct, frozen=True):
    """
    A simple command of a line, after quote removal.

    Without words it only sets variables, or has the redirections of a group. `is_guess`: the line could not be parsed, and any of these
    words may be a program.
    """

    text: str
    words: tuple[Word, ...] = ()
    assignments: tuple[tuple[str, Word], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    is_guess: bool = False


class Parsed(msgspec.Struct, frozen=True):
    """
    Every command of a line, at any depth. `problem` says why some may be missing or wrong; "" if they are all right.

    With a problem, `commands` contains what could be recognized. `inputs` are the here-documents that commands read.
    """

    commands: tuple[SimpleCommand, ...]
    problem: str = ""
    inputs: tuple[str, ...] = ()


def parse(line: str) -> Parsed:
    """Parse `line` as bash does. Never raises; takes some milliseconds at most."""
    if problem := _unreadable(line):
        return Parsed(_guess(line), problem)
    source = line.encode()
    lexed = lex(source)
    if lexed and not _has_documents_of(lexed, source):
        lexed = None
    if not lexed and b"\\\n" in source:
        return Parsed(_guess(line), "it continues a line with a backslash")
    plain = lexed.plain if lexed else bytearray(source)
    reading = _Reading(source, bytes(plain))
    for _ in range(MAX_TRIES):
        root = _parser().parse(bytes(plain)).root_node
        if root.has_error:
            return Parsed(_guess(line), "the shell's grammar does not accept it")
        reading = _Reading(source, bytes(plain))
        reading.walk(root)
        for line_end in reading.overlooked:
            plain[line_end] = ord(";")
        if not reading.overlooked:
            break
    problem = reading.problem
    if not problem and not (lexed and sorted(reading.spans) == lexed.spans):
        problem = BEYOND
    if not lexed:
        return Parsed(tuple(reading.commands), problem)
    cats = (SimpleCommand(source[slice(*each)].decode(), ("cat",)) for each in lexed.substitutions)
    inputs = tuple(text.decode() for text in lexed.inputs)
    return Parsed((*reading.commands, *cats), problem, inputs)


def _has_documents_of(lexed: Lexed, source: bytes) -> bool:
    """Return True if the grammar sees exactly the here-documents that the lexer has taken out of the line."""
    if not lexed.delimiters and not lexed.substitutions:
        return True
    root = _parser().parse(source).root_node
    found: dict[str, list[Span]] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        found.setdefault(node.type, []).append((node.start_byte, node.end_byte))
        waiting += node.children
    delimiters = found.get("heredoc_start", []) + found.get("heredoc_end", [])
    return (
        not root.has_error
        and sorted(delimiters) == sorted(lexed.delimiters)
        and sorted(found.get("command_substitution", [])) == lexed.substitutions
    )


# --- What is not even looked at ----------------------------------------------------------------------------------------------

_PARTS = re.compile(r"[;&|()<>{}`$\[=]")
_QUOTES = re.compile(r"['\"\\]")
_BETWEEN_COMMANDS = re.compile(r"[;&|()<>`{}\n]")


def _unreadable(line: str) -> str:
    if len(line) > MAX_CHARACTERS:
        return f"it is longer than {MAX_CHARACTERS:,} characters"
    if CONTROL.search(line):
        return "it contains control characters"
    if visible(line) != line:
        return "it contains characters that are invisible or change the direction of text"
    words = len(line.split()) + len(_QUOTES.findall(line))
    if len(_PARTS.findall(line)) > MAX_PARTS or words > MAX_WORDS:
        return "it has too many parts"
    return ""


def _guess(line: str) -> tuple[SimpleCommand, ...]:
    """Return the words that may be commands in a line that cannot be parsed."""
    pieces = _BETWEEN_COMMANDS.split(_QUOTES.sub("", line[:MAX_GUESSED]))
    return tuple(
        SimpleCommand(piece.strip()[:200], tuple(words), is_guess=True)
        for piece in pieces
        if (words := piece.split())
    )


# --- Quote removal ---------------------------------------------------------------------------------------------------------------

_PART = re.compile(
    rb"(?s)'(?P<single>[^']*)'|\"(?P<double>(?:" + IN_QUOTES + rb")*)\""
    rb"|\\(?P<escaped>.)|(?P<variable>" + VARIABLE + rb")|(?P<bare>[^'\"\\$`]++)"
)
_GLOB = re.compile(rb"[*?\[]")
_HARMLESS_BRACES = re.compile(rb"[^{}]*(?:\{\w*\}[^{}]*)*")
"""Braces that bash leaves alone, without a comma or a range: `{}` and `HEAD@{1}`."""
_PLAIN_START = re.compile(rb"\"?[\w./:@%+,]")
_FROM_THE_STACK = re.compile(rb"(?:^|[=:])~[-+\d]")
"""A word that bash replaces by a directory of its stack (`~+`, `~-`, `~2`), also where it takes a word for an assignment."""


def _unquote(raw: bytes) -> Word:
    """Return the value of the word `raw`; opaque if the shell computes any part of it."""
    if not WORD.fullmatch(raw):
        return Opaque(can_be_option=True)
    text, is_known, is_split, has_glob = b"", True, False, False
    for part in _PART.finditer(raw):
        match part.lastgroup:
            case "double":
                inside = in_double_quotes(part["double"])
                is_known &= inside is not None
                text += inside or b""
            case "variable":
                is_known, is_split = False, is_split or part[0] != b"$?"
            case "bare":
                has_glob |= raw != b"[" and _GLOB.search(part[0]) is not None
                is_split |= _FROM_THE_STACK.search(part[0]) is not None
                text += part[0]
            case _:
                text += part["single"] or part["escaped"] or b""
    if is_known and not has_glob and not is_split:
        return text.decode(errors="replace")
    return Opaque(
        can_be_option=is_split or not _PLAIN_START.match(raw),
        can_be_many=is_split or has_glob,
    )


def _oddity(raw: bytes) -> str:
    """Return what the shell may do to this word other than remove quotes; "" if nothing."""
    if not WORD.fullmatch(raw):
        return BEYOND
    if raw.startswith(b"="):
        return "some shells look up a program for a word that begins with '='"
    for part in _PART.finditer(raw):
        if part["bare"] and not _HARMLESS_BRACES.fullmatch(part["bare"]):
            return "it uses brace expansion"
    return ""


# --- The structure -----------------------------------------------------------------------------------------------------------------

BEYOND = "it uses more of the shell's language than is understood"
_STRUCTURE = name_set(
    "program list pipeline subshell compound_statement if_statement elif_clause else_clause for_statement while_statement do_group"
    " case_statement case_item negated_command redirected_statement file_redirect variable_assignments"
    " unary_expression binary_expression negated_expression"
)
_COMMANDS = name_set("command declaration_command unset_command test_command")
_ON_ONE_LINE = _COMMANDS | name_set("redirected_statement file_redirect variable_assignments")
_ATOMS = name_set(
    "command_name word string raw_string concatenation number simple_expansion expansion variable_assignment variable_name"
    " test_operator extglob_pattern file_descriptor comment"
)
_INSIDE_WORDS = _ATOMS | {"string_content", "special_variable_name"}
_PROBLEMS = {
    "command_substitution": "it uses command substitution",
    "process_substitution": "it uses process substitution",
    "arithmetic_expansion": "it computes, which can run commands",
    "function_definition": "it defines a function",
    "heredoc_redirect": "it contains a here-document",
    "herestring_redirect": "it contains a here-string",
    "c_style_for_statement": "it computes, which can run commands",
    "subscript": "it uses arrays, whose subscripts can run commands",
    "array": "it uses arrays, whose subscripts can run commands",
    "ansi_c_string": "it contains a $'…' string",
    "translated_string": 'it contains a $"…" string',
    "brace_expression": "it uses brace expansion",
}
_LEAF_PROBLEMS = {
    "&": "it leaves a command running in the background",
    "[[": "it uses [[ ]], which can run commands",
    "((": "it computes, which can run commands",
    "select": "it asks with a menu",
}
_NAME = re.compile(r"[\w./+:@%-]+|\[", re.ASCII)
_ASSIGNMENT = re.compile(rb"(?s)([A-Za-z_]\w*)=(.*)")


class _Reading:
    """A walk over the syntax tree, which collects the commands and the spans of all that is understood."""

    def __init__(self, source: bytes, plain: bytes) -> None:
        self.commands: list[SimpleCommand] = []
        self.spans: list[Span] = []
        self.overlooked: list[int] = []  # line ends taken for blanks
        self.problem = ""
        self._source, self._plain = source, plain

    def walk(self, root: "Node") -> None:
        """Walk the tree, without recursion: a line may be nested deeper than Python's stack."""
        waiting = [(root, 0, False)]
        while waiting:
            node, depth, is_in_word = waiting.pop()
            if depth > MAX_DEPTH:
                self._doubt("it is nested too deeply")
                continue
            is_atom = node.type in _ATOMS or not node.is_named
            self._look_at(node, is_atom=is_atom, is_in_word=is_in_word)
            # Reversed, so that problems are reported in the order of the line.
            waiting += [
                (child, depth + 1, is_in_word or is_atom) for child in reversed(node.children)
            ]

    def _look_at(self, node: "Node", *, is_atom: bool, is_in_word: bool) -> None:
        if node.type in _COMMANDS:
            self.commands.append(self._command(node))
        elif node.type == "redirected_statement" and node.children[0].type not in _COMMANDS:
            self.commands.append(
                SimpleCommand(self._text(node), redirections=self._redirections(node))
            )
        elif node.type in ("variable_assignment", "for_statement"):
            self._set_variable(node)
        if node.type in _ON_ONE_LINE:
            self._look_for_line_ends(node)
        if node.type in _PROBLEMS:
            self._doubt(_PROBLEMS[node.type])
        elif is_in_word:
            if node.is_named and node.type not in _INSIDE_WORDS:
                self._doubt(BEYOND)
        elif is_atom:
            self._atom(node)
        elif node.type not in _STRUCTURE | _COMMANDS:
            self._doubt(BEYOND)

    def _atom(self, node: "Node") -> None:
        raw = self._raw(node)
        if not raw or raw == b"\n":
            return
        self.spans.append((node.start_byte, node.end_byte))
        if not node.is_named:
            self._doubt(_LEAF_PROBLEMS.get(node.type, ""))
        elif node.type != "comment":
            self._doubt(_oddity(raw))

    def _look_for_line_ends(self, node: "Node") -> None:
        """Find line ends that the grammar took for blanks, though they end a command, as in `a | b | c`, `d && e`."""
        before = node.start_byte
        for child in node.named_children:
            self._look_between(before, child.start_byte)
            before = child.end_byte
            if child.type == "comment":
                self._doubt(BEYOND)  # a semicolon would become part of it
                before += 1
        self._look_between(before, node.end_byte)

    def _look_between(self, start: int, end: int) -> None:
        if (found := self._plain.find(b"\n", start, end)) >= 0:
            self.overlooked.append(found)
            self._doubt(BEYOND)

    def _command(self, node: "Node") -> SimpleCommand:
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        for child in node.children:
            if child.type == "variable_assignment" and node.type == "command":
                assignments.append(self._assignment(child))
            elif child.type != "file_redirect":
                words += [_unquote(self._raw(atom)) for atom in _atoms(child)]
        if node.type == "command":
            self._check_name(words)
        redirections = self._redirections(node)
        if node.parent is not None and node.parent.type == "redirected_statement":
            redirections += self._redirections(node.parent)
        return SimpleCommand(self._text(node), tuple(words), tuple(assignments), redirections)

    def _check_name(self, words: Words) -> None:
        name = words[0] if words else ""
        if isinstance(name, Opaque):
            self._doubt("which program it runs is only known when it runs")
        elif not _NAME.fullmatch(name):
            self._doubt("the name of its program is not plain")

    def _set_variable(self, node: "Node") -> None:
        """Record a variable that is set on its own, or by a loop. An assignment before a command belongs to that command."""
        if node.type == "for_statement":
            names = [child for child in node.children if child.type == "variable_name"]
            assigned = [(self._text(name), Opaque(can_be_option=True)) for name in names]
        elif node.parent is not None and node.parent.type in _COMMANDS:
            return
        else:
            assigned = [self._assignment(node)]
        self.commands.append(SimpleCommand(self._text(node), assignments=tuple(assigned)))

    def _assignment(self, node: "Node") -> tuple[str, Word]:
        found = _ASSIGNMENT.fullmatch(self._raw(node))
        if found is None:
            self._doubt("it sets a variable in a way that is not understood")
            return "", Opaque(can_be_option=True)
        return found[1].decode(), _unquote(found[2]) if found[2] else ""

    def _redirections(self, node: "Node") -> tuple[Redirection, ...]:
        found = (child for child in node.children if child.type == "file_redirect")
        return tuple(map(self._redirection, found))

    def _redirection(self, node: "Node") -> Redirection:
        descriptor, operator = "", ""
        targets: list[bytes] = []
        for child in node.children:
            if child.type == "file_descriptor":
                descriptor = self._text(child)
            elif not child.is_named:
                operator = self._text(child)
            else:
                targets.append(self._raw(child))
        # The grammar counts words after a redirection, and numbers before it, as part of it; for bash they are arguments.
        if len(targets) != (not operator.endswith("-")):
            self._doubt("words follow a redirection")
        if not (descriptor == "" or descriptor.isdecimal()):
            self._doubt(BEYOND)
        # After these operators, bash takes a "-" for a separate word, and expands even what is in single quotes.
        if operator in (">&", "<&") and any(re.search(rb"^-|[$`\\]", raw) for raw in targets):
            self._doubt(BEYOND)
        return Redirection(descriptor, operator, _unquote(targets[0]) if targets else "")

    def _doubt(self, problem: str) -> None:
        """Record a problem; the first specific one is kept."""
        if problem and self.problem in ("", BEYOND):
            self.problem = problem

    def _raw(self, node: "Node") -> bytes:
        return self._source[node.start_byte : node.end_byte]

    def _text(self, node: "Node") -> str:
        return self._raw(node).decode(errors="replace")


def _atoms(node: "Node") -> "Iterator[Node]":
    """Yield the words below `node`, in order."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.type in _STRUCTURE:
            waiting += reversed(node.children)
        elif node.end_byte > node.start_byte:
            yield node


@cache
def _parser() -> "Parser":
    # Up to 55 ms and 2 MB, paid by the first command and not at startup.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
