"""The number of changed files, counted by git in the sandbox."""

from sanderling.tools.commands.git_status import count_changed
from tests.sandbox.test_files import session_of


async def test_changed_and_untracked_files_count_and_a_clean_project_has_none(place):
    async with session_of(place) as session:
        environment = session.environment
        assert await count_changed(environment) == 0
        (place.project / "file").write_text("changed\n")
        for name in ("new", "also new"):
            (place.project / name).touch()
        assert await count_changed(environment) == 3
        place.git("mv", "-f", "file", "renamed")
        assert await count_changed(environment) == 4


async def test_outside_of_a_repository_git_does_not_say(place):
    project = place.base / "plain"
    project.mkdir()
    async with session_of(place, project=str(project)) as session:
        assert await count_changed(session.environment) is None


async def test_counting_runs_nothing_that_the_repository_configures(place):
    trap = f"touch {place.project}/ran; cat"
    place.git("config", "filter.evil.clean", trap)
    place.git("config", "core.fsmonitor", trap)
    (place.project / ".gitattributes").write_text("* filter=evil\n")
    (place.project / "file").write_text("pubLic\n")
    async with session_of(place) as session:
        assert await count_changed(session.environment) == 2
    assert not (place.project / "ran").exists()
