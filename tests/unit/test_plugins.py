"""Agent Plugins 1.0.0: which directories are plugins, what of them is used, and what is not, with the reason."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_trust import write

from sanderling.config import Layer
from sanderling.config.layers import Layers
from sanderling.errors import ConfigError
from sanderling.mcp.servers import filled_in, load_servers
from sanderling.project.plugins import data_directory
from sanderling.project.plugins.installed import Broken, Plugin, find_plugins, read_plugin
from sanderling.project.project import Project, with_plugins, with_project
from sanderling.project.skills import Skill, Skipped
from sanderling.project.trust.trust import Trust

SCHEMA = "https://agent-plugins.org/schemas/{}/{}.schema.json"
MANIFEST = {"$schema": SCHEMA.format("1.0.0", "plugin"), "name": "tools"}
SKILL = "---\nname: {0}\ndescription: Does it.\n---\nDo it with {0}.\n"
STATE = "/nowhere/state"


def servers(**declared: Any) -> dict[str, Any]:
    return {"$schema": SCHEMA.format("1.0.0", "mcp"), "mcpServers": declared}


def stdio(command: str = "node", **more: Any) -> dict[str, Any]:
    return {"type": "stdio", "command": command, **more}


def http(url: str = "https://tools.example/mcp", **more: Any) -> dict[str, Any]:
    return {"type": "streamable-http", "url": url, **more}


def make(
    root: Path, manifest: Any = MANIFEST, mcp: Any = None, skills: tuple[str, ...] = ()
) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in (("plugin.json", manifest), ("mcp.json", mcp)):
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (root / name).write_text(text)
    for name in skills:
        write(root, f"skills/{name}/SKILL.md", SKILL.format(name))
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "plugin"


def manifest_problem(root: Path, manifest: Any) -> str:
    make(root, manifest)
    with pytest.raises(ConfigError) as error:
        read_plugin(str(root), STATE)
    return str(error.value)


def server_problem(root: Path, declared: Any, name: str = "bad") -> str:
    """Return why the server `bad` is not used, after a check that the one next to it is."""
    make(root, mcp=servers(**{name: declared, "good": stdio()}))
    plugin = read_plugin(str(root), STATE)
    assert list(plugin.servers) == ["good"]
    (problem,) = plugin.problems
    assert problem.startswith("mcp.json: server '")
    return problem.partition("is not used: ")[2]


# --- the manifest ------------------------------------------------------------------------------------------------------


def test_a_name_and_the_schema_are_enough(root):
    plugin = read_plugin(str(make(root)), STATE)
    assert (plugin.name, plugin.servers, plugin.skills(), plugin.problems) == ("tools", {}, [], ())


def test_metadata_is_checked_by_its_types_only(root):
    metadata = {
        "version": "latest",
        "description": "Tools.",
        "author": {"name": "A", "email": "no address", "url": "nowhere"},
        "homepage": "?",
        "repository": "",
        "license": "mine",
        "keywords": ["a"],
        "extensions": {"com.example.client": {"anything": [1]}},
    }
    plugin = read_plugin(str(make(root, MANIFEST | metadata)), STATE)
    assert plugin.manifest.version == "latest"
    assert plugin.manifest.author.email == "no address"
    assert plugin.problems == ()


@pytest.mark.parametrize("name", ["a", "lint3r", "my-plugin", "acme.tools", "a-.b", "x" * 64])
def test_valid_names(root, name):
    assert read_plugin(str(make(root, MANIFEST | {"name": name})), STATE).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "My-Plugin",
        "-start",
        "end.",
        "has--double",
        "too..many",
        "a_b",
        "x" * 65,
        "..",
        "a/b",
        "a\n",
        "é",
        "a\u202eb",
        7,
        None,
        ["a"],
    ],
)
def test_invalid_names_reject_the_plugin(root, name):
    assert "its `name` must have" in manifest_problem(root, MANIFEST | {"name": name})


def test_a_plugin_without_a_name_says_so(root):
    manifest = {"$schema": MANIFEST["$schema"], "nam": "tools"}
    assert manifest_problem(root, manifest).endswith("it has no `name`")


def test_unknown_fields_are_reported_and_ignored(root):
    more = {"skills": "./elsewhere", "mcpServers": {"x": stdio()}, "\x1b[2J": 1}
    write(root, "elsewhere/one/SKILL.md", SKILL.format("one"))
    plugin = read_plugin(str(make(root, MANIFEST | more, skills=("two",))), STATE)
    assert plugin.problems == (
        "plugin.json: it has the unknown field `skills`, which is ignored",
        "plugin.json: it has the unknown field `mcpServers`, which is ignored",
        "plugin.json: it has the unknown field `<U+001B>[2J`, which is ignored",
    )
    assert plugin.servers == {}
    assert [skill.name for skill in plugin.skills() if isinstance(skill, Skill)] == ["two"]


@pytest.mark.parametrize("extensions", [False, [], "x", None, 3])
def test_extensions_that_are_no_object_are_reported_and_ignored(root, extensions):
    plugin = read_plugin(str(make(root, MANIFEST | {"extensions": extensions})), STATE)
    assert plugin.problems == ("plugin.json: its `extensions` is not an object, which is ignored",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 1},
        {"description": None},
        {"author": "me"},
        {"author": {"name": "A", "twitter": "a"}},
        {"author": {"email": 1}},
        {"keywords": "a"},
        {"keywords": ["a", 1]},
        {"homepage": {}},
        {"license": ["MIT"]},
        {"extensions": {"com.example.client": 1}},
    ],
)
def test_other_violations_reject_the_plugin(root, wrong):
    make(root, MANIFEST | wrong, mcp=servers(a=stdio()), skills=("one",))
    assert manifest_problem(root, MANIFEST | wrong).startswith("plugin.json: Expected ") or (
        "unknown field `twitter`" in manifest_problem(root, MANIFEST | wrong)
    )


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        (" " * 300_000, "more than 262,144 bytes"),
    ],
)
def test_a_file_that_is_no_object_rejects_the_plugin(root, text, why):
    assert why in manifest_problem(root, text)


def test_invalid_utf8_rejects_the_plugin(root):
    make(root)
    (root / "plugin.json").write_bytes(b'{"name": "a\xff"}')
    with pytest.raises(ConfigError, match="not valid JSON"):
        read_plugin(str(root), STATE)


@pytest.mark.parametrize(
    "schema, why",
    [
        (None, 'must have "$schema": "https://agent-plugins.org/schemas/1.0.0/plugin'),
        ("", "must have"),
        (SCHEMA.format("1.0.0", "mcp"), "must have"),
        (SCHEMA.format("1.0.0", "plugin") + "#", "must have"),
        (SCHEMA.format("2.1.0", "plugin"), "needs version 2.1.0 of Agent Plugins"),
    ],
)
def test_only_the_known_version_of_the_specification_is_read(root, schema, why):
    assert why in manifest_problem(root, MANIFEST | {"$schema": schema})


def test_a_directory_without_a_manifest_is_no_plugin(root):
    root.mkdir()
    with pytest.raises(ConfigError, match=r"there is no plugin\.json"):
        read_plugin(str(root), STATE)


def test_a_manifest_must_be_a_file_inside_the_plugin(root, tmp_path):
    make(tmp_path / "other")
    root.mkdir()
    manifest = root / "plugin.json"
    manifest.symlink_to(tmp_path / "other/plugin.json")
    with pytest.raises(ConfigError, match="leads out of the plugin"):
        read_plugin(str(root), STATE)
    manifest.unlink()
    os.mkfifo(manifest)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_plugin(str(root), STATE)
    manifest.unlink()
    write(root, "real.json", json.dumps(MANIFEST))
    manifest.symlink_to("real.json")
    assert read_plugin(str(root), STATE).name == "tools"


# --- servers -----------------------------------------------------------------------------------------------------------


def test_only_the_two_placeholders_are_replaced_and_only_once(root, monkeypatch):
    monkeypatch.setenv("HIDDEN", "secret")
    (root / "${PLUGIN_DATA}").mkdir(parents=True)
    inner = make(root / "${PLUGIN_DATA}/plugin", mcp=None)
    literal = "${HOME}|$HIDDEN|${PLUGIN_ROOT_X}|$PLUGIN_ROOT|$$|${PLUGIN_ROOT:-x}"
    declared = stdio(
        args=["${PLUGIN_ROOT}", "", "with blanks", literal, "${PLUGIN_DATA}/x${PLUGIN_DATA}"],
        env={
            "A": "${PLUGIN_ROOT}|${PLUGIN_DATA}|${PLUGIN_ROOT}",
            "B": literal,
            "${PLUGIN_ROOT}": "k",
        },
    )
    make(inner, mcp=servers(a=declared))
    tables = read_plugin(str(inner), STATE).servers
    data = data_directory(STATE, "tools")
    server = load_servers(tables)["a"]
    assert server.command == ("node", str(inner), "", "with blanks", literal, f"{data}/x{data}")
    variables = filled_in(server.env).values
    assert variables == {
        "A": f"{inner}|{data}|{inner}",
        "B": literal,
        "${PLUGIN_ROOT}": "k",
        "PLUGIN_ROOT": str(inner),
        "PLUGIN_DATA": data,
    }
    assert (server.cwd, server.paths, server.write_paths) == (str(inner), (str(inner),), (data,))
    assert not server.pass_env


@pytest.mark.parametrize(
    "cwd, where",
    [
        ("./", "{root}"),
        ("./work", "{root}/work"),
        ("./work/../work", "{root}/work"),
        ("./inside", "{root}/work"),
        ("${PLUGIN_ROOT}", "{root}"),
        ("${PLUGIN_ROOT}/work", "{root}/work"),
        ("${PLUGIN_DATA}", "{data}"),
        ("${PLUGIN_DATA}/later", "{data}/later"),
    ],
)
def test_valid_working_directories(root, cwd, where):
    (root / "work").mkdir(parents=True)
    (root / "inside").symlink_to("work")
    make(root, mcp=servers(a=stdio(cwd=cwd)))
    plugin = read_plugin(str(root), STATE)
    assert plugin.problems == ()
    wanted = where.format(root=root, data=data_directory(STATE, "tools"))
    assert plugin.servers["a"]["cwd"] == wanted


@pytest.mark.parametrize(
    "cwd",
    [
        "",
        ".",
        "work",
        "..",
        "./..",
        "../plugin",
        "/tmp",
        "~",
        "./out",
        "./out/deeper",
        "./file",
        "./missing",
        "${PLUGIN_ROOT}/..",
        "${PLUGIN_ROOT}/out",
        "${PLUGIN_ROOT}x",
        "$PLUGIN_ROOT",
        "${PLUGIN_DATA}/..",
        "${PLUGIN_DATA}/../other",
        "${PLUGIN_DATA}x",
        "${HOME}",
        "./a\x00b",
    ],
)
def test_other_working_directories_reject_the_server(root, tmp_path, cwd):
    (tmp_path / "outside/deeper").mkdir(parents=True)
    make(root)
    (root / "out").symlink_to("../outside")
    write(root, "file", "")
    assert "`cwd`" in server_problem(root, stdio(cwd=cwd))


def test_a_link_in_the_data_directory_does_not_lead_out_of_it(root, tmp_path):
    state = tmp_path / "state"
    data = Path(data_directory(str(state), "tools"))
    data.mkdir(parents=True)
    (data / "home").symlink_to(tmp_path)
    make(root, mcp=servers(a=stdio(cwd="${PLUGIN_DATA}/home")))
    plugin = read_plugin(str(root), str(state))
    assert plugin.servers == {}
    assert "leads out of ${PLUGIN_DATA}" in plugin.problems[0]


def test_a_program_of_the_plugin_is_one_word_with_its_blanks(root):
    write(root, "bin/a tool.sh", "#!/bin/sh\n")
    make(root, mcp=servers(a=stdio("./bin/a tool.sh", args=["b"])))
    assert read_plugin(str(root), STATE).servers["a"]["command"] == [f"{root}/bin/a tool.sh", "b"]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "../bin/x",
        "bin/x",
        "/bin/sh",
        "./missing",
        "./bin",
        "./..",
        "./out",
        "~/x",
        "~",
        "./a\x00",
        "${PLUGIN_ROOT}/bin/x",
        "./${PLUGIN_ROOT}/bin/x",
        "node server.js --port 80",
        1,
        None,
        ["node"],
    ],
)
def test_other_commands_reject_the_server(root, command):
    make(root)
    write(root, "bin/x", "#!/bin/sh\n")
    (root / "out").symlink_to("/bin/sh")
    assert "command" in server_problem(root, {"type": "stdio", "command": command})


@pytest.mark.parametrize(
    "declared, why",
    [
        ({"command": "node"}, "missing required field `type`"),
        ({"type": "stdio"}, "missing required field `command`"),
        ({"type": "websocket", "url": "https://x.example"}, "Invalid value 'websocket'"),
        ({"type": "http", "url": "https://x.example"}, "Invalid value 'http'"),
        (stdio(url="https://x.example"), "unknown field `url`"),
        (stdio(headers={}), "unknown field `headers`"),
        (stdio(timeout=3), "unknown field `timeout`"),
        (stdio(args="x"), "`array`, got `str`"),
        (stdio(args=[1]), "`str`, got `int`"),
        (stdio(args=["\0"]), "NUL"),
        (stdio(env={"A": 1}), "`str`, got `int`"),
        (stdio(env={"A": "\0"}), "NUL"),
        (stdio(env={"PLUGIN_ROOT": "/"}), "`env` must not set PLUGIN_ROOT"),
        (stdio(env={"PLUGIN_DATA": "/"}), "`env` must not set PLUGIN_DATA"),
        (stdio(env={"A=B": "/"}), "not the name of a variable"),
        (stdio(env={"": "/"}), "not the name of a variable"),
        (stdio(cwd=None), "`str`, got `null`"),
        (http(command="x"), "unknown field `command`"),
        (http(""), "length >= 1"),
        (http("tools.example/mcp"), "`url`"),
        (http("ftp://tools.example"), "`url`"),
        (http("https:///mcp"), "`url`"),
        (http("https://tools.example:port/"), "`url`"),
        (http("http://tools.example/mcp"), "except on this machine"),
        (http("http://a.localhost/mcp"), "except on this machine"),
        (http("http://10.0.0.1/mcp"), "except on this machine"),
        (http("https://me@tools.example/"), "must not have a user"),
        (http("https://me:word@tools.example/"), "must not have a user"),
        (http("https://tools.example/#part"), "must not have a user or a #"),
        (http("https://tools.example/\n"), "`url`"),
        (http(headers={"X-A": "1", "x-a": "2"}), "the header x-a twice"),
        (http(headers={"X A": "1"}), "not the name of a header"),
        (http(headers={"": "1"}), "not the name of a header"),
        (http(headers={"X-A": "1\r\nX-B: 2"}), "invalid character"),
        (http(headers={"X-A": 1}), "`str`, got `int`"),
        ({"type": "sse", "url": "https://x.example"}, "`sse` is not supported"),
        ("node", "Expected `object`"),
        (None, "Expected `object`"),
    ],
)
def test_a_server_with_a_mistake_is_left_out_and_the_others_are_used(root, declared, why):
    assert why in server_problem(root, declared)


@pytest.mark.parametrize("name", ["", "-", "\x1b[31mred", "a\u202eb", "a\nb"])
def test_a_server_whose_name_cannot_be_shown_is_left_out(root, name):
    assert "its name needs" in server_problem(root, stdio(), name)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/a?b=$HOME",
        "http://localhost/",
        "http://[::1]:1/",
        "http://127.9.9.9/",
    ],
)
def test_servers_over_http_are_taken_as_they_are(root, url):
    headers = {"X-Tenant": "${PLUGIN_ROOT} $HOME"}
    make(root, mcp=servers(a=http(url, headers=headers)))
    server = load_servers(read_plugin(str(root), STATE).servers)["a"]
    assert server.url == url
    assert filled_in(server.headers).values == headers


@pytest.mark.parametrize(
    "mcp, why",
    [
        ('{"mcpServers":}', "not valid JSON"),
        ([], "not a JSON object"),
        ({"mcpServers": {}}, 'must have "$schema"'),
        (servers() | {"inputs": []}, "unknown field `inputs`"),
        (servers() | {"mcpServers": []}, "`mcpServers` must be an object"),
        ({"$schema": SCHEMA.format("1.0.0", "mcp")}, "`mcpServers` must be an object"),
        (servers() | {"$schema": SCHEMA.format("1.1.0", "mcp")}, "needs version 1.1.0"),
        (servers() | {"$schema": SCHEMA.format("1.0.0", "plugin")}, 'must have "$schema"'),
    ],
)
def test_a_wrong_file_of_servers_leaves_the_skills(root, mcp, why):
    plugin = read_plugin(str(make(root, mcp=mcp, skills=("one",))), STATE)
    assert plugin.servers == {}
    (problem,) = plugin.problems
    assert problem.startswith("mcp.json: it")
    assert why in problem
    assert [skill.name for skill in plugin.skills() if isinstance(skill, Skill)] == ["one"]


def test_a_file_of_servers_that_is_a_directory_or_leads_out_leaves_the_skills(root, tmp_path):
    make(root, skills=("one",))
    (root / "mcp.json").mkdir()
    assert "mcp.json is not a regular file" in read_plugin(str(root), STATE).problems[0]
    (root / "mcp.json").rmdir()
    write(tmp_path, "mcp.json", json.dumps(servers(a=stdio())))
    (root / "mcp.json").symlink_to("../mcp.json")
    plugin = read_plugin(str(root), STATE)
    assert plugin.servers == {}
    assert "leads out of the plugin" in plugin.problems[0]
    assert len(plugin.skills()) == 1


# --- skills ------------------------------------------------------------------------------------------------------------


def test_skills_are_the_directories_in_skills_and_nothing_deeper(root):
    make(root, skills=("one", "group/nested", "one/references/inner"))
    write(root, "skills/lower/skill.md", SKILL.format("lower"))
    write(root, "skills/README.md", "")
    write(root, "skills/without/README.md", "")
    (root / "skills/directory/SKILL.md").mkdir(parents=True)
    assert [skill.name for skill in read_plugin(str(root), STATE).skills()] == ["one"]


@pytest.mark.parametrize(
    "header, why",
    [
        ("name: bad\n- description: broken", "it has no description"),
        ("name: bad\ndescription: a: b", "not a valid Agent Skill"),
        ("name: bad", "no description"),
        ("description: Unnamed.", "it has no name"),
        ("name: other\ndescription: Named wrongly.", "differs from its directory's"),
        ("name: Bad_Name\ndescription: x", "lowercase"),
        (f"name: bad\ndescription: {'x' * 1025}", "more than 1,024 characters"),
    ],
)
def test_a_skill_that_does_not_conform_is_skipped_and_the_others_are_used(root, header, why):
    make(root, skills=("good",))
    write(root, "skills/bad/SKILL.md", f"---\n{header}\n---\nDo it.")
    bad, good = read_plugin(str(root), STATE).skills()
    assert isinstance(bad, Skipped)
    assert why in bad.problem
    assert isinstance(good, Skill)


def test_a_skill_that_leads_out_of_the_plugin_is_skipped(root, tmp_path):
    make(root, skills=("good",))
    write(tmp_path, "bad/SKILL.md", SKILL.format("bad"))
    (root / "skills/bad").symlink_to("../../bad")
    (root / "skills/worse").mkdir()
    (root / "skills/worse/SKILL.md").symlink_to("/etc/passwd")
    (root / "skills/same").symlink_to("good")
    found = read_plugin(str(root), STATE).skills()
    assert ["leads out of the plugin" in getattr(each, "problem", "") for each in found] == [
        True,
        False,
        False,
        True,
    ]


def test_skills_that_are_no_directory_or_lead_out_leave_the_servers(root, tmp_path):
    make(root, mcp=servers(a=stdio()))
    write(root, "skills", "")
    plugin = read_plugin(str(root), STATE)
    assert list(plugin.servers) == ["a"]
    assert plugin.problems == ("skills is not a directory, so no skill of the plugin is used",)
    (root / "skills").unlink()
    write(tmp_path, "all/one/SKILL.md", SKILL.format("one"))
    (root / "skills").symlink_to("../all")
    plugin = read_plugin(str(root), STATE)
    assert "leads out of the plugin" in plugin.problems[0]
    assert [each for each in plugin.skills() if isinstance(each, Skill)] == []


# --- installed plugins -------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("NVIM_APPNAME", raising=False)
    (tmp_path / "project").mkdir()
    return tmp_path / "home"


OWN, SHARED = ".config/sanderling/plugins", ".agents/plugins"


def settings_of(home: Path, **options: Any):
    """Return the settings in the project next to `home`, whose config.toml has these options."""
    layers = Layers(state_dir=str(home / "state"), file=Layer("config.toml", options))
    trust = Trust(layers.state_dir, str(home.parent / "project"))
    return with_project(layers, trust).settings()


def project_of(home: Path, **options: Any) -> Project:
    return Project(settings_of(home, **options), str(home.parent / "project"))


def test_plugins_are_found_in_both_directories_and_ours_come_first(home):
    make(home / OWN / "tools", MANIFEST | {"description": "ours"})
    make(home / SHARED / "tools", MANIFEST | {"description": "shared"})
    make(home / SHARED / "renamed", MANIFEST | {"name": "more"})
    (home / SHARED / "data/tools").mkdir(parents=True)
    write(home, f"{SHARED}/index.json", "{}")
    make(home / OWN / ".hidden", MANIFEST | {"name": "hidden"})
    make(home / OWN / "broken", {})
    (home / OWN / "empty").mkdir()
    found = find_plugins(str(home / "state"))
    plugins = [each for each in found if isinstance(each, Plugin)]
    assert [(each.name, each.manifest.description) for each in plugins] == [
        ("tools", "ours"),
        ("more", ""),
    ]
    broken = [each for each in found if isinstance(each, Broken)]
    assert [(Path(each.path).name, each.problem[:25]) for each in broken] == [
        ("broken", "plugin.json: it must have"),
        ("empty", "there is no plugin.json i"),
        ("tools", "~/.config/sanderling/plug"),
    ]


def test_a_session_has_a_plugins_skills_and_servers(home):
    make(home / OWN / "tools", mcp=servers(db=stdio(), web=http()), skills=("one",))
    project = project_of(home)
    assert project.skills.all()["one"].source == "plugin"
    assert project.skills.all()["one"].path == str(home / OWN / "tools/skills/one/SKILL.md")
    assert str(home / OWN / "tools/skills/one") in project.places.skills_outside()
    assert "/one" in [f"/{command.name}" for command in project.commands()]
    found = load_servers(settings_of(home).mcp_servers)
    assert list(found) == ["tools.db", "tools.web"]
    assert Path(data_directory(str(home / "state"), "tools")).stat().st_mode & 0o777 == 0o700


def test_a_disabled_plugin_has_no_effect(home):
    make(home / OWN / "tools", MANIFEST | {"x": 1}, servers(db=stdio()), ("one",))
    off: dict[str, Any] = {"plugins": {"disabled": ["tools"]}}
    overlay = {"mcp": {"servers": {"tools.db": {"hosts": ["db.example"]}}}}
    assert settings_of(home, **off, **overlay).mcp_servers == {}
    assert project_of(home, **off).skills.all() == {}
    assert project_of(home, **off).news_of_settings() == []


def test_the_users_table_adds_to_a_plugins_server_or_replaces_it(home):
    make(home / OWN / "tools", mcp=servers(db=stdio(args=["a"]), web=http(), off=stdio()))
    tables = {
        "tools.db": {"hosts": ["db.example"], "timeout_s": 3.0, "paths": ["/opt/x"]},
        "tools.web": {"command": ["own"]},
        "tools.off": {"enabled": False},
    }
    found = load_servers(settings_of(home, mcp={"servers": tables}).mcp_servers)
    assert found["tools.db"].command == ("node", "a")
    assert found["tools.db"].hosts == ("db.example",)
    root = str(home / OWN / "tools")
    assert (found["tools.db"].cwd, found["tools.db"].paths) == (root, (root, "/opt/x"))
    assert found["tools.db"].write_paths
    assert (found["tools.web"].command, found["tools.web"].url) == (("own",), "")
    assert not found["tools.off"].enabled


def test_a_table_for_a_plugin_that_is_gone_has_no_effect_and_is_reported(home):
    own = {"mcp": {"servers": {"tools.db": {"hosts": ["db.example"]}, "own": {"command": ["x"]}}}}
    assert list(settings_of(home, **own).mcp_servers) == ["own"]
    project = project_of(home)
    layers = Layers(state_dir=str(home / "state"), file=Layer("config.toml", own))
    project.settings(layers)
    (news,) = project.news_of_settings()
    assert news.startswith('The table [mcp.servers."tools.db"] of your settings has no effect')
    with pytest.raises(ConfigError, match="either a command or a url"):
        load_servers(settings_of(home, mcp={"servers": {"db": {"hosts": ["h"]}}}).mcp_servers)


def test_a_server_whose_name_is_too_similar_to_another_gives_way(home):
    make(home / OWN / "tools", mcp=servers(**{"db": stdio(), "a.b": stdio(), "a-b": stdio()}))
    own = {"mcp": {"servers": {"tools-db": {"command": ["own"]}}}}
    make(home / OWN / "tools.a", MANIFEST | {"name": "tools.a"}, servers(b=http()))
    found = load_servers(settings_of(home, **own).mcp_servers)
    assert list(found) == ["tools.a.b", "tools-db"]
    assert found["tools.a.b"].command
    layers = Layers(state_dir=str(home / "state"), file=Layer("config.toml", own))
    project = project_of(home)
    project.settings(layers)
    news = project.news_of_settings()
    assert ["'tools.db'" in news[0], "'tools.a-b'" in news[1], len(news)] == [True, True, 2]


def test_a_plugin_replaces_no_skill_or_command_of_the_user(home):
    names = ("mine", "fix", "compact")
    make(home / OWN / "tools", skills=names)
    write(home, ".claude/skills/mine/SKILL.md", SKILL.format("mine").replace("Do it", "Mine"))
    project = project_of(home)
    assert project.skills.all()["mine"].body.startswith("Mine")
    commands = {command.name: command.source for command in project.commands()}
    assert commands["mine"] == "user"
    assert commands["fix"] == "sanderling"
    assert "compact" not in commands


def test_a_plugin_inside_the_project_is_not_used(home):
    make(home.parent / "project/tools", mcp=servers(db=stdio()), skills=("one",))
    (home / OWN).mkdir(parents=True)
    (home / OWN / "tools").symlink_to(home.parent / "project/tools")
    project = project_of(home)
    assert project.skills.all() == {}
    assert settings_of(home).mcp_servers == {}
    (news,) = project.news_of_settings()
    assert "is in this project, where the agent could change it" in news


def test_a_plugin_behind_a_link_in_the_project_is_not_used(home):
    """A command could have made the link, to what it has written elsewhere."""
    make(home.parent / "elsewhere", skills=("one",))
    (home.parent / "project").mkdir(exist_ok=True)
    (home.parent / "project/tools").symlink_to("../elsewhere")
    (home / OWN).mkdir(parents=True)
    (home / OWN / "tools").symlink_to(home.parent / "project/tools")
    project = project_of(home)
    assert project.skills.all() == {}
    (news,) = project.news_of_settings()
    assert "is in this project, where the agent could change it" in news


def test_a_plugin_around_the_project_is_not_used(home):
    """Its author works in a part of it, where the agent could change the skills and the programs of servers."""
    make(home / OWN / "tools", mcp=servers(db=stdio()), skills=("one",))
    project = Project(settings_of(home), str(home / OWN / "tools/skills/one"))
    assert project.skills.all() == {}
    (news,) = project.news_of_settings()
    assert "it contains this project, so the agent could change it" in news


def test_what_is_not_used_is_reported_once_without_control_characters(home):
    wrong = {"a\x1b[2J": stdio(), "b": stdio("\x1b]0;x\x07/bin")}
    make(home / OWN / "tools", MANIFEST | {"\u202ex": 1}, servers(**wrong))
    project = project_of(home)
    news = project.news_of_settings()
    assert len(news) == 3
    assert all(text.isprintable() and text.startswith("The plugin tools: ") for text in news)
    assert project.news_of_settings() == []


def test_without_plugins_nothing_of_them_is_loaded(home):
    layers = Layers(state_dir=str(home / "state"))
    assert with_plugins(layers, str(home.parent / "project")) is layers


def test_a_plugins_skill_cannot_open_files_outside_of_it(home):
    make(home / OWN / "tools", skills=("one",))
    (home / OWN / "tools/skills/keys").symlink_to(home)
    write(home, "SKILL.md", SKILL.format("keys"))
    project = project_of(home)
    assert "keys" not in project.skills.all()
    inside = home / OWN / "tools/skills"
    outside = project.places.skills_outside()
    assert {*outside} == {str(inside), str(inside / "one")}
