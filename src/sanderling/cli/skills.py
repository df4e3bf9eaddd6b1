"""`sanderling skills`: the Agent Skills of a project and the user, and what is wrong with them."""

import argparse
import sys
from pathlib import Path
from typing import Any

from sanderling.cli.alone import add_options, list_alone
from sanderling.cli.streams import say, say_untrusted
from sanderling.config.layers import own_layers
from sanderling.errors import SanderlingError, UsageError
from sanderling.json_lines import for_terminal
from sanderling.project.project import Project
from sanderling.project.root import project_root
from sanderling.project.skills import Skill, Skills, Skipped, read_skill, shown_skill
from sanderling.project.trust.reading import SKILL_NAMES, find_skills, read_file
from sanderling.protocol.requests import ShownSkill
from sanderling.text import visible_line

EXIT_PROBLEMS, EXIT_USAGE = 1, 2
NONE = "No skills: `:help sanderling-skills` names their directories."


def add(commands: Any) -> None:
    skills = commands.add_parser(
        "skills",
        description="List the skills of a project and your own, or explain what is wrong with them. Without an action, list them."
        " `:help sanderling-skills` describes them.",
        epilog=f"The exit status is 0; {EXIT_PROBLEMS} if `check` finds a problem; {EXIT_USAGE} for a mistake.",
    )
    list_alone(skills, list_skills)
    actions = skills.add_subparsers(metavar="{list,check}")
    listing = actions.add_parser("list", help="list the skills that the model is offered here")
    listing.set_defaults(run=list_skills)
    checking = actions.add_parser("check", help="explain what is wrong with skills")
    checking.add_argument(
        "directory",
        nargs="?",
        default="",
        metavar="DIR",
        help="with one skill or several; default: the project's and your own",
    )
    checking.set_defaults(run=check_skills)
    for each in (listing, checking):
        add_options(each)


def list_skills(arguments: argparse.Namespace) -> int:
    try:
        skills = _of_project(arguments.project)
    except SanderlingError as error:
        return _fail(error)
    found = [each for each in skills.found() if isinstance(each, Skill)]
    _say_ignored(skills)
    lines = [f"{each.name}: {each.description} ({each.path})" for each in found]
    _print(arguments, [shown_skill(each) for each in found], lines or [NONE])
    return 0


def check_skills(arguments: argparse.Namespace) -> int:
    try:
        if arguments.directory:
            found = _found_in(Path(arguments.directory).resolve())
        else:
            skills = _of_project(arguments.project)
            found = skills.found()
            _say_ignored(skills)
    except SanderlingError as error:
        return _fail(error)
    listed = [shown_skill(each) for each in found]
    lines = list[str]()
    for each in listed:
        lines += [f"{each.path}: {problem}" for problem in each.problems] or [f"{each.path}: ok"]
    _print(arguments, listed, lines or [NONE])
    return EXIT_PROBLEMS if any(each.problems for each in listed) else 0


def _of_project(directory: str) -> Skills:
    return Project(own_layers().settings(), project_root(directory)).skills


def _found_in(directory: Path) -> list[Skill | Skipped]:
    """Return the skill in `directory`, or those below it, trusted or not."""
    names = [name for name in SKILL_NAMES if (directory / name).is_file()][:1]
    names = names or find_skills(str(directory))
    if not names:
        raise UsageError(f"there is no file SKILL.md in {directory} or below it")
    paths = [f"{directory}/{name}" for name in names]
    contents = [(path, read_file(path)) for path in paths]
    return [
        Skipped(path, content.problem)
        if content.problem
        else read_skill(path, content.text, content.sha256)
        for path, content in contents
    ]


def _say_ignored(skills: Skills) -> None:
    if ignored := skills.ignored():
        say_untrusted(ignored)


def _print(arguments: argparse.Namespace, found: list[ShownSkill], lines: list[str]) -> None:
    shown = map(for_terminal, found) if arguments.json else map(visible_line, lines)
    sys.stdout.writelines(f"{line}\n" for line in shown)


def _fail(error: SanderlingError) -> int:
    say(str(error))
    return EXIT_USAGE
