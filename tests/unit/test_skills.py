"""Agent Skills: where they are found, how leniently they are read, and what the model is sent of them."""

from pathlib import Path

import pytest
from tests.unit.test_tool_uses import Talk
from tests.unit.test_trust import trust_all, write

from sanderling.errors import ConfigError
from sanderling.project.places import Places
from sanderling.project.skills import MAX_LISTED_CHARS, Skills, Skipped
from sanderling.project.slash_commands import SlashCommands
from sanderling.project.trust.trust import OwnFiles, Trust

PDF = "---\nname: pdf\ndescription: Fill forms. Use for PDFs.\n---\n\n# PDFs\n\nRun scripts/fill.py.\n"


@pytest.fixture
def skills(places: Places, project: Path) -> Skills:
    return Skills(places, str(project), disabled=("off",))


def skill(name: str, description: str = "Does it.", **fields: str) -> str:
    header = {"name": name, "description": description} | fields
    lines = "\n".join(f"{key.replace('_', '-')}: {value}" for key, value in header.items())
    return f"---\n{lines}\n---\nDo it."


def test_the_users_skills_are_found(skills, own):
    write(own, "skills/pdf/SKILL.md", PDF)
    write(own, "skills/group/deep/xlsx/SKILL.md", skill("xlsx"))
    write(own, "skills/README.md", "no skill")
    found = skills.all()
    assert sorted(found) == ["pdf", "xlsx"]
    assert found["pdf"].description == "Fill forms. Use for PDFs."
    assert found["pdf"].body == "# PDFs\n\nRun scripts/fill.py."
    assert found["pdf"].path == str(own / "skills/pdf/SKILL.md")
    assert found["pdf"].problems == ()


@pytest.mark.parametrize("directory", [".agents", ".claude", ".sanderling"])
def test_a_projects_skills_are_used_once_their_bytes_are_trusted(skills, trust, project, directory):
    path = f"{directory}/skills/pdf/SKILL.md"
    write(project, path, PDF)
    assert skills.all() == {}
    assert skills.ignored() == (path,)
    trust_all(trust)
    assert skills.all()["pdf"].path == path
    write(project, path, PDF + "And upload them.")
    assert skills.all() == {}


def test_the_trust_page_shows_a_skills_bytes(trust, project):
    write(project, ".agents/skills/pdf/SKILL.md", PDF)
    (shown,) = trust.shown().files
    assert (shown.path, shown.text) == (".agents/skills/pdf/SKILL.md", PDF)


def test_a_skill_above_the_project_in_the_same_repository_is_found(tmp_path):
    repository = tmp_path / "repository"
    write(repository, ".git/HEAD", "ref: refs/heads/main")
    write(repository, ".agents/skills/pdf/SKILL.md", PDF)
    write(tmp_path, ".agents/skills/outside/SKILL.md", skill("outside"))
    project = repository / "packages" / "one"
    project.mkdir(parents=True)
    trust = Trust(str(tmp_path / "state"), str(project))
    skills = Skills(Places(trust, ()), str(project))
    assert skills.all() == {}
    assert skills.ignored() == ("../../.agents/skills/pdf/SKILL.md",)
    trust_all(trust)
    (found,) = skills.all().values()
    assert found.directory == str(repository / ".agents/skills/pdf")


def test_a_project_beats_the_user_and_its_own_directory_beats_the_shared_one(
    skills, trust, project, own
):
    write(own, "skills/pdf/SKILL.md", skill("pdf", "the user's"))
    write(project, ".claude/skills/pdf/SKILL.md", skill("pdf", "claude's"))
    write(project, ".agents/skills/pdf/SKILL.md", skill("pdf", "shared"))
    trust_all(trust)
    assert skills.all()["pdf"].description == "shared"
    skipped = [each.problem for each in skills.found() if isinstance(each, Skipped)]
    assert skipped == [".agents/skills/pdf/SKILL.md has the same name and comes first"] * 2


def test_nothing_inside_a_skill_is_another_skill(skills, own):
    write(own, "skills/pdf/SKILL.md", PDF)
    write(own, "skills/pdf/references/nested/SKILL.md", skill("nested"))
    write(own, "skills/node_modules/x/SKILL.md", skill("x"))
    assert list(skills.all()) == ["pdf"]


def test_a_linked_skill_of_the_user_is_found_and_a_circle_of_links_ends(skills, own, tmp_path):
    write(tmp_path, "dotfiles/pdf/SKILL.md", PDF)
    (own / "skills").mkdir(parents=True)
    (own / "skills" / "pdf").symlink_to(tmp_path / "dotfiles" / "pdf")
    (own / "skills" / "round").symlink_to(own / "skills")
    assert list(skills.all()) == ["pdf"]


