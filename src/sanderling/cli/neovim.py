"""`sanderling` without arguments, on a terminal: Neovim with the chat."""

import os
import shutil
import sys
from pathlib import Path

import msgspec

import sanderling

EXIT_USAGE = 2
NO_NEOVIM = "sanderling: there is no nvim on PATH: install Neovim 0.11 or later, or use sanderling -p 'PROMPT'\n"
NO_PLUGIN = (
    "This Neovim has no plugin Sanderling: install it as its README says, or use sanderling -p."
)
OPEN = """lua
local root = {root}
if vim.fn.exists(':AgentChat') == 0 and root ~= '' then
  vim.opt.runtimepath:prepend(root)
  vim.cmd.source(vim.fs.joinpath(root, 'plugin', 'sanderling.lua'))
end
if vim.fn.exists(':AgentChat') == 0 then
  vim.notify({no_plugin}, vim.log.levels.ERROR)
else
  vim.cmd.AgentChat()
end"""


def open_chat() -> int:
    """
    Replace this process by a Neovim that shows the chat. A user's own installation of the plugin comes before this one's.

    Returns an exit status only if there is no Neovim.
    """
    if nvim := neovim_program():
        command = OPEN.format(root=_as_lua(_plugin()), no_plugin=_as_lua(NO_PLUGIN))
        os.execv(nvim, [nvim, "-c", " ".join(command.split("\n"))])  # noqa: S606 - not through a shell
    sys.stderr.write(NO_NEOVIM)
    return EXIT_USAGE


def neovim_program() -> str:
    """Return the Neovim on PATH, or that of this environment; "" without one."""
    environment = Path(sys.prefix, "bin/nvim")
    return shutil.which("nvim") or (str(environment) if environment.exists() else "")


def _plugin() -> str:
    """Return the directory of the plugin that this package belongs to; "" if only the package is installed."""
    root = Path(sanderling.__file__).resolve().parents[2]
    return str(root) if (root / "plugin/sanderling.lua").is_file() else ""


def _as_lua(text: str) -> str:
    return msgspec.json.encode(text).decode()
