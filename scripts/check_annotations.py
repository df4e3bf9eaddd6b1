"""
Check the annotations of the Lua code.

Each class that one names must exist, each parameter must be one of its function, and no class may have a field twice. This stands in for
a type checker of LuaCATS annotations: no package index that we use has one yet.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFINED = re.compile(r"---@(?:class|alias|enum)\s+(?:\(\w+\)\s*)?([\w.]+)")
USED = re.compile(r"\bsanderling(?:\.\w+)+")
FIELD = re.compile(r"---@field\s+(?:(?:private|protected|public)\s+)?([\w.]+)\??\s")
PARAMETER = re.compile(r"---@param\s+([\w.]+)\??\s")
FUNCTION = re.compile(r"function\b[^(]*\(([^)]*)\)")


def problems_in(path: Path, defined: set[str]) -> list[str]:
    found: list[str] = []
    parameters: list[str] = []
    fields = set[str]()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        place = f"{path.relative_to(ROOT)}:{number}"
        is_comment = line.lstrip().startswith("---")
        if annotation := line.partition("---@")[2] or line.partition("--[[@as")[2]:
            types = re.sub(r"^(?:param|field)\s+\S+|^return\s+|'[^']*'|\"[^\"]*\"", "", annotation)
            found += [
                f"{place}: no class {name}" for name in USED.findall(types) if name not in defined
            ]
        if DEFINED.match(line.strip()):
            fields.clear()
        if field := FIELD.match(line.strip()):
            if field[1] in fields:
                found.append(f"{place}: the field {field[1]} is there twice")
            fields.add(field[1])
        if parameter := PARAMETER.match(line.strip()):
            parameters.append(parameter[1])
        elif not is_comment:
            if parameters and (function := FUNCTION.search(line)):
                names = {name.strip() for name in function[1].split(",")}
                found += [
                    f"{place}: no parameter {name}"
                    for name in parameters
                    if name not in names and name != "..."
                ]
            parameters = []
    return found


def main() -> int:
    files = sorted(ROOT.glob("lua/**/*.lua")) + sorted(ROOT.glob("plugin/*.lua"))
    defined = {name for path in files for name in DEFINED.findall(path.read_text())}
    found = [problem for path in files for problem in problems_in(path, defined)]
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