@pytest.mark.parametrize(
    "text, problem",
    [
        (skill("PDF_Tools"), "its name 'PDF_Tools' should have"),
        (skill("other"), "its name 'other' differs from its directory's, 'pdf'"),
        ("---\ndescription: Does it.\n---\nx", "it has no name"),
        ("---\nname:\ndescription: Does it.\n---\nx", "it has no name"),
        (
            "---\nname: pdf\ndescription: Does it.\ncompatibility: [a]\n---\nx",
            "its `compatibility` is not a text",
        ),
        (skill("pdf--"), "its name 'pdf--' should have"),
        (skill("pdf", "Use when: asked"), "not valid YAML"),
        (skill("pdf", "x" * 1025), "more than 1,024 characters"),
        (skill("pdf", compatibility="x" * 501), "more than 500"),
        (skill("pdf", allowed_tools="Bash(*)"), "grants nothing"),
        (skill("pdf", argument_hints="[x]"), "it has `argument-hints` instead of `argument-hint`"),
        (skill("pdf", user_invocable="no"), "its `user-invocable` 'no' is neither true nor false"),
        ("---\nname: [a]\ndescription: Does it.\n---\nx", "its `name` is not a text"),
    ],
)
def test_a_mistake_that_can_be_repaired_is_a_problem_and_the_skill_is_used(
    skills, own, text, problem
):
    write(own, "skills/pdf/SKILL.md", text)
    (found,) = skills.all().values()
    assert any(problem in each for each in found.problems)
    assert len(found.description) <= 1024


def test_letters_of_any_script_may_be_in_a_name(skills, own):
    write(own, "skills/größe/SKILL.md", skill("größe"))
    assert skills.all()["größe"].problems == ()


@pytest.mark.parametrize(
    "text, problem",
    [
        ("# no header", "no description"),
        ("---\nname: pdf\n---\nx", "no description"),
        ("---\nname: pdf\ndescripton: x\n---\nx", "`descripton` instead of `description`"),
        ("---\nname: [pdf\nx: }\n---\nx", "not valid YAML"),
        ("---\nname: pdf", "not closed"),
        (skill("off"), "disabled in the settings"),
    ],
)
def test_a_skill_that_cannot_be_used_says_why(skills, own, text, problem):
    write(own, "skills/pdf/SKILL.md", text)
    assert skills.all() == {}
    (skipped,) = skills.found()
    assert problem in skipped.problem


def test_a_hint_in_brackets_is_text_and_true_may_have_a_capital(skills, own):
    write(
        own,
        "skills/pdf/SKILL.md",
        skill("pdf", argument_hint="[page]", disable_model_invocation="True"),
    )
    (found,) = skills.all().values()
    assert (found.argument_hint, found.is_listed, found.problems) == ("[page]", False, ())


def test_a_long_description_is_cut_in_the_menu_and_whole_for_the_model(skills, own):
    write(own, "skills/pdf/SKILL.md", skill("pdf", "x" * 1000))
    assert len(skills.all()["pdf"].shown().description) == 200
    assert "x" * 1000 in skills.news()


def test_a_description_stays_in_its_line(skills, own):
    write(own, "skills/pdf/SKILL.md", skill("pdf", "|\n  one\n  - fake: two"))
    assert skills.all()["pdf"].description == "one - fake: two"


@pytest.mark.parametrize("hint", ["[version]", "'[version]'", "[major, minor]", "<version>", ""])
def test_a_hint_of_the_arguments_needs_no_quotes(skills, own, hint):
    header = f"name: release\ndescription: Release.\nargument-hint: {hint}"
    write(own, "skills/release/SKILL.md", f"---\n{header}\n---\nDo it.\n")
    assert skills.all()["release"].shown().arguments == hint.strip("'")


def test_the_model_is_sent_each_skill_once_and_then_what_changed(skills, own):
    assert skills.news() == ""
    write(own, "skills/pdf/SKILL.md", PDF)
    news = skills.news()
    assert "read its file before you begin" in news
    assert f"- pdf: Fill forms. Use for PDFs. ({own}/skills/pdf/SKILL.md)" in news
    assert skills.news() == ""
    write(own, "skills/xlsx/SKILL.md", skill("xlsx"))
    assert skills.news().splitlines()[0] == "[New or changed skills:"
    (own / "skills/pdf/SKILL.md").unlink()
    assert skills.news() == "[No longer available: pdf.]"
    skills.restore(skills.state())
    assert skills.news() == ""
    skills.forget()
    assert "- xlsx" in skills.news()


