"""MCP servers in the form of a README: JSON of the user's own, `args` in TOML, and what is said of JSON that is nearly right."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from sanderling.config.file import parse, setup_layer
from sanderling.config.layers import own_layers
from sanderling.config.servers_file import parse_servers, servers_of
from sanderling.errors import ConfigError
from sanderling.mcp.servers import filled_in, load_servers
from sanderling.project.project import with_project
from sanderling.project.trust.trust import Trust

CONTEXT7 = {"command": "npx", "args": ["-y", "@upstash/context7-mcp"]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "NVIM_APPNAME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".config/sanderling").mkdir(parents=True)
    return tmp_path


def write_json(home: Path, **servers: object) -> None:
    text = json.dumps({"mcpServers": servers})
    (home / ".config/sanderling/mcp.json").write_text(text)


def test_servers_of_mcp_json_are_the_users_own(home):
    write_json(
        home,
        context7={
            **CONTEXT7,
            "alwaysAllow": ["x"],
            "env": {"A": "${A:-5$}"},
            "hosts": ["a.example"],
        },
        search={"httpUrl": "https://a.example/mcp", "headers": {"X": "${KEY}"}},
        off={"command": "x", "disabled": True},
    )
    servers = load_servers(own_layers().settings().mcp_servers)
    assert servers["context7"].command == ("npx", "-y", "@upstash/context7-mcp")
    assert servers["context7"].hosts == ("a.example",)
    assert filled_in(servers["context7"].env, {}).values == {"A": "5$"}
    assert servers["search"].url == "https://a.example/mcp"
    assert servers["search"].headers == {"X": "${KEY}"}
    assert not servers["off"].enabled


@pytest.mark.parametrize("value", [None, ""])
def test_a_default_stands_for_a_variable_that_is_not_set_or_empty(home, monkeypatch, value):
    monkeypatch.delenv("HOST", raising=False)
    if value is not None:
        monkeypatch.setenv("HOST", value)
    write_json(home, it={"url": "https://${HOST:-a.example}/mcp"})
    assert load_servers(own_layers().settings().mcp_servers)["it"].url == "https://a.example/mcp"


def test_config_toml_replaces_a_whole_server_of_mcp_json(home):
    write_json(home, it={**CONTEXT7, "env": {"A": "1"}}, other=CONTEXT7)
    (home / ".config/sanderling/config.toml").write_text(
        '[mcp.servers.it]\nurl = "https://a.example/mcp"\n'
    )
    servers = load_servers(own_layers().settings().mcp_servers)
    assert (servers["it"].url, servers["it"].env) == ("https://a.example/mcp", {})
    assert servers["other"].command[0] == "npx"


def test_config_toml_adds_keys_to_a_server_of_mcp_json(home):
    write_json(home, it=CONTEXT7)
    (home / ".config/sanderling/config.toml").write_text(
        '[mcp.servers.it]\nhosts = ["a.example"]\n'
    )
    it = load_servers(own_layers().settings().mcp_servers)["it"]
    assert (it.command[0], it.hosts) == ("npx", ("a.example",))


def test_a_mistake_in_mcp_json_has_its_line(home):
    text = (
        '{\n  "mcpServers": {\n    "it": {\n      "command": "x",\n      "args": "y"\n    }\n  }\n}'
    )
    (home / ".config/sanderling/mcp.json").write_text(text)
    with pytest.raises(ConfigError, match=r"^~/\.config/sanderling/mcp\.json:5: .*list of strings"):
        own_layers()


def test_a_variable_that_is_not_set_has_its_line():
    text = (
        '{"mcpServers": {"a": {"command": "x"},\n"it": {"command": "x",\n"args": ["${NOT_SET}"]}}}'
    )
    [mistake] = parse_servers("mcp.json", text, {})[1]
    assert (
        str(mistake) == "mcp.json:2: MCP server it: it needs the variable NOT_SET, which is not set"
    )


def test_values_of_variables_are_not_shown():
    text = '{"mcpServers": {"it": {"command": "${BIN}", "args": ["$X"]}}}'
    layer, mistakes = parse_servers("mcp.json", text, {"BIN": "secret"})
    assert mistakes == []
    assert layer.options["mcp"]["servers"]["it"]["command"] == ["secret", "$X"]
    assert layer.written["mcp"]["servers"]["it"]["command"][0] == "${BIN}"


def test_mcp_json_inside_a_project_counts_only_while_it_is_trusted(home):
    write_json(home, it=CONTEXT7)
    project = home / ".config"
    trust = Trust(str(home / "state"), str(project))
    assert with_project(own_layers(), trust).settings().mcp_servers == {}
    data = (project / "sanderling/mcp.json").read_bytes()
    trust.trust({"sanderling/mcp.json": sha256(data).hexdigest()})
    assert list(with_project(own_layers(), trust).settings().mcp_servers) == ["it"]


@pytest.mark.parametrize(
    "written",
    [
        'command = "npx"\nargs = ["-y", "it"]',
        'command = ["npx"]\nargs = ["-y", "it"]',
        'command = ["npx", "-y", "it"]',
    ],
)
def test_toml_takes_program_and_args(written):
    layer, mistakes = parse("config.toml", f"[mcp.servers.it]\n{written}\n")
    assert mistakes == []
    assert layer.options["mcp"]["servers"]["it"] == {"command": ["npx", "-y", "it"]}


def test_setup_takes_program_and_args():
    layer = setup_layer({"mcp": {"servers": {"it": {"command": "npx", "args": ["-y"]}}}})
    assert layer.options["mcp"]["servers"]["it"] == {"command": ["npx", "-y"]}


def test_args_that_are_no_list_have_their_line():
    [mistake] = parse("config.toml", '[mcp.servers.it]\ncommand = "npx"\nargs = "-y"')[1]
    assert str(mistake) == "config.toml:3: 'mcp.servers.it.args': must be a list of strings"


@pytest.mark.parametrize(
    "text, line, words",
    [
        ('{"mcpServers": {\n"a": {"command": "x"},\n}}', 2, "JSON allows no comma before }"),
        ('{"mcpServers": {"a": {"command": "x", "args": [\n"a",\n]}}}', 2, "no comma before ]"),
        ('{\n// mine\n"mcpServers": {}}', 2, "JSON has no comments"),
        ('{"mcpServers": {} /* mine */}', 1, "JSON has no comments"),
        ("{'mcpServers': {}}", 1, "straight double quotes"),
        ("{\u201cmcpServers\u201d: {}}", 1, "straight double quotes"),
        ('{"mcpServers": {"a": {...}}}', 1, "replace the placeholder"),
        ('{"mcpServers": {\n"a": {}', 2, "it ends too early"),
        ('"mcpServers": {"a": {}}', 1, "the braces around it are missing"),
        ("\n", 1, "it is empty"),
        ("[]", 1, "it must be an object"),
        ('{"mcpServers": []}', 1, "must be an object of servers by name"),
        ('{"command": "npx", "args": []}', 1, "this server has no name"),
        ('{"context7": {"command": "npx"}}', 1, 'context7: put servers inside "mcpServers"'),
        ('{"servers": {"a": {"command": "npx"}}}', 1, 'rename it "mcpServers"'),
        ('{"context_servers": {"a": {"url": "x"}}}', 1, 'rename it "mcpServers"'),
        ('{"mcpServers": {"a": tru}}', 1, "not valid JSON"),
        ("[" * 9999, 0, "nested too deeply"),
    ],
)
def test_json_that_is_nearly_right_is_explained(text, line, words):
    [mistake] = parse_servers("mcp.json", text)[1]
    assert words in mistake.message
    assert mistake.location.line == line


def test_a_file_without_servers_declares_none():
    assert servers_of('{"numStartups": 3, "projects": {"a": {"x": 1}}}') == {}


@pytest.mark.parametrize("text", ['{"mcpServers": {"a": {}}}', '\n"mcpServers": {\n}'])
def test_json_in_config_toml_is_sent_to_mcp_json(text):
    [mistake] = parse("config.toml", text)[1]
    assert "belongs in mcp.json" in mistake.message


def test_mcp_servers_in_toml_is_named_as_toml_has_it(home):
    (home / ".config/sanderling/config.toml").write_text('[mcpServers.x]\ncommand = "x"\n')
    with pytest.raises(ConfigError, match=r"config\.toml:1: .*did you mean 'mcp\.servers'"):
        own_layers()
