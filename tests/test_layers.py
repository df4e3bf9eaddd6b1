"""Who may know whom: the imports of the package against the layers of doc/architecture.md."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "sanderling"
LUA = ROOT / "lua" / "sanderling"

# A part may import itself and the parts of the layers above it in this list.
LAYERS = (
    {"text", "paths", "hosts", "images", "platforms"},
    {"json_lines"},
    {"errors"},
    {"packages"},
    {"protocol", "state_file"},
    {"config"},
    {"sandbox", "providers", "project"},
    {"changes", "hooks", "session"},
    {"tools", "worktrees"},
    {"blame"},
    {"permissions", "mcp", "api"},
    {"agents"},
    {"acp"},
    {"conversation", "batch"},
    {"editor", "cli"},
    {"serve"},
    {"__main__"},
)
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
EVERYWHERE = {"anyio", "msgspec"}
CORNERS = {
    "pynvim": {"editor/bridge.py"},
    "anthropic": {"providers/anthropic/"},
    "httpx2": {"providers/", "mcp/"},
    "jsonschema": {"tools/json_schema.py"},
    "mcp": {"mcp/"},
    "mcp_types": {"mcp/"},
    "landlock": {"sandbox/kernel/landlock.py"},
    "h11": {"sandbox/network/proxy.py"},
    "httpcore2": {"tools/inside/fetcher.py", "mcp/http.py", "providers/http/trust.py"},
    "html_to_markdown": {"tools/inside/page.py"},
    "pypdf": {"tools/inside/pdf.py"},
    "yaml": {"project/front_matter.py"},
    "truststore": {"sandbox/network/proxy.py"},
    "tree_sitter": {"permissions/shell/grammar.py"},
    "tree_sitter_bash": {"permissions/shell/grammar.py"},
    "pygal": {"batch/plots.py"},
    "rich": {"cli/batch/display.py"},
    "keyring": {"providers/credentials.py"},
    "uvicorn": {"batch/ray/gateway.py"},
    "websockets": {"serve/", "acp/wire/websocket.py", "acp/remote/socket.py"},
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))


def imports(path: Path, module: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that the file imports, wherever in it: lazily and for types only as well."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module[: len(module) - node.level]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            # `from sanderling import session`: the names are the modules.
            if source == "sanderling":
                yield from ((node.lineno, f"sanderling.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, source


def breaches(package: Path) -> list[str]:
    """Each import that its file may not have, as `file:line: why`."""
    found = []
    for path in sorted(set(package.rglob("*.py")) - set(package.glob("providers/sample/*"))):
        name = path.relative_to(package).as_posix()
        here = name.split("/")[0].removesuffix(".py")
        module = ("sanderling", *path.relative_to(package).with_suffix("").parts)
        if here != "__init__" and here not in RANKS:
            found.append(f"{name}:1: '{here}' has no place in the layers")
            continue
        for line, imported in imports(path, module):
            top, _, rest = imported.partition(".")
            if top == "sanderling":
                there = rest.split(".")[0]
                if there and (PACKAGE / there).exists() | (PACKAGE / f"{there}.py").exists() | (
                    there in RANKS
                ):
                    is_allowed = there == here or RANKS.get(there, 99) < RANKS.get(here, -1)
                else:
                    is_allowed = True  # the package itself: its version
                why = f"'{here}' may not know '{there}'"
            else:
                is_allowed = top in sys.stdlib_module_names | EVERYWHERE or name.startswith(
                    tuple(CORNERS.get(top, ()))
                )
                why = f"'{top}' belongs to {sorted(CORNERS.get(top, ['nobody']))}"
            if not is_allowed:
                found.append(f"{name}:{line}: {why}")
    return found


def test_no_part_of_the_package_knows_one_that_it_may_not():
    assert breaches(PACKAGE) == []


@pytest.mark.parametrize(
    "lower", ["acp/wire", "changes/editing", "tools/commands", "providers/models"]
)
def test_a_lower_part_of_a_package_knows_none_of_its_other_parts(lower):
    package = f"sanderling.{lower.split('/')[0]}."
    for path in (PACKAGE / lower).rglob("*.py"):
        module = ("sanderling", *path.relative_to(PACKAGE).with_suffix("").parts)
        known = {name for _, name in imports(path, module) if name.startswith(package)}
        assert {name for name in known if lower.replace("/", ".") not in name} == set(), path


def module_of(path: Path) -> str:
    return ".".join(("sanderling", *path.relative_to(PACKAGE).with_suffix("").parts))


def test_no_module_leads_back_to_itself_not_even_for_types():
    files = {module_of(path).removesuffix(".__init__"): path for path in PACKAGE.rglob("*.py")}
    graph = {module: set[str]() for module in files}
    for module, path in files.items():
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                graph[module] |= {name if name in files else node.module for name in names}
        graph[module] &= files.keys() - {module}
    assert ("sanderling.tools.bash", "sanderling.tools.base") in (
        (module, known) for module, all_known in graph.items() for known in all_known
    )
    TopologicalSorter(graph).prepare()  # CycleError names the circle


def test_the_picture_of_the_rooms_has_all_of_them():
    picture = (ROOT / "doc" / "architecture.md").read_text().split("```")[1]
    assert {part for part in RANKS if not re.search(rf"\b{part}\b", picture)} == {"__main__"}


def test_each_package_says_what_lives_there():
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent != PACKAGE / "providers" / "sample":  # a project to play with
            assert ast.get_docstring(parsed(path)), path


@pytest.mark.parametrize(
    "face, more",
    [
        *((face, ()) for face in ("editor", "serve")),
        ("cli", ("checks",)),  # for its commands that open no session
    ],
)
def test_a_face_knows_an_agent_and_how_to_open_one_and_nothing_behind_it(face, more):
    may_know = {f"sanderling.conversation.{each}" for each in ("opening", *more)}
    for path in (PACKAGE / face).rglob("*.py"):
        module = ("sanderling", *path.relative_to(PACKAGE).with_suffix("").parts)
        known = {name for _, name in imports(path, module) if "sanderling.conversation" in name}
        assert {".".join(name.split(".")[:3]) for name in known} <= may_know, path


def test_whether_a_ground_confines_is_asked_where_it_is_judged_and_where_a_shell_starts():
    asking = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "environment.is_confined" in path.read_text()
        and path.relative_to(PACKAGE).parts[0] != "sandbox"
    }
    assert asking == {"permissions/gate.py", "tools/commands/shell.py"}


def test_plugin_knows_pynvim_the_standard_library_and_the_editor_face():
    for path in (ROOT / "rplugin").rglob("*.py"):
        for line, imported in imports(path, ("rplugin",)):
            top = imported.split(".")[0]
            is_allowed = top in sys.stdlib_module_names | {"pynvim"} or imported.startswith(
                "sanderling.editor"
            )
            assert is_allowed, f"{path.name}:{line}: {imported}"


@pytest.mark.parametrize(
    "name, source, why",
    [
        (
            "protocol/events.py",
            "import sanderling.session.session",
            "'protocol' may not know 'session'",
        ),
        ("text.py", "from sanderling.errors import ErrorKind", "'text' may not know 'errors'"),
        (
            "session/session.py",
            "from sanderling.conversation.turn import Turn",
            "'session' may not know 'conversation'",
        ),
        ("config.py", "from sanderling import session", "'config' may not know 'session'"),
        ("config.py", "from . import session", "'config' may not know 'session'"),
        (
            "providers/scripted.py",
            "from ..session import Session",
            "'providers' may not know 'session'",
        ),
        (
            "tools/bash.py",
            "def f():\n    from sanderling.conversation.conversation import x",
            "'tools' may not know 'conversation'",
        ),
        (
            "conversation/turn.py",
            "from sanderling.editor.frames import Frame",
            "'conversation' may not know 'editor'",
        ),
        ("editor/host.py", "import pynvim", "'pynvim' belongs to ['editor/bridge.py']"),
        ("tools/bash.py", "import httpx2", "'httpx2' belongs to ['mcp/', 'providers/']"),
        (
            "conversation/turn.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from anthropic.types import Message",
            "'anthropic' belongs to ['providers/anthropic/']",
        ),
        ("config.py", "import requests", "'requests' belongs to ['nobody']"),
        ("gossip.py", "", "'gossip' has no place in the layers"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, name, source, why):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(source)
    found = breaches(tmp_path)
    assert [breach.partition(": ")[2] for breach in found] == [why]


@pytest.mark.parametrize(
    "name, source",
    [
        (
            "providers/anthropic/provider.py",
            "import httpx2, anthropic, json, msgspec\nfrom sanderling.providers import Provider",
        ),
        ("providers/scripted.py", "from . import Provider\nfrom ..errors import ProviderError"),
        (
            "session/session.py",
            "from sanderling import __version__\nfrom sanderling.protocol.events import Prompt",
        ),
        ("editor/bridge.py", "import pynvim"),
        (
            "editor/host.py",
            "from sanderling.conversation.opening import open_conversation\nimport anyio.abc",
        ),
    ],
)
def test_an_import_downwards_is_none(tmp_path: Path, name, source):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(source)
    assert breaches(tmp_path) == []


# --- Lua ---------------------------------------------------------------------------------------------------------------

# A file may require those of its own folder and of the folders before it; one that stands in no folder, all of them.
FOLDERS = [
    *(
        "ui",
        "access",
        "config",
        "host",
        "session",
        "extend",
        "picker",
        "transcript",
        "editing",
        "code",
        "debugger",
        "approval",
    ),
    *("review", "proposals", "prompt", "status", "chat", "screens", "comments", "inline"),
]


def requires(path: Path) -> set[str]:
    """The modules that the file names, wherever in it: also those that it requires only when they are used."""
    code = re.sub(r"--[^\n]*", "", path.read_text())
    names = re.findall(
        r"(?:require\(?\s*|lazy\(|load_at\([^,]*, |loaded\[)['\"]sanderling\.?([\w.]*)['\"]", code
    )
    return {name or "init" for name in names}


LUA_FILES = {
    path.relative_to(LUA)
    .as_posix()
    .removesuffix(".lua")
    .removesuffix("/init")
    .replace("/", "."): path
    for path in LUA.rglob("*.lua")
}


def rank(name: str) -> int:
    folder = name.partition(".")[0]
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


def test_a_file_in_lua_requires_its_own_folder_and_lower_ones():
    known = {(name, each) for name, path in LUA_FILES.items() for each in requires(path)}
    assert {each for _, each in known} <= LUA_FILES.keys()
    assert {(name, each) for name, each in known if rank(each) > rank(name)} == set()


def test_the_folders_in_lua_are_described_in_their_order():
    folders = {path.name for path in LUA.iterdir() if path.is_dir()}
    assert folders == {*FOLDERS, "verbs"}
    words = (
        (ROOT / "doc" / "architecture.md").read_text().partition("The folders, lowest first:")[2]
    )
    listed = re.findall(r"`(\w+)`", words.partition("\n* ")[0])
    assert listed == [*FOLDERS, "verbs"]


OPENERS = "e|edit|ene|enew|vie|view|fin|find|sfind|tabfind|tabe|tabedit|sp|split|vs|vsplit|sv|sview|ped|pedit|dr|drop|bad|badd|arge|argedit|b|buffer|sb|sbuffer|bnext|bfirst|blast|ball|cc|cfirst|cnext|ll|lfirst|next|first|last|args|source"
MODIFIERS = r"(?:(?:silent!?|noautocmd|hide|keepalt|keepjumps|lockmarks|tab|botright|topleft|leftabove|vertical) )*"
LOADING = re.compile(
    # by functions, by vim.cmd.NAME, and by a command in a text: one that names a file, or could.
    r"\b(?:bufload|bufadd|uri_to_bufnr|nvim_win_set_buf|nvim_set_current_buf|show_document|apply_workspace_edit)\b"
    rf"|vim\.cmd\.(?:{OPENERS})\b"
    rf"|cmd = '(?:{OPENERS})'"
    rf"|(?:cmd\(\(?|cmd *, *\(?|exec2?\(|command\()['\"]{MODIFIERS}(?:{OPENERS})!?['\" ]"
)
OPENS = {
    # The chat's own buffers, and what they were put over.
    "chat.layout": [
        *("cmd('tab split'", "nvim_win_set_buf", "nvim_win_set_buf"),
        *("cmd = 'buffer'", "nvim_win_set_buf", "nvim_win_set_buf"),
    ],
    "chat.foreign": ["nvim_win_set_buf"],  # a buffer that a window shows
    "editing.disk": ["cmd('silent! keepalt keepjumps edit!'"],  # a loaded buffer, read again
    "review.commands": ["cmd , ('hide cc "],  # a file that is loaded
    "screens.trust": ["cmd(('tab sbuffer "],  # buffers of our own
    "approval.keys": ["cmd(('tab sbuffer "],
    "screens.jobs": ["vim.cmd.enew"],  # no file
    "host.install": ["vim.cmd.enew"],
}


def openings(text: str) -> list[str]:
    """What the Lua code says that could bring a file into a buffer."""
    code = re.sub(r"--\[\[.*?\]\]|--[^\n]*", "", text)
    return [each[0] for each in LOADING.finditer(code)]


def test_one_file_in_lua_opens_files():
    """Nothing of a project may run because the agent looks at a file: access/loading.lua sees to it, and all others ask it."""
    found = {name: openings(path.read_text()) for name, path in LUA_FILES.items()}
    assert "bufload" in found.pop("access.loading")
    assert {name: words for name, words in found.items() if words} == OPENS


@pytest.mark.parametrize(
    "code",
    [
        *("vim.fn.bufload(buf)", "vim.cmd.edit(path)", "vim.cmd.drop({ path })"),
        *("vim.cmd('silent edit ' .. path)", "vim.cmd(('keepalt tab sbuffer %d'):format(buf))"),
        *("vim.api.nvim_command('badd x')", "api.nvim_win_set_buf(win, buf)"),
        "api.nvim_cmd({ cmd = 'split', args = { path } }, {})",
        *('vim.api.nvim_exec2("view x", {})', "pcall(vim.cmd, 'edit x')"),
    ],
)
def test_an_opening_is_found(code):
    assert openings(code)


def test_only_the_table_of_icons_has_glyphs():
    """Patterns may have some: they are searched for in the host's words."""
    code = {
        name: re.sub(r"--[^\n]*|:(?:match|gsub)\('[^']*'", "", path.read_text())
        for name, path in LUA_FILES.items()
    }
    assert [name for name, text in code.items() if not text.isascii()] == ["ui.icons"]


def test_no_files_in_lua_require_each_other_in_a_circle():
    TopologicalSorter({name: requires(path) - {name} for name, path in LUA_FILES.items()}).prepare()
