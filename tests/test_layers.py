"""Who may know whom: the imports of the package against the layers of doc/architecture.md."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "sanderling"
LUA = ROOT / "lua" / "sanderling"

# A part may import itself and the parts of the layers above it in this list.
LAYERS = (
    {"messages", "errors", "visible", "remedies", "plain_files"},
    {"events", "config", "output", "history"},
    {"credentials", "trust", "usage", "session_log"},
    {"session", "prompt", "sandbox", "providers", "shell_grammar"}
    | {"instructions", "slash_commands", "retries", "waiting"},
    {"shell_programs", "compaction", "transcript", "recording", "reply"},
    {"permissions", "approvals", "session_store"},
    {"rules"},
    {"tools", "commands"},
    {"tool_uses"},
    {"gate"},
    {"surroundings"},
    {"model_calls", "notes"},
    {"compactor"},
    {"orchestrator"},
    {"editor", "acp", "print_mode"},
    {"__main__", "health"},
)
DRAWING = {"render", "turns", "command_blocks", "folds", "rows", "history", "footer", "retry"} | {
    "waiting",
    "report",
    "words",
    "highlight",
    "tools",
    "files",
    "scratch",
}
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
EVERYWHERE = {"anyio", "msgspec"}
CORNERS = {
    "pynvim": {"editor/bridge.py"},
    "anthropic": {"providers/anthropic.py"},
    "httpx2": {"providers/anthropic.py"},
    "openai": {"providers/openai.py"},
    "landlock": {"sandbox/landlock.py"},
    "h11": {"sandbox/network.py"},
    "mcp": {"tools/mcp.py"},
    "httpcore2": {"tools/fetcher.py"},
    "html_to_markdown": {"tools/fetcher.py"},
    "tree_sitter": {"shell_grammar.py"},
    "tree_sitter_bash": {"shell_grammar.py"},
    "keyring": {"credentials.py"},
}


def imports(path: Path, module: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that the file imports, wherever in it: lazily and for types only as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module[: len(module) - node.level]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            if (
                source == "sanderling"
            ):  # `from sanderling import session`: the names are the modules
                yield from ((node.lineno, f"sanderling.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, source


def breaches(package: Path) -> list[str]:
    """Each import that its file may not have, as `file:line: why`."""
    found = []
    for path in sorted(set(package.rglob("*.py")) - set(package.glob("sample/*"))):
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
                is_allowed = top in sys.stdlib_module_names | EVERYWHERE or name in CORNERS.get(
                    top, ()
                )
                why = f"'{top}' belongs to {sorted(CORNERS.get(top, ['nobody']))}"
            if not is_allowed:
                found.append(f"{name}:{line}: {why}")
    return found


def test_no_part_of_the_package_knows_one_that_it_may_not():
    assert breaches(PACKAGE) == []


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
        ("events.py", "import sanderling.session", "'events' may not know 'session'"),
        (
            "messages.py",
            "from sanderling.errors import ErrorKind",
            "'messages' may not know 'errors'",
        ),
        (
            "session.py",
            "from sanderling.providers import Provider",
            "'session' may not know 'providers'",
        ),
        ("session.py", "from sanderling import prompt", "'session' may not know 'prompt'"),
        ("session.py", "from . import prompt", "'session' may not know 'prompt'"),
        (
            "providers/scripted.py",
            "from ..session import Session",
            "'providers' may not know 'session'",
        ),
        (
            "tools/bash.py",
            "def f():\n    from sanderling.orchestrator import x",
            "'tools' may not know 'orchestrator'",
        ),
        (
            "orchestrator.py",
            "from sanderling.editor.frames import Frame",
            "'orchestrator' may not know 'editor'",
        ),
        ("editor/host.py", "import pynvim", "'pynvim' belongs to ['editor/bridge.py']"),
        (
            "providers/scripted.py",
            "import httpx2",
            "'httpx2' belongs to ['providers/anthropic.py']",
        ),
        (
            "orchestrator.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from anthropic.types import Message",
            "'anthropic' belongs to ['providers/anthropic.py']",
        ),
        ("config.py", "import requests", "'requests' belongs to ['nobody']"),
        ("gossip.py", "", "'gossip' has no place in the layers"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, name, source, why):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    found = breaches(tmp_path)
    assert [breach.partition(": ")[2] for breach in found] == [why]


@pytest.mark.parametrize(
    "name, source",
    [
        (
            "providers/anthropic.py",
            "import httpx2, anthropic, json, msgspec\nfrom sanderling.providers import Provider",
        ),
        ("providers/anthropic.py", "from . import Provider\nfrom ..errors import ProviderError"),
        ("session.py", "from sanderling import __version__\nfrom sanderling.events import Prompt"),
        ("editor/bridge.py", "import pynvim"),
        ("editor/host.py", "from sanderling.orchestrator import Orchestrator\nimport anyio.abc"),
    ],
)
def test_an_import_downwards_is_none(tmp_path: Path, name, source):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    assert breaches(tmp_path) == []


# --- Lua ---------------------------------------------------------------------------------------------------------------

RECEIVERS = {"chat", "approval", "status"}


def requires(path: Path) -> set[str]:
    code = re.sub(r"--[^\n]*", "", path.read_text())
    return set(re.findall(r"require\(?\s*['\"]sanderling\.([\w.]+)['\"]", code))


def test_receivers_in_lua_never_require_each_other():
    assert (LUA / "chat.lua").exists()
    for name in RECEIVERS:
        path = LUA / f"{name}.lua"
        known = requires(path) & RECEIVERS - {name} if path.exists() else set()
        # chat.lua loads the status line once, at its end, so that it hears events; it calls nothing of it.
        assert known <= ({"status"} if name == "chat" else set()), f"{name}.lua requires {known}"


def test_chat_calls_nothing_of_the_status_line():
    uses = re.findall(
        r"^.*require\('sanderling\.status'\).*$", (LUA / "chat.lua").read_text(), re.MULTILINE
    )
    assert uses == ["require('sanderling.status')"]


@pytest.mark.parametrize("name", sorted(DRAWING))
def test_what_draws_the_transcript_knows_nothing_of_chats_and_their_windows(name):
    assert requires(LUA / f"{name}.lua") <= DRAWING | {
        "config",
        "host",
        "locked",
        "message",
        "sandbox",
    }


@pytest.mark.parametrize("name", ["highlight", "locked", "rows", "scratch", "words"])
def test_what_all_that_draws_builds_on_requires_nothing(name):
    assert requires(LUA / f"{name}.lua") == set()


def test_host_in_lua_knows_nobody_who_receives():
    # It names itself where Neovim is to run its autocommands.
    assert requires(LUA / "host.lua") <= {"config", "host", "files"}
