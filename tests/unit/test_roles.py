"""Roles: where they are found, what they restrict, what the model is sent of them, and what they change in a session."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import settings_of
from tests.talk import BaseTalk, scripted
from tests.unit.test_skills import skill
from tests.unit.test_tool_uses import Talk, bash
from tests.unit.test_trust import trust_all, write

from sanderling.config import Layer, Settings
from sanderling.config.layers import Layers
from sanderling.conversation.checks.configuration import mistakes_in
from sanderling.errors import ConfigError
from sanderling.mcp.servers import tool_name
from sanderling.project.places import Places
from sanderling.project.roles import Role, Roles, SkippedRole, is_read_only, load_roles, read_role
from sanderling.protocol import tool_names
from sanderling.protocol.actions import SetEffort, SetMode, SetModel, SetRole
from sanderling.protocol.events import (
    EffortChanged,
    ModeChanged,
    ModelChanged,
    Notice,
    RoleChanged,
    ToolEnded,
    ToolStarted,
)
from sanderling.protocol.messages import Prompt, TextBlock
from sanderling.protocol.requests import ListRoles, ShownRole
from sanderling.protocol.tool_names import known_names
from sanderling.session.session import Session
from sanderling.tools import catalog
from sanderling.tools.base import Context, Tool
from sanderling.tools.catalog import TOOLS
from sanderling.tools.outcome import Outcome

REVIEWER = "---\nname: reviewer\ndescription: Reviews code.\ntools: Read, Grep\n---\nYou review."


@pytest.fixture
def roles(places: Places) -> Roles:
    return Roles(places, {})


def role(text: str) -> Role:
    found = read_role("agents/x.md", text)
    assert isinstance(found, Role), found
    return found


# --- files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", [".sanderling", ".agents", ".claude"])
def test_a_projects_role_is_offered_once_its_bytes_are_trusted(roles, trust, project, directory):
    path = f"{directory}/agents/reviewer.md"
    write(project, path, REVIEWER)
    assert roles.all() == {}
    assert roles.ignored() == (path,)
    with pytest.raises(ConfigError, match=rf"There is no role 'reviewer'.*Not trusted: {path}"):
        roles.find("reviewer")
    trust_all(trust)
    found = roles.find("reviewer")
    assert (found.source, found.origin, found.prompt) == ("project", path, "You review.")
    write(project, path, REVIEWER + " And more.")
    assert roles.all() == {}


def test_settings_come_before_the_project_and_the_project_before_the_user(
    places, trust, own, project
):
    write(own, "agents/a.md", "user")
    write(own, "agents/b.md", "user")
    write(own, "agents/c.md", "user")
    write(project, ".claude/agents/a.md", "project")
    write(project, ".claude/agents/b.md", "project")
    trust_all(trust)
    roles = Roles(places, {"a": {"prompt": "settings"}}).all()
    assert {name: each.prompt for name, each in roles.items()} == {
        "a": "settings",
        "b": "project",
        "c": "user",
    }


def test_a_projects_role_replaces_none_that_the_kernel_keeps_read_only(places, trust, own, project):
    for name in ("explore", "review", "mine"):
        write(project, f".claude/agents/{name}.md", "Write!")
    trust_all(trust)
    roles = Roles(places, {})
    assert all(is_read_only(roles.of_child(name)) for name in ("explore", "review"))
    assert roles.of_child("mine").prompt == "Write!"
    write(own, "agents/review.md", "user")
    (project / ".claude/agents/review.md").unlink()
    assert roles.of_child("review").prompt == "user"
    assert not is_read_only(roles.of_child("review"))


def test_a_file_has_all_keys_of_a_table():
    found = role(
        "---\nname: x\ndescription: d\ntools: [bash]\ndisallowed-tools: edit\nmodel: m\neffort: high\n"
        "mode: plan\nskills: a, b\nsystem_prompt_append: more\noutput_style: short\n---\nprompt"
    )
    table = {
        "description": "d",
        "prompt": "prompt",
        "tools": ["bash"],
        "disallowed_tools": ["edit"],
        "model": "m",
        "effort": "high",
        "mode": "plan",
        "skills": ["a", "b"],
        "system_prompt_append": "more",
        "output_style": "short",
    }
    (declared,) = load_roles({"x": table}).values()
    assert msgspec.structs.replace(declared, origin=found.origin) == found


@pytest.mark.parametrize(
    "header, field, value",
    [
        ("permissionMode: plan", "mode", "plan"),
        ("permissionMode: default", "mode", "ask"),
        ("permissionMode: bypassPermissions", "mode", None),
        ("mode: wild", "mode", None),
        ("effort: huge", "effort", None),
        ("model: inherit", "model", ""),
        ("disallowedTools: Bash, Edit", "disallowed_tools", ("bash", "edit")),
        ("tools: '*'", "tools", None),
        ("tools: *", "tools", None),
        ("tools: []", "tools", ()),
        ("tools: Bash(git:*), Read", "tools", ("read",)),
        ("disallowedTools: Bash(git:*)", "disallowed_tools", ("bash",)),
        ("tools:\n  - Read\n  - mcp__db__*", "tools", ("read", "mcp__db__*")),
        ("color: red", "tools", None),
    ],
)
def test_headers_of_other_agents_are_read_leniently_and_strictly_meant(header, field, value):
    assert getattr(role(f"---\n{header}\n---\nDo."), field) == value


@pytest.mark.parametrize(
    "header, problem",
    [
        ("mode: wild", "its mode 'wild' is none of ask, auto, plan"),
        ("effort: huge", "its effort 'huge' is none of default"),
        ("permissionMode: bypassPermissions", "'bypassPermissions' has no effect here"),
        ("tools: Bash(git:*)", "names a part of a tool: it is left out"),
        ("efort: high", "it has `efort` instead of `effort`"),
        ("disalowedTools: Bash", "it has `disalowed_tools` instead of `disallowed_tools`"),
        ("model: [a]", "its `model` is not a text"),
        ("color: red\nmaxTurns: 3\nmemory: user\nmcpServers: [x]\nhooks: {a: b}", ""),
        ("tools: Read, Bsh", "there is no tool 'Bsh'; did you mean 'Bash'?"),
        ("disallowedTools: Red(x)", "there is no tool 'Red'; did you mean 'Read'?"),
        ("disallowed_tools: shell", "there is no tool 'shell'"),
        ("tools: we*, ba*h, x*", "there is no tool 'x*'"),
    ],
)
def test_what_has_no_effect_is_a_problem_for_the_author(header, problem):
    problems = " ".join(role(f"---\n{header}\n---\nDo.").problems)
    assert problem in problems if problem else not problems


def test_a_tool_that_exists_or_may_come_is_no_problem():
    names = [*TOOLS, *known_names(), "BASH", "mcp__db", "lua__x", "lua__*", "*__y", "we*"]
    assert load_roles({"r": {"tools": names}})["r"].problems == ()
    assert {*tool_names.NAMES} == {*catalog.NAMES, "mcp_search"}


@pytest.mark.parametrize("server", ["tools.db", "my__server", "My Server", "_x_", "a" * 80])
@pytest.mark.parametrize("form", ["mcp__{}", "mcp__{}__*", "mcp__{}__query"])
def test_a_server_may_be_named_as_in_the_settings(server, form):
    name = form.format(server)
    query, other = tool_name(server, "query"), tool_name(f"other-{server}", "query")
    found = load_roles({"r": {"disallowed_tools": [name]}})["r"]
    assert (found.allows(query), found.allows(other)) == (False, True)
    if name != "mcp__my__server":  # rather the tool `server` of the server `my`
        found = load_roles({"r": {"tools": [name]}})["r"]
        assert (found.allows(query), found.allows(other)) == (True, False)


def test_a_tool_that_is_not_allowed_has_no_other_names():
    tools = ["BASH", "web-fetch", "websearch", "mcp__db__query"]
    found = load_roles({"r": {"disallowed_tools": tools}})["r"]
    for tool in ("bash", "jobs", "web_fetch", "web_search", tool_name("db", "query", number=2)):
        assert not found.allows(tool)
    assert found.allows(tool_name("db", "query_2"))


@pytest.mark.parametrize(
    "text", ["---\nname: x", "---\nname: ../x\n---\nDo.", "---\n- a\n---\nDo."]
)
def test_a_file_that_cannot_be_used_says_why(text):
    assert isinstance(read_role("agents/x.md", text), SkippedRole)


@pytest.mark.parametrize(
    "tools, allowed, refused",
    [
        ("Read", "read ls", "bash jobs edit todo mcp_search"),
        ("Bash", "bash jobs", "read ls"),
        ("mcp__db__*", "mcp__db__query mcp_search", "mcp__other__x read"),
        ("mcp__db", "mcp__db__query", "mcp__dbx__query"),
        ("mcp__*", "mcp__db__query mcp__other__x", "read"),
        ("LS, TodoWrite, MultiEdit", "ls todo edit", "read write"),
        ("*", "read bash mcp__x__y", ""),
        ("[]", "", "read bash todo mcp__x__y"),
    ],
)
def test_names_of_tools_are_ours_or_claudes(tools, allowed, refused):
    found = role(f"---\ntools: {tools if tools != '*' else chr(39) + '*' + chr(39)}\n---\nDo.")
    assert [each for each in allowed.split() if not found.allows(each)] == []
    assert [each for each in refused.split() if found.allows(each)] == []


@pytest.mark.parametrize(
    "theirs, own_header, mode, shown",
    [
        ("tools: Bash, Read, Write", "tools: Read, Grep, Write", None, "bash, read, write; of these read, grep, write"),
        ("mode: auto", "mode: plan\ntools: Read, Write", "plan", "read, write"),
        ("mode: plan", "mode: ask\ntools: Read, Write", "plan", "read, write"),
        ("mode: ask", "mode: auto\ndisallowed_tools: Bash, Grep", "ask", "all but bash, grep"),
        ("tools: [Read, Write]", "mode: auto", None, "read, write"),
        ("disallowed_tools: Grep", "disallowed_tools: Bash", None, "all but grep; of these all but bash"),
    ],
)  # fmt: skip
def test_a_projects_role_keeps_the_limits_of_the_users_role_of_that_name(  # noqa: PLR0917
    roles, trust, own, project, theirs, own_header, mode, shown
):
    write(own, "agents/x.md", f"---\n{own_header}\n---\nMine.")
    write(project, ".claude/agents/x.md", f"---\n{theirs}\n---\nTheirs.")
    trust_all(trust)
    found = roles.find("x")
    assert (found.prompt, found.mode, found.tools_in_words()) == ("Theirs.", mode, shown)
    assert found.allows("read")
    assert found.allows("write")
    assert not found.allows("bash")
    assert not found.allows("grep")
    assert msgspec.convert(msgspec.to_builtins(found), Role) == found  # as a session keeps it


@pytest.mark.parametrize("name", ["edit", "explore"])
def test_a_projects_role_does_not_hide_the_users_from_a_child(roles, trust, own, project, name):
    write(own, f"agents/{name}.md", "---\ndisallowedTools: Bash\n---\nMine.")
    write(project, f".claude/agents/{name}.md", "---\nname: " + name + "\n---\nTheirs.")
    trust_all(trust)
    found = roles.of_child(name)
    assert found.prompt == "Mine."
    assert not found.allows("bash")


@pytest.mark.parametrize("name", ["explore", "Explore", "REVIEW"])
def test_a_projects_role_does_not_replace_a_read_only_one_in_any_case(roles, trust, project, name):
    write(project, f".claude/agents/{name}.md", f"---\nname: {name}\n---\nTheirs.")
    write(project, ".claude/agents/other.md", "---\nname: other\n---\nTheirs.")
    trust_all(trust)
    assert is_read_only(roles.of_child(name))
    assert roles.of_child("other").prompt == "Theirs."


# --- a session -----------------------------------------------------------------------------------------------------------


class RoleTalk(Talk):
    """A session whose settings have roles, and whose project has these trusted ones."""

    def __init__(
        self,
        base: Path,
        *replies: Any,
        own: dict[str, dict[str, Any]] | None = None,
        project: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        session = Session.open(base / "state/sessions", "s1", str(base / "home/project"))
        settings = msgspec.structs.replace(settings_of(session), roles=own or {})
        session.close()
        super().__init__(base, *replies, settings=settings, **options)
        for name, text in (project or {}).items():
            write(self.project, f".claude/agents/{name}.md", text)
        trust_all(self.services.project.trust)

    def choose(self, name: str) -> None:
        self.conversation.act(SetRole(name))

    @property
    def mode(self) -> str:
        return self.services.gate.mode

    @property
    def warnings(self) -> list[str]:
        return [each.text for each in self.of(Notice) if each.level == "warning"]

    def notes(self) -> str:
        """All text that the model has been sent."""
        return "\n".join(each.text for each in self.blocks if isinstance(each, TextBlock))


async def test_a_role_is_sent_as_a_note_and_the_system_prompt_stays(tmp_path):
    talk = RoleTalk(
        tmp_path,
        own={
            "r": {
                "prompt": "Be a pirate.",
                "system_prompt_append": "Ahoy.",
                "output_style": "Rhymes.",
            }
        },
    )
    before = await talk.services.calls._request()
    talk.choose("r")
    await talk.run()
    after = await talk.services.calls._request()
    assert (after.system, after.tools) == (before.system, before.tools)
    sent = talk.notes()
    for part in ("the role r.", "Be a pirate.", "Ahoy.", "Output style: Rhymes."):
        assert sent.count(part) == 1
    assert talk.of(RoleChanged) == [RoleChanged("r")]


async def test_a_role_is_sent_once_and_its_end_once(tmp_path):
    talk = RoleTalk(tmp_path, [{"text": "a"}], [{"text": "b"}], own={"r": {"prompt": "Pirate."}})
    talk.choose("r")
    async with talk.served():
        await talk.run_turns(Prompt("p1", "a"), Prompt("p2", "b"))
        assert talk.notes().count("Pirate.") == 1
        talk.choose("")
        await talk.run_turns(Prompt("p3", "c"))
    assert talk.notes().count("The role ends here") == 1
    assert talk.of(RoleChanged)[-1] == RoleChanged()


async def test_without_a_role_nothing_is_sent(tmp_path):
    talk = await RoleTalk(tmp_path, own={"r": {"prompt": "Pirate."}}).run()
    assert " role " not in talk.notes()


async def test_a_call_of_another_tool_is_refused_in_words(tmp_path):
    talk = RoleTalk(
        tmp_path, bash("touch made"), mode="auto", own={"r": {"tools": ["Read", "grep"]}}
    )
    talk.choose("r")
    await talk.run()
    assert talk.told() == (
        "The role r does not have the tool bash. Its tools: read, grep. Only the user can change the role."
    )
    assert talk.of(ToolEnded)[0].is_denied
    assert not (talk.project / "made").exists()
    assert "you may use these tools: read, grep" in talk.notes()


class ClientsTools:
    """A client that runs `bash`, and remembers the commands."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def tools(self) -> list[Tool]:
        async def run(args: Any, _: Context) -> Outcome:
            self.ran.append(args.command)
            return Outcome(content="ran")

        there = TOOLS["bash"]
        run.__doc__ = there.description
        return [Tool("bash", there.input_type, run, there.effect, there.title, is_elsewhere=True)]

    def take_notes(self) -> list[str]:
        return []

    def tell_again(self) -> None: ...


