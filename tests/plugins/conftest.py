"""
Neovims with the plugins of others, of which `PLUGINS` names a directory with checkouts: scripts/fetch_plugins.sh.

Each is set up as its users do, in an init.lua. Only the model is a script.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, ChildNvim, wait_until
from tests.nvim.conftest import Agent, screen, start_chat, start_screen, texts_told
from tests.rpc import NvimError

__all__ = ["screen", "start_chat", "start_screen"]
PLUGINS = os.environ.get("PLUGINS", "")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not PLUGINS:
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip("PLUGINS names no directory: fetch_plugins.sh"))


def missing(name: str) -> str:
    """Return why the plugin `name` cannot be used; empty if it can, or if it may be missing, as in `name?`."""
    if name.endswith("?"):
        return ""
    path = Path(PLUGINS, name)
    if not path.is_dir():
        return f"{name} is not in {PLUGINS}: scripts/fetch_plugins.sh"
    if name == "blink.cmp" and "blink.lib" in (path / "lua/blink/cmp/init.lua").read_text():
        return "this blink.cmp is not version 1"  # version 2 stops at a message in older Neovims
    return ""


class Configured(Agent):
    """A Neovim that has read an init.lua with plugins."""

    def when_free(self, condition: Callable[[], Any], what: str = "") -> None:
        """Wait until `condition` is true. While a plugin waits for a key, nothing is known."""
        wait_until(lambda: not self.is_blocked() and condition(), what)

    def sent(self) -> list[str]:
        """Return the user's prompts so far, as the model gets them."""
        messages = [each for each in self.logged_messages() if each["role"] == "user"]
        return [text for message in messages for text in texts_told(message)]


def add_to(child: ChildNvim, *names: str) -> None:
    """Put plugins on the runtime path of a Neovim that runs; the test is skipped without one of them."""
    for name in names:
        if reason := missing(name):
            pytest.skip(reason)
        child.command(f"set runtimepath+={Path(PLUGINS, name)}")


def show_last_screen(child: Configured) -> None:
    """Print what a failed test shows last."""
    if child.rpc.process.poll() is not None:
        return
    with suppress(NvimError, AssertionError, TimeoutError, OSError, EOFError):
        if child.is_blocked():
            child.feed("<CR><Esc>")  # out of a prompt for <Enter>, mostly
        print(child.messages(), child.screen_text(), sep="\n")


@pytest.fixture
def start(tmp_path: Path, project: Path) -> Iterator[Callable[..., Configured]]:
    """
    Start a Neovim with `plugins` on its runtime path, and `config`, Lua, in its init.lua; the model gives `replies`.

    Without one of them the test is skipped, unless its name ends with "?". With `is_managed`, only the plugins' paths are given, as `PLUGINS` in the Lua: a plugin manager loads them, and ours.
    """
    children: list[Configured] = []

    def start_with(
        plugins: list[str],
        config: str = "",
        replies: list[dict[str, Any]] | None = None,
        *,
        is_managed: bool = False,
        **screen: Any,
    ) -> Configured:
        if reason := "; ".join(missing(name) for name in plugins if missing(name)):
            pytest.skip(reason)
        used = [name for name in (name.removesuffix("?") for name in plugins) if not missing(name)]
        paths = {name: str(Path(PLUGINS, name)) for name in used}
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        script = tmp_path / f"script{len(children)}.json"
        script.write_text(json.dumps({"version": 1, "reply": replies or []}))
        options = {"provider": "scripted", "script": str(script)} if replies else {}
        init = tmp_path / f"init{len(children)}.lua"
        lines = [
            f"PLUGINS = vim.json.decode([==[{json.dumps(paths)}]==])",
            f"SANDERLING = {json.dumps(str(ROOT))}",
            f"OPTIONS = vim.json.decode([==[{json.dumps(options)}]==], {{ luanil = {{ object = true }} }})",
        ]
        if not is_managed:
            lines += [f"vim.opt.runtimepath:append({json.dumps(path)})" for path in paths.values()]
            lines += [
                f"vim.opt.runtimepath:append({json.dumps(path + '/after')})"
                for path in paths.values()
            ]
            lines.append(
                "vim.g.sanderling = vim.tbl_extend('force', vim.g.sanderling or {}, OPTIONS)"
            )
        init.write_text("\n".join([*lines, config]))
        root = {"plugin_root": tmp_path / "nothing"} if is_managed else {}
        child = Configured(home, project, {}, init=init, **root, **screen)
        children.append(child)
        child.record_events()
        return child

    yield start_with
    for child in children:
        show_last_screen(child)
        child.close()
