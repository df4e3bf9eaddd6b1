"""
Checks with Python's own parsers that a change does not break a file's syntax.

Languages with braces are not checked: indentation has no meaning there, so it cannot break anything.
"""

import warnings
from collections.abc import Callable

MAX_CHECKED_CHARS = 256 * 1024
MAX_CHECKED_DOTS = 100  # in a line of TOML


def compared(path: str, before: str, after: str) -> tuple[str, str]:
    """Return a new syntax error in `after`, or "", and a sentence on the result."""
    language, problem_of = _LANGUAGES.get(path.rpartition(".")[2].lower(), ("", None))
    if problem_of is None or max(len(before), len(after)) > MAX_CHECKED_CHARS:
        return "", "Its syntax was not checked."
    try:
        if problem_of(before):
            return "", f"It was not valid {language} before, so its syntax was not checked."
        problem = problem_of(after)
    except (RecursionError, MemoryError):
        return "", "Its syntax was not checked."
    return problem, f"It is still valid {language}."


_SOURCE_NAME = "sanderling_edited_file"


def _python_problem(text: str) -> str:
    import ast  # imported only when needed

    # Parse without compiling: nested `finally` blocks of a few hundred bytes make the compiler use gigabytes.
    warnings.filterwarnings("ignore", module=_SOURCE_NAME)  # thread-safe, unlike others
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
