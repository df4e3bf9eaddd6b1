"""The modules: pytest collects no directory of tests if two of them have one name, and no string of the package is left over."""

import ast
from collections import Counter
from itertools import pairwise
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "sanderling"
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _module(path: Path) -> str:
    is_in_package = (path.parent / "__init__.py").exists()
    return str(path.relative_to(TESTS)) if is_in_package else path.name


def test_no_two_modules_have_one_name():
    modules = Counter(map(_module, TESTS.rglob("test_*.py")))
    assert [name for name, count in modules.items() if count > 1] == []


def _left_over(tree: ast.AST) -> list[int]:
    """The lines of strings that document nothing: they neither begin a body nor follow an assignment."""
    bodies = [
        (getattr(node, "body", None), isinstance(node, DOCUMENTED)) for node in ast.walk(tree)
    ]
    pairs = [
        (before, statement)
        for body, has_docstring in bodies
        if isinstance(body, list)
        for before, statement in pairwise([None, *body])
        if not (has_docstring and statement is body[0])
    ]
    return [
        statement.lineno
        for before, statement in pairs
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        and not isinstance(before, ast.Assign | ast.AnnAssign)
    ]


def test_every_string_of_the_package_documents_something():
    found = {str(path): _left_over(ast.parse(path.read_text())) for path in PACKAGE.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}
