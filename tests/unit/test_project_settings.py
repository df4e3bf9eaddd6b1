"""A project's settings in a session: they count when they are trusted, and what of them does not count is told once."""

from hashlib import sha256
from pathlib import Path

import pytest

from sanderling.config import Layer, Settings
from sanderling.config.file import read_user_file
from sanderling.config.layers import Layers
from sanderling.config.project import PROJECT_FILE
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.errors import ConfigError
from sanderling.project.project import OLD_PROJECT_FILE, Project
from sanderling.protocol.events import Event, Notice, TrustNeeded
from sanderling.tools.catalog import TOOLS, UNLISTED, Catalog, OwnTools

MINE = Layer("config.toml", {"model": "mine", "max_calls": 9})


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def project(root: Path) -> Project:
    return Project(Settings(str(root.parent / "state")), str(root))


def trust(project: Project, *names: str) -> None:
    project.trust.trust(
        {
            name: sha256((Path(project.trust.project) / name).read_bytes()).hexdigest()
            for name in names
        }
    )


def settings(project: Project, file: Layer = MINE) -> Settings:
    return project.settings(
        Layers(state_dir=str(Path(project.trust.project).parent / "state"), file=file)
    )


def test_a_projects_settings_count_only_as_they_were_trusted(project, root):
    assert settings(project).model == "mine"
    (root / PROJECT_FILE).write_text("model = 'theirs'")
    assert settings(project).model == "mine"
    assert project.news_of_untrusted() == (PROJECT_FILE,)
    trust(project, PROJECT_FILE)
    assert settings(project).model == "theirs"
    (root / PROJECT_FILE).write_text("model = 'other'")
    assert settings(project).model == "mine"


def test_a_trusted_file_that_is_wrong_is_refused_with_its_line(project, root):
    (root / PROJECT_FILE).write_text("\nbase_url = 'http://evil.example'")
    trust(project, PROJECT_FILE)
    with pytest.raises(
        ConfigError, match=r"^\.sanderling\.toml:2: a project may not set 'base_url'"
    ):
        settings(project)


def test_the_file_of_the_old_name_is_not_read_and_that_is_told_once(project, root):
    (root / ".sanderling").mkdir()
    (root / OLD_PROJECT_FILE).write_text("model = 'theirs'")
    assert settings(project).model == "mine"
    assert project.news_of_settings() == [
        ".sanderling/config.toml is no longer read: move it to .sanderling.toml in the project's root, and trust it there."
    ]
    assert project.news_of_settings() == []


def test_a_projects_server_of_a_name_that_the_user_has_is_left_out_and_told(project, root):
    (root / PROJECT_FILE).write_text("[mcp.servers.git]\ncommand = ['theirs']")
    trust(project, PROJECT_FILE)
    mine = Layer("config.toml", {"mcp": {"servers": {"git": {"command": ["mine"]}}}})
    made = settings(project, mine)
    assert (made.mcp_servers, made.project_mcp_servers) == ({"git": {"command": ["mine"]}}, {})
    assert project.news_of_settings() == [
        "The server 'git' of .sanderling.toml is not used: you have one of that name in your own settings."
    ]


DOTFILES = """
model = "dotfiles"
base_url = "http://elsewhere.example"
budget_usd = 3
[[permissions]]
action = "allow"
tool = "bash"
[[permissions]]
action = "deny"
path = "*.pem"
[sandbox]
min_level = "full"
write = ["/"]
"""


@pytest.fixture
def own_file(root: Path) -> Path:
    """The person's file, as a link into the project: whoever works there can change it."""
    file = root / "sanderling.toml"
    file.write_text(DOTFILES)
    link = root.parent / "home" / ".config" / "sanderling" / "config.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(file)
    return file


def test_a_persons_file_in_the_project_only_binds_the_agent_until_it_is_trusted(project, own_file):
    made = settings(project, read_user_file())
    assert (made.model, made.base_url, made.sandbox_write) == (Settings("").model, "", ())
    assert (made.budget_usd, made.sandbox_min_level) == (3, "full")
    assert made.permissions == ({"action": "deny", "path": "*.pem"},)
    assert project.news_of_untrusted() == (own_file.name,)
    assert own_file.name in [file.path for file in project.trust.shown().files]
    trust(project, own_file.name)
    made = settings(project, read_user_file())
    assert (made.model, made.sandbox_write) == ("dotfiles", ("/",))
    assert len(made.permissions) == 2
    own_file.write_text(DOTFILES.replace("elsewhere", "evil"))
    assert settings(project, read_user_file()).base_url == ""


def test_in_any_other_project_it_counts_as_it_is(own_file, tmp_path):
    (tmp_path / "other").mkdir()
    other = Project(Settings(str(tmp_path / "state")), str(tmp_path / "other"))
    assert own_file.exists()
    assert settings(other, read_user_file()).model == "dotfiles"
    assert other.news_of_untrusted() == ()


async def open_session(root: Path, **options: object) -> list[Event]:
    script = root.parent / "script.json"
    script.write_text('{"version": 1, "reply": []}')
    chosen = {"provider": "scripted", "script": str(script)} | options
    events: list[Event] = []
    layers = Layers(state_dir=str(root.parent / "state"), file=Layer("config.toml", chosen))
    opened = await open_conversation(
        "s1", str(root), layers, events.append, SessionOptions(is_eager=False, is_shown=True)
    )
    opened.agent.close()
    await opened.agent.serve()
    return events


async def test_what_does_not_count_is_told_in_the_chat(root):
    (root / PROJECT_FILE).write_text("model = 'x'")
    (root / ".sanderling").mkdir()
    (root / OLD_PROJECT_FILE).touch()
    events = await open_session(root)
    [told] = [event.text for event in events if isinstance(event, Notice)]
    assert "is no longer read" in told
    [needed] = [event for event in events if isinstance(event, TrustNeeded)]
    assert needed.paths == (PROJECT_FILE,)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"permissions": [{"action": "allow", "tool": "bsh"}]}, "permission rule 1 is wrong"),
        ({"tools": {"disabled": ["bsh"]}}, "there is no tool 'bsh'"),
        ({"providers": {"x": {"wre": "chat"}}, "model": "x:m"}, "did you mean 'providers.x.wire'?"),
        ({"mcp": {"servers": {"x": {"comand": ["y"]}}}}, "did you mean 'mcp.servers.x.command'?"),
        ({"prices": {"m": {"inpt": 1}}}, "did you mean 'prices.m.input'?"),
    ],
)
async def test_a_session_does_not_open_with_what_only_a_part_knows_to_be_wrong(root, options, told):
    with pytest.raises(ConfigError) as caught:
        await open_session(root, **options)
    assert str(caught.value).startswith("config.toml: ")
    assert told in str(caught.value)


async def test_a_tool_that_is_disabled_is_not_offered():
    tools = await Catalog(OwnTools(), disabled=("web_*", "bash")).so_far()
    offered = {spec.name for spec in tools.specs}
    assert offered == {*tools.by_name} - UNLISTED == {*TOOLS} - {"web_fetch", "bash"} - UNLISTED
