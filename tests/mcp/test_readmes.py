"""
Servers of npm and PyPI, added with the line of their README and started in the sandbox.

Each begins without any access. What `sanderling mcp check` then says is missing is copied into config.toml, as a user would, until the
server is ready.
"""

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import prove
from tests.mcp.test_cli import Shell, shell  # noqa: F401 - a fixture

MAX_COPIED = 6
ADVICE = re.compile(r"(?:add|set) `(\w+ = \[.*?\])` in (\[mcp\.servers\.\w+\])")
GONE = re.compile(
    r"E404|404 Not Found|No matching version|not found in the package registry|no versions of"
)

READMES = {
    "thinking": "npx -y @modelcontextprotocol/server-sequential-thinking",
    "everything": "npx -y @modelcontextprotocol/server-everything",
    "filesystem": "npx -y @modelcontextprotocol/server-filesystem .",
    "memory": "npx -y @modelcontextprotocol/server-memory",
    "context7": "npx -y @upstash/context7-mcp",
    "playwright": "npx @playwright/mcp@latest",
    "devtools": "npx -y chrome-devtools-mcp@latest",
    "notion": "npx -y @notionhq/notion-mcp-server",
    "mongodb": "npx -y mongodb-mcp-server@latest --readOnly",
    "fetch": "uvx mcp-server-fetch",
    "git": "uvx mcp-server-git",
    "time": "uvx mcp-server-time",
    "markitdown": "uvx markitdown-mcp",
    "motherduck": "uvx mcp-server-motherduck --db-path :memory: --read-write",
}


@prove
@pytest.mark.parametrize("name", READMES)
def test_a_server_is_ready_after_the_lines_that_check_prints(shell: Shell, name: str):  # noqa: F811
    words = READMES[name].split()
    if not shutil.which(words[0]):
        pytest.skip(f"there is no {words[0]}")
    assert shell.run("add", name, "--timeout", "300", "--", *words).returncode == 0
    tables: dict[str, dict[str, str]] = {}
    for _ in range(MAX_COPIED):
        [row] = shell.rows("check", name)
        if not (found := ADVICE.search(row.get("error", ""))):
            break
        line, table = found.groups()
        tables.setdefault(table, {})[line.partition(" ")[0]] = line
        shell.config.write_text(
            "".join(f"{each}\n" + "\n".join(lines.values()) for each, lines in tables.items())
        )
    if GONE.search(row.get("error", "")):
        pytest.skip(f"{words[-1]} is gone: {row['error']}")
    assert row["state"] == "ready", row
    assert row["tools"] >= 1
    assert not [each for each in Path(shell.project).iterdir() if each.name != ".git"]
