"""A recorded session replays as it was, and tells nobody's secrets."""

import json
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests import loopback
from tests.conftest import ROOT, little_work, prove
from tests.loopback import LoopbackServer, Reply, message_start, text, thinking, tool_use
from tests.talk import BaseTalk, scripted

from sanderling.config import Settings
from sanderling.errors import ConfigError, ProviderError
from sanderling.protocol.events import (
    Event,
    SandboxChanged,
    SessionOpened,
    TextDelta,
    ThinkingDelta,
    UsageUpdated,
)
from sanderling.protocol.messages import Message, Prompt, TextBlock, ToolUse
from sanderling.providers import ModelRequest, Provider, StreamItem, TextPiece
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.recording import Recording, RecordingProvider
from sanderling.providers.redaction import Redactor
from sanderling.providers.scripted import Script, ScriptedProvider, load_script
from sanderling.session.session import Session

GOLDEN = ROOT / "tests" / "golden" / "recorded_script_v1.json"
REQUEST = ModelRequest("", [Message("user", (TextBlock("Hello."),))])


def redactor(project: str = "/work/project", **more: Any) -> Redactor:
    return Redactor(project, **{"environment": {}, "home": "/home/alice", "user": "alice"} | more)


async def answer(provider: Provider) -> None:
    """Ask, and read the answer to its end."""
    with suppress(ProviderError):
        async for _ in provider.stream(REQUEST):
            pass


def replies_in(path: Path) -> list[Any]:
    return json.loads(path.read_text())["reply"]


async def record(provider: Provider, path: Path) -> dict[str, Any]:
    """What is recorded of one answer."""
    await answer(RecordingProvider(provider, Recording(path, redactor())))
    return replies_in(path)[0]


async def test_blocks_are_recorded_whole_and_in_order(tmp_path):
    use = {"name": "read", "input": {"path": "a.py"}, "id": "toolu_1"}
    steps = [{"thinking": "Hm."}, {"text": "I look.", "chunk_chars": 2}, {"tool_use": use}]
    reply = await record(scripted(steps), tmp_path / "r.json")
    assert reply["step"] == [{"thinking": "Hm."}, {"text": "I look."}, {"tool_use": use}]


async def test_an_input_that_cannot_be_read_stays_one(tmp_path):
    use = {"name": "read", "input": {}, "id": "toolu_1", "problem": "It was cut off."}
    assert (await record(scripted([{"tool_use": use}]), tmp_path / "r.json"))["step"] == [
        {"tool_use": use}
    ]


async def test_a_user_may_be_called_like_a_word_of_ours(tmp_path):
    use = {"name": "read", "input": {"path": "/home/server/a.py"}, "id": "toolu_1"}
    error = {"kind": "server", "message": "The server of server is down."}
    provider = scripted([{"tool_use": use}, {"error": error}])
    redact = redactor(home="/home/server", user="server")
    await answer(RecordingProvider(provider, Recording(tmp_path / "r.json", redact)))
    [reply] = replies_in(tmp_path / "r.json")
    assert reply["step"] == [
        {"tool_use": use | {"input": {"path": "~/a.py"}}},
        {"error": {"kind": "server", "message": "The user of user is down."}},
    ]
    assert load_script(tmp_path / "r.json")


async def test_errors_and_cuts_are_recorded_behind_what_came_before(tmp_path):
    error = {"kind": "overloaded", "message": "Too busy.", "remedy": "Wait."}
    steps = [{"text": "So far."}, {"error": error}]
    assert (await record(scripted(steps), tmp_path / "a.json"))["step"] == steps
    steps = [{"text": "So far."}, {"cut": True}]
    assert (await record(scripted(steps), tmp_path / "b.json"))["step"] == steps


class Stopping(ScriptedProvider):
    """Says a piece of a text, and no more."""

    def __init__(self) -> None:
        super().__init__(Script(1, ()))
        self.waits = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        del request
        yield TextPiece("Half a")
        self.waits.set()
        await anyio.sleep_forever()