def test_a_skill_that_only_the_user_may_start_is_not_listed(skills, own):
    write(own, "skills/deploy/SKILL.md", skill("deploy", disable_model_invocation="true"))
    assert skills.news() == ""
    assert list(skills.all()) == ["deploy"]


def test_very_many_skills_stay_within_the_bound(skills, own):
    for number in range(100):
        write(own, f"skills/s{number}/SKILL.md", skill(f"s{number}", "x" * 1000))
    news = skills.news()
    assert all(f"- s{number}: " in news for number in range(100))
    assert len(news) < MAX_LISTED_CHARS + 100 * len(str(own))


def test_a_name_typed_by_the_user_becomes_the_skills_text(skills, places, own):
    write(own, "skills/pdf/SKILL.md", PDF)
    commands = SlashCommands(places, skills)
    text = commands.expand("/pdf form.pdf")
    assert text.startswith(f"Use the skill pdf; names in it are relative to {own}/skills/pdf.")
    assert text.endswith("Run scripts/fill.py.\n\nform.pdf")
    assert [each.source for each in commands.all() if each.name == "pdf"] == ["user"]


def test_a_text_that_the_model_has_read_is_not_sent_twice(skills, places, own):
    write(own, "skills/pdf/SKILL.md", PDF)
    commands = SlashCommands(places, skills)
    skills.note_read([f"{own}/skills/pdf/SKILL.md"])
    assert commands.expand("/pdf form.pdf") == (
        "Use the skill pdf, which you have read.\n\nform.pdf"
    )
    write(own, "skills/pdf/SKILL.md", PDF + "More.")
    assert "More." in commands.expand("/pdf")


def test_placeholders_in_a_skill_are_replaced(skills, places, own):
    text = skill("pdf") + " ${CLAUDE_SKILL_DIR}/run.py ${SKILL_DIR}/x $ARGUMENTS"
    write(own, "skills/pdf/SKILL.md", text)
    expanded = SlashCommands(places, skills).expand("/pdf a b")
    directory = f"{own}/skills/pdf"
    assert expanded.endswith(f"Do it. {directory}/run.py {directory}/x a b")


def test_a_command_file_beats_a_skill_of_its_name(skills, places, own):
    write(own, "skills/pdf/SKILL.md", PDF)
    write(own, "commands/pdf.md", "The command.")
    assert SlashCommands(places, skills).expand("/pdf") == "The command."


def test_a_skill_that_only_the_model_may_start_is_no_command(skills, places, own):
    write(own, "skills/pdf/SKILL.md", skill("pdf", user_invocable="false"))
    commands = SlashCommands(places, skills)
    assert "pdf" not in [each.name for each in commands.all()]
    with pytest.raises(ConfigError, match="no command"):
        commands.expand("/pdf")


def test_texts_that_were_read_are_sent_again_after_a_summary(skills, own):
    write(own, "skills/pdf/SKILL.md", PDF)
    write(own, "skills/xlsx/SKILL.md", skill("xlsx"))
    assert skills.read_before() == ""
    skills.note_read([f"{own}/skills/pdf/SKILL.md", "other.py"])
    again = skills.read_before()
    assert "Run scripts/fill.py." in again
    assert "xlsx" not in again
    skills.forget(keeps_read=True)
    assert skills.read_before() == again
    skills.forget()
    assert skills.read_before() == ""


def test_of_many_texts_that_were_read_the_latest_are_sent_again_and_the_others_named(skills, own):
    for name in ("first", "second", "third"):
        write(own, f"skills/{name}/SKILL.md", skill(name) + f" {name[0]}" * 15_000)
        skills.note_read([f"{own}/skills/{name}/SKILL.md"])
    again = skills.read_before()
    assert "Do it. t t" in again
    assert "Do it. s s" in again
    assert "Do it. f f" not in again
    assert f"[You had also read these skills: {own}/skills/first/SKILL.md.]" in again


def test_directories_of_skills_outside_the_project_may_be_read(places, own, project, tmp_path):
    write(own, "skills/pdf/SKILL.md", PDF)
    write(tmp_path, "dotfiles/xlsx/SKILL.md", skill("xlsx"))
    (own / "skills" / "xlsx").symlink_to(tmp_path / "dotfiles" / "xlsx")
    write(project, ".agents/skills/own/SKILL.md", skill("own"))
    assert set(places.skills_outside()) == {
        str(own / "skills"),
        str(own / "skills/pdf"),
        str(tmp_path / "dotfiles/xlsx"),
    }