@pytest.mark.parametrize("tools, ran", [(["read"], []), (["bash"], ["make"])])
async def test_a_role_restricts_tools_that_a_client_runs(tmp_path, tools, ran):
    client = ClientsTools()
    talk = RoleTalk(tmp_path, bash("make"), own={"r": {"tools": tools}}, client=client)
    talk.choose("r")
    await talk.run()
    assert client.ran == ran


async def test_a_tool_of_the_role_works_as_before(tmp_path):
    talk = RoleTalk(tmp_path, ("read", {"path": "app.py"}), own={"r": {"tools": ["Read"]}})
    talk.choose("r")
    await talk.run()
    assert "return 1" in talk.told()


async def test_an_allow_rule_gives_no_tool_back(tmp_path):
    from sanderling.permissions.rules import rule_from_text

    rules = (rule_from_text("allow bash touch made"),)
    talk = RoleTalk(tmp_path, bash("touch made"), own={"r": {"tools": []}}, rules=rules)
    talk.choose("r")
    await talk.run()
    assert "does not have the tool bash. Its tools: none." in talk.told()


async def test_model_effort_and_mode_apply_until_the_role_ends(tmp_path):
    talk = RoleTalk(tmp_path, own={"r": {"model": "other", "effort": "high", "mode": "plan"}})
    before = talk.services.provider.model
    talk.choose("r")
    assert (talk.services.provider.model, talk.mode) == ("other", "plan")
    assert talk.services.calls.effort.state() == "high"
    talk.choose("")
    assert (talk.services.provider.model, talk.mode) == (before, "ask")
    assert talk.services.calls.effort.state() == "default"
    assert [each.model for each in talk.of(ModelChanged)] == ["other", before]
    assert [each.mode for each in talk.of(ModeChanged)] == ["plan", "ask"]
    assert [each.effort for each in talk.of(EffortChanged)] == ["high", "default"]


