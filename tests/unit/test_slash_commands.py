"""Slash commands from Markdown files: who may make them, and what the model is sent for them."""

import os
import re
import time

import pytest
from tests.unit.test_trust import trust_all, write

from sanderling.errors import ConfigError
from sanderling.project.places import Places
from sanderling.project.skills import Skills
from sanderling.project.slash_commands import BUILT_IN, SlashCommands
from sanderling.protocol.events import SlashCommand


@pytest.fixture
def commands(places: Places) -> SlashCommands:
    return SlashCommands(places, Skills(places, ""))


def named(commands: SlashCommands) -> dict[str, SlashCommand]:
    return {command.name: command for command in commands.all()}


OURS = ["commit", "explain", "find", "fix", "review", "test"]


def test_review_is_there_from_the_beginning(commands):
    assert [command.name for command in commands.all()] == OURS
    review = named(commands)["review"]
    assert (review.name, review.source, review.arguments) == ("review", "sanderling", "[what]")
    assert "uncommitted changes" in review.description
    assert "What: src/api" in commands.expand("/review src/api")


@pytest.mark.parametrize("name", OURS)
def test_without_arguments_nothing_asks_for_them(commands, name):
    assert ": xyz" in commands.expand(f"/{name} xyz")
    first = commands.expand(f"/{name}").partition("\n")[0]
    assert re.fullmatch(r"[^:]+\.", first)


def test_files_of_the_person_keep_what_they_say_without_arguments(commands, own):
    write(own, "commands/issue.md", "Fix issue: $ARGUMENTS")
    assert commands.expand("/issue") == "Fix issue: "


def test_files_of_the_person_are_commands(commands, own):
    write(own, "commands/fix.md", "---\ndescription: Mend it\nargument-hint: <what>\n---\nFix $1!")
    write(own, "commands/git/pr.md", "# Open a pull request\n\nNow.")
    assert named(commands)["fix"] == SlashCommand("fix", "Mend it", "<what>", "user")
    assert named(commands)["git:pr"] == SlashCommand("git:pr", "Open a pull request", "", "user")
    assert commands.expand("/git:pr") == "# Open a pull request\n\nNow."


@pytest.mark.usefixtures("trust")
def test_a_typed_skill_or_command_below_a_directory_says_that_it_is_not_trusted(commands, project):
    write(project, ".claude/commands/git/pr.md", "Now.")
    write(project, ".agents/skills/deploy/SKILL.md", "---\nname: deploy\ndescription: d\n---\nx")
    with pytest.raises(ConfigError, match=r"not trusted \.claude/commands/git/pr\.md"):
        commands.expand("/git:pr")
    with pytest.raises(ConfigError, match=r"not trusted \.agents/skills/deploy/SKILL\.md"):
        commands.expand("/deploy")


def test_files_of_a_project_are_commands_once_they_are_trusted(commands, trust, project):
    write(project, ".sanderling/commands/mend.md", "Fix it.")
    assert "mend" not in named(commands)
    assert commands.ignored() == (".sanderling/commands/mend.md",)
    with pytest.raises(
        ConfigError, match=r"There is no command '/mend', because you have not trusted .*/mend.md"
    ):
        commands.expand("/mend")
    trust_all(trust)
    assert named(commands)["mend"].source == "project"
    assert commands.ignored() == ()
    write(project, ".sanderling/commands/mend.md", "Break it.")
    assert "mend" not in named(commands)


def test_project_goes_before_the_person_and_the_person_before_ours(commands, trust, own, project):
    for name in ("fix", "review"):
        write(own, f"commands/{name}.md", "of the person's")
        write(project, f".sanderling/commands/{name}.md", "of the project's")
    trust_all(trust)
    assert commands.expand("/fix") == "of the project's"
    assert commands.expand("/review") == "of the project's"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_no_file_replaces_what_is_built_in(commands, trust, own, project, name):
    write(own, f"commands/{name}.md", "x")
    write(project, f".sanderling/commands/{name}.md", "x")
    trust_all(trust)
    assert name not in named(commands)
    with pytest.raises(ConfigError, match=f"/{name} is a command of the chat window"):
        commands.expand(f"/{name} x")


@pytest.mark.parametrize("name", ["Fix.md", "1.md", "fix it.md", "fix.txt", ".fix.md", "a.b.md"])
def test_files_with_other_names_make_no_command(commands, own, name):
    write(own, f"commands/{name}", "x")
    assert list(named(commands)) == OURS


def test_hostile_files_in_the_directory_of_commands_are_no_commands(commands, project, tmp_path):
    directory = project / ".sanderling/commands"
    write(tmp_path, "secret.md", "top secret")
    write(directory, "large.md", b"x" * 10_000_000)
    os.mkfifo(directory / "fifo.md")
    (directory / "link.md").symlink_to(tmp_path / "secret.md")
    (directory / "gone.md").symlink_to("nowhere")
    (directory / "loop").symlink_to(directory)
    assert list(named(commands)) == OURS
    assert commands.ignored() == tuple(
        f".sanderling/commands/{name}.md" for name in ("fifo", "large", "link")
    )


