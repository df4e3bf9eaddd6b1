"""The sizes beyond which something wants to be two things, each with a name of its own."""

import ast
import re
from collections.abc import Iterator

from tests.test_layers import PACKAGE, ROOT, nodes

PYTHON_LINES, LUA_LINES = 500, 500
FUNCTION_LINES = 60
METHODS, ATTRIBUTES = 32, 16
TABLES = {"sanderling/types.lua"}  # generated
Function = ast.FunctionDef | ast.AsyncFunctionDef
LUA_FUNCTION = re.compile(
    r"^(?P<indent> *)(?:local )?function (?P<name>[\w.:]+)\(.*?^(?P=indent)end\n",
    re.MULTILINE | re.DOTALL,
)


def definitions() -> Iterator[tuple[str, ast.AST]]:
    """Each class and function of the package, with the place where it begins."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef | Function):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}", node


def methods(node: ast.ClassDef) -> list[Function]:
    return [each for each in node.body if isinstance(each, Function)]


def attributes(node: ast.ClassDef) -> set[str]:
    """What the methods of a class assign to `self`."""
    return {
        each.attr
        for method in methods(node)
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def test_no_file_is_too_long():
    limits = {
        path: limit
        for folder, ending, limit in (("src", "py", PYTHON_LINES), ("lua", "lua", LUA_LINES))
        for path in (ROOT / folder).rglob(f"*.{ending}")
        if path.relative_to(ROOT / folder).as_posix() not in TABLES
    }
    lines = {path: path.read_text().count("\n") for path in limits}
    assert {path: lines[path] for path, limit in limits.items() if lines[path] > limit} == {}


def lua_functions() -> Iterator[tuple[str, int]]:
    """Each function that has a name, and the number of its lines: the formatter indents all alike."""
    for path in sorted((ROOT / "lua").rglob("*.lua")):
        for found in LUA_FUNCTION.finditer(path.read_text()):
            yield f"{path.relative_to(ROOT)}: {found['name']}", found[0].count("\n")


def test_no_function_is_too_long():
    in_lua = dict(lua_functions())
    assert max(in_lua.values()) > FUNCTION_LINES // 2  # they are found
    lines = in_lua | {
        place: (node.end_lineno or 0) - node.lineno + 1
        for place, node in definitions()
        if isinstance(node, Function)
    }
    assert {place: count for place, count in lines.items() if count > FUNCTION_LINES} == {}


def test_no_class_has_too_many_methods_or_too_much_state():
    classes = {place: node for place, node in definitions() if isinstance(node, ast.ClassDef)}
    sizes = {place: (len(methods(node)), len(attributes(node))) for place, node in classes.items()}
    assert {
        place: size for place, size in sizes.items() if size[0] > METHODS or size[1] > ATTRIBUTES
    } == {}
    assert max(size[1] for size in sizes.values()) > ATTRIBUTES // 2  # they are found