async def test_an_answer_that_was_stopped_is_recorded_as_far_as_it_came(tmp_path):
    stopping = Stopping()
    provider = RecordingProvider(stopping, Recording(tmp_path / "r.json", redactor()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer, provider)
        await stopping.waits.wait()
        tasks.cancel_scope.cancel()
    [reply] = replies_in(tmp_path / "r.json")
    assert reply == {"step": [{"text": "Half a"}], "stop_reason": "cancelled"}


async def test_file_is_its_owners_and_whole_after_each_reply(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("an earlier one")
    path.chmod(0o644)
    provider = scripted(*([{"text": str(n)}] for n in range(3)))
    recorded = RecordingProvider(provider, Recording(path, redactor()))
    for count in range(1, 4):
        await answer(recorded)
        assert len(load_script(path).reply) == count
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    places = (tmp_path, tmp_path / "none" / "r.json", tmp_path / "fifo", Path("/dev/null"))
    for path in places:
        with pytest.raises(ConfigError, match="cannot record to"):
            Recording(path, redactor())


async def test_a_secret_that_is_known_later_is_taken_out_of_earlier_replies(tmp_path):
    provider = scripted([{"text": "It says xK9mQ2vL7pR4."}], [{"text": "DB_PASSWORD=xK9mQ2vL7pR4"}])
    recorded = RecordingProvider(provider, Recording(tmp_path / "r.json", redactor()))
    await answer(recorded)
    await answer(recorded)
    assert "xK9mQ2vL7pR4" not in (tmp_path / "r.json").read_text()


async def converse(
    folder: Path, provider: Provider, *prompts: str
) -> tuple[list[Event], list[Message]]:
    """All that is emitted, and the history, of a session in a project of its own."""
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "a.py").write_text("print('a')\n")
    session = Session.open(folder / "sessions", "s1", str(project))
    talk = BaseTalk(session, provider, settings=Settings(state_dir=str(folder)))
    talk.conversation.controls.set_mode("auto")
    async with talk.served():
        await talk.run_turns(*(Prompt(f"p{n}", words) for n, words in enumerate(prompts, 1)))
        talk.conversation.close()
    return talk.events, talk.history


def comparable(events: list[Event], folder: Path) -> list[Any]:
    """Texts joined; without times, sandbox and token counts of the request."""
    found: list[Any] = []
    for event in events:
        match event:
            case TextDelta(block_id, piece) | ThinkingDelta(block_id, piece):
                if found and isinstance(found[-1], list) and found[-1][1] == block_id:
                    found[-1][2] += piece
                else:
                    found.append([type(event).__name__, block_id, piece])
            case UsageUpdated() | SandboxChanged() | SessionOpened():
                pass
            case _:
                data = msgspec.to_builtins(event)
                if data["type"] == "tool_ended":
                    data.pop("summary")  # how long it took
                if data["type"] != "provider_starting":
                    found.append(json.loads(json.dumps(data).replace(str(folder), "")))
    return found


def spoken(history: list[Message]) -> list[Any]:
    """What the model has said, but for its thoughts, whose signatures differ."""
    blocks = (
        block for message in history if message.role == "assistant" for block in message.content
    )
    return [block for block in blocks if isinstance(block, ToolUse | TextBlock)]


async def test_a_session_against_the_api_replays_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with LoopbackServer() as server:
        server.answer(
            Reply(
                message_start(),
                thinking("I look."),
                text("One ", "moment.", index=1),
                tool_use("toolu_1", "read", '{"path":', '"a.py"}', index=2),
                tool_use("toolu_2", "bash", '{"command": "wc -l < a.py"}', index=3),
                loopback.done("tool_use", output_tokens=40),
            ),
            Reply(
                message_start(),
                tool_use(
                    "toolu_3", "write", json.dumps({"path": "b.py", "content": "print('b')\n"})
                ),
                tool_use("toolu_4", "edit", '{"path": "a.', index=1),
                loopback.done("max_tokens"),
            ),
            Reply(message_start(), text("Both ", "done."), loopback.done()),
            Reply(message_start(), text("Twice."), loopback.done()),
        )
        settings = Settings(state_dir=str(tmp_path), base_url=server.url)
        recording = Recording(tmp_path / "r.json", redactor(str(tmp_path / "first" / "project")))
        provider = RecordingProvider(AnthropicProvider(settings), recording)
        events, history = await converse(tmp_path / "first", provider, "Do it.", "Again?")
        await provider.aclose()
    replayed = ScriptedProvider(load_script(tmp_path / "r.json"), provider.model)
    events_again, history_again = await converse(tmp_path / "second", replayed, "Do it.", "Again?")
    assert comparable(events, tmp_path / "first") == comparable(events_again, tmp_path / "second")
    assert spoken(history) == spoken(history_again)
    assert (tmp_path / "second" / "project" / "b.py").read_text() == "print('b')\n"
    recorded = json.loads((tmp_path / "r.json").read_text())
    assert recorded == json.loads(GOLDEN.read_text())


# Made up, and put together here: no scanner takes them for real ones.
SECRETS = [
    "sk-ant-api03-" + "Ab1_" * 23,
    "sk-proj-" + "aB3d" * 12,
    "ghp_" + "aB3d" * 9,
    "github_pat_" + "aB3d_" * 16,
    "glpat-" + "aB3dE6gH9jK2mN5pQ8sT",
    "xoxb-" + "123456789012-abcdefABCDEF",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "hf_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "npm_" + "aB3d" * 9,
    "pypi-" + "AgEIcHlwaS5vcmc" * 5,
    "sk_live_" + "aB3d" * 6,
    "SG." + "aB3dE6gH9jK2mN5pQ8sT" + "." + "aB3dE6gH9jK2mN5pQ8sT" * 2,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nBG5vbmUAAAA=\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq",
    "123456789:AA" + "aB3dE6gH9jK2mN5pQ8sTaB3dE6gH9jK2m",
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:12])
def test_a_secret_of_a_known_shape_goes_wherever_it_stands(secret):
    for around in (
        *("{}", "key: {}", "curl -H 'x: {}' host", '{{"a": "{}"}}', "A={} B=1"),
        *("printf 'a\\n{}'", "host/?q=%3D{}"),
    ):
        told = redactor().text(around.format(secret))
        assert "REDACTED-1" in told
        assert secret[6:18] not in told