def test_a_repositorys_link_does_not_open_another_directory(tmp_path):
    secret = tmp_path / "home" / ".ssh"
    write(secret, "x/SKILL.md", skill("x"))
    repository = tmp_path / "repository"
    write(repository, ".git/HEAD", "ref: refs/heads/main")
    (repository / ".agents").mkdir()
    (repository / ".agents" / "skills").symlink_to(secret)
    project = repository / "one"
    project.mkdir()
    places = Places(Trust(str(tmp_path / "state"), str(project)), ())
    assert places.skills_outside() == ()


def test_a_link_that_a_command_made_opens_nothing_of_the_repository_around_the_project(tmp_path):
    repository = tmp_path / "repository"
    write(repository, ".git/HEAD", "ref: refs/heads/main")
    write(repository, "other/secrets/SKILL.md", skill("secrets"))
    write(repository, ".agents/skills/shared/SKILL.md", skill("shared"))
    project = repository / "one"
    (project / ".agents").mkdir(parents=True)
    (project / ".agents/skills").symlink_to("../..")
    (project / ".claude/skills").mkdir(parents=True)
    (project / ".claude/skills/link").symlink_to("../../../other/secrets")
    (project / ".claude/skills/shared").symlink_to("../../../.agents/skills/shared")
    trust = Trust(str(tmp_path / "state"), str(project))
    own = {str(repository / ".agents/skills"), str(repository / ".agents/skills/shared")}
    assert set(Places(trust, ()).skills_outside()) == own
    assert trust.look(".claude/skills/link/SKILL.md")


def test_a_link_of_the_users_into_the_project_opens_nothing_outside_of_it(
    places, skills, project, own
):
    secret = project.parent / "secret"
    write(secret, "pdf/SKILL.md", PDF)
    own.mkdir()
    (own / "skills").symlink_to(project / "skills")
    (project / "skills").symlink_to("../secret")
    assert places.skills_outside() == ()
    assert skills.all() == {}
    [skipped] = skills.found()
    assert isinstance(skipped, Skipped)
    assert "leads through the project" in skipped.problem


@pytest.mark.parametrize("link", ["{own}/real", "real"])
def test_other_links_of_the_users_are_followed(places, skills, own, link):
    write(own, "real/pdf/SKILL.md", PDF)
    (own / "skills").symlink_to(link.format(own=own))
    assert places.skills_outside() == (str(own / "real"), str(own / "real/pdf"))
    assert skills.all().keys() == {"pdf"}


def test_a_link_in_a_circle_is_no_skill(skills, trust, project, own):
    for directory in (project / ".agents/skills", own / "skills"):
        write(directory, "pdf/SKILL.md", PDF)
        (directory / "loop").symlink_to("loop")
    trust_all(trust)
    assert skills.all()["pdf"].path == ".agents/skills/pdf/SKILL.md"


def test_what_a_projects_link_leads_to_outside_is_reported_and_not_searched(skills, trust, project):
    outside = project.parent / "outside"
    write(outside, "pdf/SKILL.md", PDF)
    write(outside, "deep/deeper/xlsx/SKILL.md", PDF)
    (project / ".agents").mkdir()
    (project / ".agents/skills").symlink_to(outside)
    assert skills.all() == {}
    assert skills.ignored() == (".agents/skills/pdf/SKILL.md",)
    [file] = trust.shown().files
    assert "leads out of the project" in file.text


def test_a_link_to_home_itself_is_not_opened(tmp_path, project, monkeypatch):
    home = tmp_path / "home"
    write(home, "x/SKILL.md", skill("x"))
    monkeypatch.setenv("HOME", str(home))
    (home / ".agents").mkdir()
    (home / ".agents" / "skills").symlink_to(home)
    trust = Trust(str(tmp_path / "state"), str(project))
    assert (
        str(home) not in Places(trust, (OwnFiles(str(home / ".agents"), trust),)).skills_outside()
    )


async def test_a_skill_that_the_model_has_read_survives_a_summary(tmp_path):
    project = tmp_path / "home/project"
    write(project, ".agents/skills/pdf/SKILL.md", PDF)
    path = ".agents/skills/pdf/SKILL.md"
    talk = Talk(tmp_path, ("read", {"path": path}))
    trust_all(talk.services.project.trust)
    await talk.run()
    assert "Run scripts/fill.py." in talk.told()
    again = talk.services.notes.after_summary()
    assert any("Run scripts/fill.py." in note for note in again)
    assert any(f"- pdf: Fill forms. Use for PDFs. ({path})" in note for note in again)
