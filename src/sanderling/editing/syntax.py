"""
The check that a change leaves a file's syntax as good as it was, by Python's own parsers.

There is none here for languages with braces: where indentation has no meaning, it breaks nothing.
"""

import warnings
from collections.abc import Callable

MAX_CHECKED_CHARS = 256 * 1024
MAX_CHECKED_DOTS = 100  # of a line of TOML


def compared(path: str, before: str, after: str) -> tuple[str, str]:
    """The syntax error of `after` if `before` has none, else nothing; and what to say if there is none."""
    language, problem_of = _LANGUAGES.get(path.rpartition(".")[2].lower(), ("", None))
    if problem_of is None or max(len(before), len(after)) > MAX_CHECKED_CHARS:
        return "", "Its syntax was not checked."
    try:
        if problem_of(before):
            return "", f"It was not valid {language} before, so its syntax was not checked."
        problem = problem_of(after)
    except (RecursionError, MemoryError):
        return "", "Its syntax was not checked."
    return problem, f"It still is valid {language}."


_SOURCE_NAME = "sanderling_edited_file"


def _python_problem(text: str) -> str:
    import ast  # each of the parsers is loaded for a file of its own

    # Parsed, not compiled: nested `finally` blocks of a few hundred bytes make the compiler take gigabytes.
    warnings.filterwarnings("ignore", module=_SOURCE_NAME)  # safe in a thread, as others are not
    try:
        ast.parse(text, _SOURCE_NAME)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except ValueError as error:
        return str(error)
    return ""


def _json_problem(text: str) -> str:
    import json

    try:
        json.loads(text)
    except ValueError as error:
        return str(error)
    return ""


def _toml_problem(text: str) -> str:
    import tomllib

    # For `a.a.a…` tomllib takes quadratic time and memory: 256 KB of it kill the process.
    if max(line.count(".") for line in text.split("\n")) > MAX_CHECKED_DOTS:
        raise RecursionError
    try:
        tomllib.loads(text)
    except ValueError as error:
        return str(error)
    return ""


_LANGUAGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "py": ("Python", _python_problem),
    "pyi": ("Python", _python_problem),
    "pyw": ("Python", _python_problem),
    "json": ("JSON", _json_problem),
    "toml": ("TOML", _toml_problem),
}
