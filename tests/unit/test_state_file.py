"""Files that several processes, and several threads of one, change at the same time: no change is lost, and none is torn."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from sanderling.errors import ConfigError
from sanderling.mcp.allowed import AllowedServers
from sanderling.mcp.project_file import ProposedServer
from sanderling.paths import replacing, temporaries_of
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import RuleStore
from sanderling.project.trust.store import TrustStore
from sanderling.protocol.actions import AnswerApproval
from sanderling.serve.token import own_token
from sanderling.state_file import StateFile, UnreadableError, Versioned, locked


class Numbers(Versioned):
    numbers: list[int]


@pytest.fixture
def file(tmp_path: Path) -> StateFile[Numbers]:
    return StateFile(tmp_path / "state" / "n.json", Numbers, version=1, max_bytes=1000)


def read(file: StateFile[Numbers]) -> list[int]:
    found = file.read()
    return found.numbers if found else []


def add(file: StateFile[Numbers], number: int) -> None:
    file.change(lambda: Numbers(1, [*read(file), number]))


def test_two_writers_in_one_process_each_put_a_whole_file_there(tmp_path):
    path = tmp_path / "a"
    with replacing(path) as one:
        one.write(b"one " * 10)
        with replacing(path) as two:
            two.write(b"two")
        assert path.read_bytes() == b"two"
        one.write(b"end")
    assert path.read_bytes() == b"one " * 10 + b"end"
    assert list(tmp_path.iterdir()) == [path]


def test_whoever_changes_a_file_waits_for_the_one_who_does_and_starts_from_what_that_has_left(file):
    is_inside, may_end = Event(), Event()

    def slowly() -> Numbers:
        before = read(file)
        is_inside.set()
        assert may_end.wait(20)
        return Numbers(1, [*before, 1])

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(file.change, slowly)
        assert is_inside.wait(20)
        second = threads.submit(add, file, 2)
        assert read(file) == []  # a reader does not wait
        may_end.set()
        first.result(20)
        second.result(20)
    assert read(file) == [1, 2]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700


def test_what_a_killed_writer_has_left_is_removed_by_the_next_one_and_nothing_else_is(file):
    add(file, 1)
    leftover = file.path.with_name(f".{file.path.name}.0123456789abcdef")
    other = file.path.with_name(f".{file.path.name}.swp")
    for path in (leftover, other):
        path.write_text("half")
    assert temporaries_of(file.path) == [leftover]
    add(file, 2)
    assert (leftover.exists(), other.exists(), read(file)) == (False, True, [1, 2])


@pytest.mark.parametrize(
    "data, words",
    [
        (b'{"version":1}', "is damaged"),
        (b"{", "is damaged"),
        (b"[" * 900, "is damaged"),
        (b'{"version":2,"other":true}', "was written by another version"),
        (b" " * 1001, "is too large"),
    ],
)
def test_what_cannot_be_used_is_named(file, data, words):
    add(file, 1)
    file.path.write_bytes(data)
    with pytest.raises(UnreadableError, match=words):
        file.read()
    with pytest.raises(UnreadableError):
        add(file, 2)
    assert file.path.read_bytes() == data


def test_what_could_not_be_read_again_is_not_written(file):
    add(file, 1)
    with pytest.raises(ConfigError, match="too large"):
        file.change(lambda: Numbers(1, list(range(1000))))
    assert read(file) == [1]


async def test_servers_that_two_editors_allow_are_both_allowed(tmp_path):
    """Each has read the file before the other one changed it."""

    async def always(_: object) -> AnswerApproval:
        return AnswerApproval("a", "always")

    state, project = str(tmp_path / "state"), str(tmp_path)
    editors = [AllowedServers(state, project, always) for _ in range(2)]
    servers = [ProposedServer(f"it {number}", str(number)) for number in range(2)]
    for editor in editors:
        assert not editor.is_allowed("a", servers[0])
    for name, editor, server in zip("ab", editors, servers, strict=True):
        assert await editor.ask(name, server)
    again = AllowedServers(state, project, always)
    assert [again.is_allowed(name, server) for name, server in zip("ab", servers, strict=True)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("kind", ["rules", "trust", "token"])
def test_every_store_waits_for_the_lock(tmp_path, kind):
    state = tmp_path / "state"
    rules, trust = RuleStore(str(state), str(tmp_path)), TrustStore(str(state), str(tmp_path))
    path, store = {
        "rules": (rules.path, lambda: rules.add(Rule(action="allow", command="ls"))),
        "trust": (trust.path, lambda: trust.replace({"AGENTS.md": "1"})),
        "token": (state / "serve-token", lambda: own_token(state)),
    }[kind]
    with pytest.MonkeyPatch.context() as patch, locked(path):
        patch.setattr("sanderling.state_file.MAX_LOCK_WAIT_S", 0.0)
        with pytest.raises(ConfigError, match="another process is changing"):
            store()
        assert not path.exists()
    if kind == "rules":  # which lie inside of this "project", so that nobody believes them
        return
    store()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_threads_that_ask_for_the_token_at_once_get_the_same(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        tokens = set(threads.map(lambda _: own_token(tmp_path), range(32)))
    assert len(tokens) == 1
