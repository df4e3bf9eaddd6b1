"""
Check the English of docstrings, comments, messages and documents for wording that a reader has to read twice.

`check_prose.py` counts the patterns below in each kind of text. It fails above MAX_RATE hits in 1,000 words. `check_prose.py --list` shows
every hit. A hit is a place to look at, not a fault: rewrite the sentence, not the word. `doc/style.md` has the rules.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_RATE = 1.0
MIN_TEXT = 16  # characters of a string literal that may be prose

# name: the pattern, and what usually says it better
PATTERNS = {
    "told": (
        r"\b(is|are|was|were|be|been|being) told\b|\btold of\b|\btells? (of|again|what)\b",
        "shown, sent, reported",
    ),
    "stands": (r"\b(stands?|stood)\b(?! (alone|up|still|out|for|in for)\b)", "is, contains"),
    "what": (
        (
            r"((^|[.:;] )(What|Who|Whoever|Whatever)|, (what|who)) ([a-z]+ ){0,3}"
            r"(is|are|was|has|have|can|cannot|must|may|goes?|comes?|does|do)\b(?![^.]*\?)"
        ),
        "a noun: the caller, the response",
    ),
    "place of": (
        r"\bin(to)? (the|its|their|his|our) place\b(?! (where|and)\b)",
        "replaces, replaced by",
    ),
    "beside": (r"\bbesides?\b", "next to, as well"),
    "anew": (r"\banew\b", "again, new"),
    "of now": (r"\bof (now|here|there|before|today)\b", "current, local, remote, previous"),
    "nobody": (
        r"\bnobody\b|\bnone (of|is|was|can|has|that)\b(?<!if there is none)|\b(is|are) none\b",
        "not on the verb",
    ),
    "ours": (r"\b(ours|theirs)\b", "name it"),
    "had": (r"\b(be|to be|is|are) had\b", "available, released"),
    "let in": (r"\blets? (in|out)\b", "allow, admit"),
    "goes before": (r"\bgo(es)? before\b", "overrides, precedes"),
    "by itself": (r"\bby (itself|themselves)\b", "automatically"),
    "comes of": (r"\b(comes?|came|becomes?) of (it|that|this|them|which)\b", "results in"),
    "those that": (r"\bthose (that|of|who)\b|\bthe ones? (that|of)\b", "the noun"),
    "as far as": (r"\bas far as\b", "where, to the extent that"),
    "mend": (r"\bmend(s|ed|ing)?\b", "fix, repair"),
    "say whether": (r"\bSay whether\b", "leave it out where the name says it"),
    "person": (r"\b(the|a) person('s)?\b", "the user"),
    "goes on": (r"\bgo(es)? on\b", "continues"),
    "makes of": (r"\bwhat .{0,24}\bmakes? of\b", "how it handles"),
    "wants": (r"\b(it|model|server|API|endpoint|wire) wants\b", "requires, requests"),
    "for": (
        r"\bfor (it|they|we|nobody|there|that|what|who) (is|are|was|has|have|can|would|may|must|goes)\b",
        "because",
    ),
}
COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, (pattern, _) in PATTERNS.items()}
ALLOWED = re.compile(r"stand-ins?|if there (is|are) none|there (is|are) none\b")
WORD = re.compile(r"[A-Za-z']+")

Texts = Iterator[tuple[int, str]]


def in_python(path: Path) -> Texts:
    """Yield docstrings, other long strings and comments, with their lines."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if len(text) >= MIN_TEXT and " " in text:
                yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def in_lua(path: Path) -> Texts:
    """Yield comments and long strings, with their lines."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code, _, comment = line.partition("--")
        if comment:
            yield number, comment
        for found in re.finditer(r"'([^'\\]+)'|\"([^\"\\]+)\"", code):
            text = found[1] or found[2]
            if len(text) >= MIN_TEXT and " " in text:
                yield number, text


def in_document(path: Path) -> Texts:
    """Yield lines outside fenced code."""
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def texts() -> Iterator[tuple[str, Path, Texts]]:
    """Yield the kind of text, the file and its texts."""
    for path in sorted(ROOT.glob("src/**/*.py")):
        yield "Python", path, in_python(path)
    for path in sorted(ROOT.glob("lua/**/*.lua")):
        yield "Lua", path, in_lua(path)
    for pattern in ("*.md", "doc/*.md", "doc/*.txt"):
        for path in sorted(ROOT.glob(pattern)):
            yield str(path.relative_to(ROOT)), path, in_document(path)


def main() -> int:
    words, hits = Counter[str](), defaultdict[str, list[str]](list)
    for kind, path, found in texts():
        for number, text in found:
            words[kind] += len(WORD.findall(text))
            plain = ALLOWED.sub("", text)
            for name, pattern in COMPILED.items():
                for _ in pattern.finditer(plain):
                    place = f"{path.relative_to(ROOT)}:{number}"
                    better = PATTERNS[name][1]
                    hits[kind].append(f"{place}: {name} ({better}): {' '.join(text.split())[:120]}")
    rates = {kind: 1000 * len(hits[kind]) / max(1, count) for kind, count in words.items()}
    is_listed = "--list" in sys.argv[1:]
    for kind, rate in rates.items():
        if is_listed or rate > MAX_RATE:
            print(*hits[kind], sep="\n")
    print("per 1,000 words: " + ", ".join(f"{kind} {rate:.1f}" for kind, rate in rates.items()))
    return int(any(rate > MAX_RATE for rate in rates.values()))


if __name__ == "__main__":
    sys.exit(main())