async def test_another_role_begins_from_the_settings_before_both(tmp_path):
    own = {"a": {"mode": "plan", "model": "m"}, "b": {"effort": "low"}}
    talk = RoleTalk(tmp_path, own=own)
    before = talk.services.provider.model
    talk.choose("a")
    talk.choose("b")
    assert (talk.mode, talk.services.provider.model) == ("ask", before)
    talk.choose("")
    assert talk.services.calls.effort.state() == "default"


async def test_what_the_user_chooses_in_a_role_stays(tmp_path):
    talk = RoleTalk(tmp_path, own={"r": {"model": "other", "effort": "high", "mode": "plan"}})
    talk.choose("r")
    for action in (SetMode("auto"), SetModel("third"), SetEffort("default")):
        talk.conversation.act(action)
    talk.choose("")
    assert (talk.mode, talk.services.provider.model) == ("auto", "third")


@pytest.mark.parametrize(
    "mode, roles_mode, then",
    [
        ("ask", "auto", "ask"),
        ("plan", "ask", "plan"),
        ("plan", "auto", "plan"),
        ("auto", "ask", "ask"),
        ("ask", "plan", "plan"),
    ],
)
async def test_a_projects_role_never_makes_the_mode_less_strict(tmp_path, mode, roles_mode, then):
    talk = RoleTalk(tmp_path, mode=mode, project={"r": f"---\nmode: {roles_mode}\n---\nDo."})
    talk.choose("r")
    assert talk.mode == then
    assert bool(talk.warnings) == (then != roles_mode)