def test_file_of_ones_own_that_cannot_be_read_says_why(commands, own):
    (own / "commands").mkdir(parents=True)
    os.mkfifo(own / "commands/fifo.md")
    assert "is not a regular file" in named(commands)["fifo"].description
    with pytest.raises(ConfigError, match="is not a regular file"):
        commands.expand("/fifo")


@pytest.mark.parametrize(
    "header, description, arguments",
    [
        ("description: Mend: it", "Mend: it", ""),
        ('description: "Mend it"\nargument-hint: "[a] b"', "Mend it", "[a] b"),
        ("argument-hint: [a]\n\ndescription: 'it''s'", "it's", "[a]"),
        ("argument-hint: [a] [b, c]", "Do.", "[a] [b, c]"),
        ("argument-hint: <a> | *.py", "Do.", "<a> | *.py"),
        ("argument-hint: *.py", "Do.", "*.py"),
        ("description: |\n  Mend\n  it", "Mend it", ""),
        ("description: a\ndescription: b", "b", ""),
        ("hide-from-slash-command-tool: 'true'\ncolor: red", "Do.", ""),
        ("description:", "Do.", ""),
        ("", "Do.", ""),
    ],
)
def test_header_describes_the_command(commands, own, header, description, arguments):
    write(own, "commands/fix.md", f"---\n{header}\n---\n\nDo.\n")
    fix = named(commands)["fix"]
    assert (fix.description, fix.arguments) == (description, arguments)
    assert commands.expand("/fix") == "Do."


def test_header_may_be_empty_and_have_foreign_line_ends(commands, own):
    write(own, "commands/a.md", "---\n---\nDo.")
    write(own, "commands/b.md", "---\r\ndescription: Mend\r\n---\r\nDo.\r\n")
    assert commands.expand("/a") == "Do."
    assert named(commands)["b"].description == "Mend"


@pytest.mark.parametrize(
    "text, why",
    [
        ("---\ndescription: x\nDo.", "not closed by a line `---`"),
        ("---\n- x\n---\nDo.", "its header is not made of lines `key: value`"),
        ("---\neffort: huge\n---\nDo.", "its effort 'huge' is none of default, low, "),
        ("---\ndescription: x\n---\n \n", "has no text for the model"),
        ("", "has no text for the model"),
    ],
)
def test_command_with_a_wrong_header_is_listed_with_the_reason(commands, own, text, why):
    write(own, "commands/fix.md", text)
    description = named(commands)["fix"].description
    assert description.startswith("commands/fix.md cannot be used: ")
    assert why in description
    with pytest.raises(ConfigError) as caught:
        commands.expand("/fix")
    assert str(caught.value) == description


@pytest.mark.parametrize(
    "template, typed, text",
    [
        ("Do.", "/fix", "Do."),
        ("Do.", "/fix  this that ", "Do.\n\nthis that"),
        ("Do.", "/fix\nthis\n\nthat", "Do.\n\nthis\n\nthat"),
        ("Do $ARGUMENTS!", "/fix don't  care", "Do don't  care!"),
        ("Do $ARGUMENTS!", "/fix", "Do !"),
        ("$1 and $2", "/fix 'a b' c", "a b and c"),
        ("$1 and $2", "/fix a", "a and "),
        ("$1 of $ARGUMENTS", "/fix a b c", "a of a b c"),
        ("$1", "/fix $2$ARGUMENTS$$", "$2$ARGUMENTS$$"),
        ("$$1 $100 $0 $ARGUMENTSX $", "/fix", "$1 $100 $0 $ARGUMENTSX $"),
        ("cost: $$5", "/fix it", "cost: $5\n\nit"),
        ("!`date` $(date)", "/fix", "!`date` $(date)"),
    ],
)
def test_arguments_take_their_places(commands, own, template, typed, text):
    write(own, "commands/fix.md", template)
    assert commands.expand(typed) == text


@pytest.mark.parametrize(
    "typed, why",
    [
        ("/fix 'a", "the arguments of /fix cannot be split into words: No closing quotation"),
        ("/fix a b c", "/fix takes 2 arguments, not 3; quote words that belong together"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(commands, own, typed, why):
    write(own, "commands/fix.md", "$2 $1")
    with pytest.raises(ConfigError) as caught:
        commands.expand(typed)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello", "/", "/etc/hosts is wrong", "/tmp is full", " /nothing", "a\n/nothing"),
        *("/Nothing", "//", "/no.thing", "/1"),
    ],
)
def test_what_is_no_command_is_sent_as_it_is(commands, text):
    assert commands.expand(text) == text


def test_unknown_command_is_refused_with_the_nearest_name(commands):
    with pytest.raises(ConfigError) as caught:
        commands.expand("/reveiw all")
    assert str(caught.value) == (
        "There is no command '/reveiw'; did you mean '/review'? A space before it sends it as text."
    )
    with pytest.raises(ConfigError, match=r"^There is no command '/qqqq'\. A space"):
        commands.expand("/qqqq")


def test_fences_that_are_not_closed_take_no_time(commands, own):
    write(own, "commands/many.md", "```!\nls\n" * 20_000 + "!`pwd`")
    began = time.process_time()
    asked = commands.asked("/many")
    assert time.process_time() - began < 2
    assert [each.command for each in asked.parts if not isinstance(each, str)] == ["pwd"]