@pytest.mark.parametrize(
    "before, secret, after",
    [
        ("Authorization: Bearer ", "abc123def456ghi789", "\n"),
        ("-H 'Authorization: Basic ", "YWxhZGRpbjpvcGVuc2VzYW1l", "' host"),
        ("https://", "bob:s3cr3t-pass", "@host/repo.git"),
        ("postgres://", "app:x9Yz81k", "@db:5432/app"),
        ("curl -u bob:", "hunter2!", " https://host"),
        ('password = "', "correct1horse", '"'),
        ('{"api_key": "', "9f8e7d6c5b4a", '"}'),
        ("export DEPLOY_TOKEN=", "9f8e7d6c5b4a", " && make"),
        ("x-api-key: ", "9f8e7d6c5b4a", ""),
        ("https://host/?access_token=", "9f8e7d6c5b4a", "&page=2"),
        ("deploy --token ", "9f8e7d6c5b4a", " prod"),
        ("password=", "hunter22x", ""),
        ("export password=", "hunter22x", "\n"),
        ("password: ", "9f8e7d6c5b4a", "\n"),
        ("aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "\n"),
        ("//registry/:_authToken=", "abc123def456", "\n"),
        ("AccountName=x;AccountKey=", "abc123abc123==", ";"),
        ("Authorization: ", "9f8e7d6c5b4a", "\n"),
        ("Cookie: ", "id=abc123def; b=2", "\n"),
        ("machine h login bob password ", "hunter22", "\n"),
        ("mysql -uroot -p", "hunter22", " db"),
        ("sshpass -p '", "hunter22", "' ssh host"),
    ],
)
def test_a_secret_goes_for_what_stands_before_it(before, secret, after):
    assert redactor().text(before + secret + after) == f"{before}REDACTED-1{after}"


@pytest.mark.parametrize(
    "text",
    [
        *("token = get_token()", 'tokens = count("a b c")'),
        *('type: "password", required: "required"', "max_tokens=32000"),
        *("api_key = os.environ['KEY']", "the bearer of bad news, internationalization"),
        *("git@github.com:someone/thing.git", "password: str | None = None"),
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        *("git log --author=me@example.com", "secret_name = 'the-name'", "https://host:8080/a@b"),
        *("task-list-of-things-to-do-tomorrow", 'f"postgres://{user}:{password}@{host}"'),
        *("git clone https://user:$TOKEN@host/x.git", "token = self.token2", "token = tokens[i1]"),
        *("def handle(cookie: int, name: str) -> None:", r"first\n@docs/style.md"),
    ],
)
def test_what_is_no_secret_stays(text):
    assert redactor().text(text) == text


def test_the_same_value_has_the_same_stand_in():
    redact = redactor().text
    first, second = "ghp_" + "a1B2" * 9, "ghp_" + "c3D4" * 9
    assert redact(f"{first} {second} {first}") == "REDACTED-1 REDACTED-2 REDACTED-1"
    assert redact(f"again {second}") == "again REDACTED-2"


def test_a_short_secret_takes_no_other_word_along():
    redact = redactor().text
    redact("curl -u bob:data https://host")
    assert redact("cat database.txt data") == "cat database.txt REDACTED-1"


@prove
@pytest.mark.parametrize(
    "piece",
    [
        *("QUJD", "curl ", '-----BEGIN PRIVATE KEY-----"', "a.", "eyJaaaaaaaa-", "token", "x@a."),
        "a:",
    ],
)
def test_time_does_not_grow_by_the_square_of_a_long_line(piece):
    redact = redactor().text
    with little_work():
        redact(piece * (200_000 // len(piece)))


def test_a_stand_in_is_no_secret():
    redact = redactor().text
    once = redact("export API_TOKEN=9f8e7d6c5b4a; curl -u bob:hunter22 https://a:b1c2d3e4@host")
    assert redact(once) == once


def test_values_of_secret_variables_go_wherever_they_stand():
    environment = {
        "MY_API_KEY": "plain words 1",
        "HOME": "/home/alice",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "CI_TOKEN": "short",
        "PGPASSWORD": "more words 2",
    }
    redact = redactor(environment=environment).text
    told = redact("it is plain words 1, in /tmp/agent, more words 2")
    assert told == "it is REDACTED-1, in /tmp/agent, REDACTED-2"


@pytest.mark.parametrize(
    "text, told",
    [
        ("/work/project/src/a.py:3", "./src/a.py:3"),
        ("cd /work/project && ls", "cd . && ls"),
        ("/work/project2 and /mnt/work/project", "/work/project2 and /mnt/work/project"),
        ("/home/alice/.ssh/config.", "~/.ssh/config."),
        ("Look into /home/alice.", "Look into ~."),
        ("/home/alice2/x", "/home/alice2/x"),
        ("%2Fhome%2Falice%2Fx", "%2Fhome%2Fuser%2Fx"),
        ("/Users/alice/x, alice@host", "/Users/user/x, user@host"),
        ("malice", "malice"),
        (
            "Mail alice.b@corp.org or x@corp.org",
            "Mail person-1@example.com or person-2@example.com",
        ),
    ],
)
def test_whose_machine_it_was_is_not_told(text, told):
    assert redactor().text(text) == told


def test_a_place_goes_under_both_of_its_names(tmp_path):
    (tmp_path / "disk" / "project").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    redact = redactor(str(tmp_path / "link" / "project"), home=str(tmp_path / "link")).text
    for name in ("link", "disk"):
        assert redact(f"{tmp_path}/{name}/project/a {tmp_path}/{name}/b") == "./a ~/b"


def test_names_that_are_nobodys_stay():
    assert redactor(user="root").text("chown root x") == "chown root x"


def test_every_string_of_an_input_is_redacted():
    value = {"a": ["DB_PASSWORD=9f8e7d6c5b4a", 1, None, {"/home/alice/x": True}]}
    assert redactor().value(value) == {"a": ["DB_PASSWORD=REDACTED-1", 1, None, {"~/x": True}]}