async def test_a_projects_role_that_replaces_the_users_is_reported(tmp_path, monkeypatch):
    """The user's may be stricter: a project could lift its limits by taking its name."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own = tmp_path / "config/sanderling"
    write(own, "agents/safe.md", "---\ntools: Read\nmode: plan\n---\nMine.")
    talk = RoleTalk(tmp_path, project={"safe": "Theirs.", "other": "Theirs."})
    talk.choose("safe")
    (warning,) = talk.warnings
    assert ".claude/agents/safe.md" in warning
    assert str(own / "agents/safe.md") in warning
    talk.choose("other")
    assert len(talk.warnings) == 1
    await talk.aclose()


async def test_the_users_own_role_may_set_any_mode(tmp_path):
    talk = RoleTalk(tmp_path, own={"r": {"mode": "auto"}})
    talk.choose("r")
    assert talk.mode == "auto"


async def test_an_unknown_role_changes_nothing(tmp_path):
    talk = RoleTalk(tmp_path, own={"reviewer": {"mode": "plan"}})
    talk.choose("reviewer")
    talk.choose("reviwer")
    assert talk.warnings == ["There is no role 'reviwer'; did you mean 'reviewer'?"]
    assert talk.services.role.shown().name == "reviewer"


async def test_a_role_says_what_is_wrong_with_it_when_it_is_chosen(tmp_path):
    files = {"b": "---\nmode: pln\n---\nDo.", "c": "---\nname: c"}
    talk = RoleTalk(tmp_path, own={"a": {}}, project=files)
    talk.choose("b")
    assert talk.warnings == [
        "The role b (.claude/agents/b.md): its mode 'pln' is none of ask, auto, plan."
    ]
    talk.choose("c")
    assert talk.warnings[1].startswith("The role 'c' cannot be used: .claude/agents/c.md: its ")
    talk.choose("zzz")
    assert talk.warnings[2] == "There is no role 'zzz'; known: a, b."


async def test_a_role_chosen_during_a_turn_waits_for_its_end(tmp_path):
    wait = bash("until [ -e go ]; do sleep 0.05; done")
    talk = RoleTalk(tmp_path, wait, mode="auto", own={"r": {"tools": []}})
    async with talk.asked():
        await talk.until(ToolStarted)
        talk.choose("r")
        assert talk.of(RoleChanged) == []
        (talk.project / "go").touch()
    assert talk.of(RoleChanged) == [RoleChanged("r")]
    assert "does not have" not in talk.told()


async def test_a_role_outlives_the_process_and_the_change_of_its_file(tmp_path):
    text = "---\ntools: Read\nmode: plan\n---\nReview."
    talk = RoleTalk(tmp_path, project={"r": text})
    talk.choose("r")
    await talk.run()
    write(talk.project, ".claude/agents/r.md", "No limits.")
    again = RoleTalk(tmp_path, bash("true"))
    assert again.services.role.shown().name == "r"
    async with again.served():
        await again.run_turns(Prompt("p2", "again"))
    assert "does not have the tool bash" in again.results[-1].content
    assert again.notes().count("Review.") == 1
    again.choose("")
    assert again.mode == "ask"


async def test_the_model_from_before_a_role_is_used_again_also_after_a_restart(tmp_path):
    own = {"r": {"prompt": "Review.", "model": "claude-haiku-4-5"}}
    talk = RoleTalk(tmp_path, own=own)
    before = talk.services.provider.model
    talk.choose("r")
    await talk.run()
    again = RoleTalk(tmp_path, own=own)
    assert again.services.provider.model == "claude-haiku-4-5"
    again.choose("")
    assert again.services.provider.model == before
    await again.aclose()


async def test_a_role_that_is_chosen_again_is_sent_as_it_is_now(tmp_path):
    talk = RoleTalk(tmp_path, [{"text": "a"}], [{"text": "b"}], project={"r": "Review."})
    talk.choose("r")
    async with talk.served():
        await talk.run_turns(Prompt("p1", "a"))
        write(talk.project, ".claude/agents/r.md", "Review twice.")
        trust_all(talk.services.project.trust)
        talk.choose("r")
        await talk.run_turns(Prompt("p2", "b"))
    assert talk.notes().count("Review twice.") == 1


async def test_the_texts_of_its_skills_are_sent_with_a_role(tmp_path):
    talk = RoleTalk(tmp_path, own={"r": {"skills": ["pdf", "nothing"]}})
    write(talk.project, ".agents/skills/pdf/SKILL.md", skill("pdf"))
    trust_all(talk.services.project.trust)
    talk.choose("r")
    await talk.run()
    assert "[The skill pdf, from .agents/skills/pdf/SKILL.md" in talk.notes()
    assert talk.warnings == ["The role r names skills that do not exist: nothing."]


async def test_a_summary_is_followed_by_the_role(tmp_path):
    talk = RoleTalk(tmp_path, own={"r": {"prompt": "Pirate."}})
    talk.choose("r")
    await talk.run()
    assert "Pirate." in "\n".join(talk.services.notes.after_summary())


async def test_roles_are_listed_with_their_problems(tmp_path):
    talk = RoleTalk(
        tmp_path,
        own={"a": {"description": "d", "tools": ["Read"]}},
        project={"b": "---\nmode: wild\n---\nDo.", "c": "---\nname: c"},
    )
    listed = await talk.conversation.answer(ListRoles("s1"))
    assert listed.roles == (
        ShownRole("a", "d", "user", "read"),
        ShownRole("b", source="project", problems=("its mode 'wild' is none of ask, auto, plan",)),
    )
    assert listed.problems == (".claude/agents/c.md: its header is not closed by a line `---`",)


# --- settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table, message",
    [
        ({"tool": ["Read"]}, "unknown key 'roles.r.tool'; did you mean 'roles.r.tools'?"),
        ({"mode": "wild"}, "'roles.r.mode': must be one of ask, auto, plan"),
        ({"prompt": 3}, "'roles.r.prompt': must be a string, not a whole number"),
    ],
)
def test_a_mistake_in_a_role_is_named(tmp_path, table, message):
    layers = Layers(state_dir=str(tmp_path), file=Layer("config.toml", {"roles": {"r": table}}))
    found = [str(each) for each in mistakes_in(layers.settings(), str(tmp_path))]
    assert any(message in each for each in found), found


def merged(own: dict[str, Any], project: dict[str, Any]) -> Settings:
    file, theirs = Layer("config.toml", own), Layer(".sanderling.toml", project)
    return Layers(state_dir="/nowhere", file=file, project=theirs).settings()


@pytest.mark.parametrize(
    "own, project, mode",
    [
        ("", "auto", "ask"),
        ("auto", "plan", "plan"),
        ("auto", "ask", "ask"),
        ("plan", "ask", "plan"),
        ("auto", "", "auto"),
    ],
)
def test_a_project_only_makes_the_mode_stricter(own, project, mode):
    assert merged({"mode": own} if own else {}, {"mode": project} if project else {}).mode == mode


@pytest.mark.parametrize(
    "own, project, network",
    [
        ("", "on", "off"),
        ("on", "off", "off"),
        ("on", "proxy", "proxy"),
        ("proxy", "on", "proxy"),
        ("on", "", "on"),
    ],
)
def test_a_project_only_makes_the_network_stricter(own, project, network):
    found = merged({"network": own} if own else {}, {"network": project} if project else {})
    assert found.network == network


class DefaultTalk(BaseTalk):
    def __init__(self, base: Path, session_id: str = "s1", **fields: Any) -> None:
        project = base / "home/project"
        project.mkdir(parents=True, exist_ok=True)
        session = Session.open(base / "state/sessions", session_id, str(project))

        settings = msgspec.structs.replace(settings_of(session), **fields)
        super().__init__(session, scripted([{"text": "Done."}]), settings=settings)


async def test_the_mode_of_the_settings_is_for_new_sessions(tmp_path):
    talk = DefaultTalk(tmp_path, mode="plan")
    assert talk.services.gate.mode == "plan"
    async with talk.served():
        talk.conversation.act(SetMode("ask"))
        await talk.run_turns(Prompt("p1", "Hello."))
    assert DefaultTalk(tmp_path, mode="plan").services.gate.mode == "ask"
