"""The SDK loaded in part, held against the whole of it: each in a process of its own, for it is loaded once."""

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from tests.conftest import prove
from tests.loopback import LoopbackServer, Reply, Status, done, message_start, text, tool_use
from tests.profiles import write_profile

from sanderling.providers.stand_ins import StandIns

TALK = """
import anyio, json, logging, sys
logging.basicConfig(level=logging.WARNING)
if sys.argv[2] == "whole":
    import anthropic
from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest
from sanderling.providers.anthropic.provider import AnthropicProvider

async def talk():
    provider = AnthropicProvider(Settings(base_url=sys.argv[1], model="claude-test", state_dir="."))
    for _ in range(int(sys.argv[3])):
        try:
            request = ModelRequest("Be brief.", [Message("user", (TextBlock("Hello."),))])
            print([item async for item in provider.stream(request)])
        except ProviderError as error:
            print(error.kind, error.message, error.remedy, error.retry_after_s)
    print(await provider.list_models())
    await provider.learn_limits()
    print(provider.limits)

anyio.run(talk)
"""
REFUSALS = (
    *(
        Status(status)
        for status in (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 503, 529)
    ),
    # An error of the SDK's own class, with details of a type of its own.
    *(
        Status(status, body=json.dumps({"type": "error", "error": error}).encode())
        for status, error in (
            (
                404,
                {
                    "type": "not_found_error",
                    "message": "gone",
                    "details": {"error_code": "file_expired"},
                },
            ),
            (429, {"type": "rate_limit_error", "message": ["not", "text"], "details": 7}),
        )
    ),
    Status(502, body=b"<html>Bad Gateway</html>"),
    Status(307, body=b""),
)


def answers():
    whole = Reply(
        message_start(input_tokens=3),
        text("Good ", "morning."),
        tool_use("toolu_1", "read", '{"path":', '"a"}', index=1),
        done("tool_use"),
    )
    return (whole, *REFUSALS, whole)


KEYED = {"ANTHROPIC_API_KEY": "sk-test"}


def run_python(
    *arguments: str, path: str = "", access: Mapping[str, str] = KEYED
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")
    }
    return subprocess.run(
        [sys.executable, "-c", *arguments],
        env=environment | access | {"NO_PROXY": "*", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def talk(how: str, access: Mapping[str, str]) -> tuple[str, str, list[tuple[object, ...]]]:
    """What is printed and logged, and what has gone over the wire."""
    with LoopbackServer() as server:
        server.answer(*answers())
        done = run_python(TALK, server.url, how, str(len(answers())), access=access)
        wire = [
            (each.method, each.path, sorted(each.headers.items()), each.body)
            for each in server.requests
        ]
        return done.stdout.replace(server.url, "URL"), done.stderr, wire


def test_who_asks_claude_with_a_key_loads_no_sdk():
    loaded = "\nprint({'anthropic', 'pydantic'} & set(sys.modules))"
    with LoopbackServer() as server:
        server.answer(*answers())
        asked = run_python(TALK + loaded, server.url, "without", "1")
    assert "Good " in asked.stdout
    assert asked.stdout.splitlines()[-1] == "set()"


BY_THE_SDK = """
import anthropic, sys
sent = {"role": "user", "content": [{"type": "text", "text": "Hello."}]}
client = anthropic.Anthropic(max_retries=0, base_url=sys.argv[1])
for _ in client.messages.create(model="claude-test", max_tokens=9, messages=[sent], stream=True):
    pass
print([model.id for model in client.models.list()])
"""
CUSTOM = {"ANTHROPIC_CUSTOM_HEADERS": "X-Gateway: a b\nAuthorization: Basic c"}
ITS_OWN = ("user-agent", "accept-encoding", "content-length", "x-api-key")


@prove
@pytest.mark.parametrize(
    "access", [KEYED, {"ANTHROPIC_AUTH_TOKEN": "token"}, KEYED | CUSTOM], ids=list("ktc")
)
def test_requests_with_a_key_have_what_the_sdk_sends(access):
    sent: list[list[dict[str, object]]] = []
    for code, *arguments in ((TALK, "without", "1"), (BY_THE_SDK,)):
        with LoopbackServer() as server:
            server.answer(*answers())
            run_python(code, server.url, *arguments, access=access)
            sent.append(
                [
                    {"path": (each.method, each.path.partition("?")[0])}
                    | {
                        name: value.replace(server.url.partition("//")[2], "HOST")
                        for name, value in each.headers.items()
                        if name not in ITS_OWN and not name.startswith("x-stainless-")
                    }
                    for each in server.requests[:2]
                ]
            )
    ours, theirs = sent
    assert len(ours) == 2
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1] | {"content-type": "application/json"}
    assert ours[0]["anthropic-version"]


@prove
def test_requests_answers_and_refusals_are_those_of_the_whole_sdk(tmp_path):
    access = write_profile(tmp_path, "token-of-profile")
    said, logged, wire = talk("in part", access)
    said_by_whole, _, wire_of_whole = talk("whole", access)
    assert said == said_by_whole
    assert "Good " in said
    assert len(said.splitlines()) == len(answers()) + 2
    assert [each[:2] for each in wire] == [each[:2] for each in wire_of_whole]
    assert logged == ""  # no class of what was left out was needed
    for one, other in zip(wire, wire_of_whole, strict=True):
        assert one[3] == other[3]
        assert dict(one[2]).keys() == dict(other[2]).keys()


def test_none_of_the_types_is_loaded():
    listed = run_python("""
import json, sys
from sanderling.providers.anthropic import sdk
sdk.load_sdk()
import anthropic
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print(json.dumps([name for name, file in files.items() if file and name.startswith(sdk.UNUSED)]))
assert isinstance(anthropic.AsyncAnthropic(api_key="sk-test").base_url.host, str)
""")
    assert json.loads(listed.stdout) == []
    assert listed.stderr == ""


@prove
@pytest.mark.parametrize(
    "expression",
    [
        "anthropic.types.TextBlock(type='text', text='x').text",
        "isinstance(anthropic.types.beta.BetaTextBlock(type='text', text='x').text, str) and 'x'",
        "'x' if not issubclass(str, anthropic.types.Message) else 'y'",
        "client.messages.create.__name__[:0] + 'x'",
    ],
)
def test_what_was_left_out_is_loaded_when_it_is_used(expression):
    used = run_python(f"""
import logging
logging.basicConfig(format="%(message)s")
from sanderling.providers.anthropic.sdk import load_sdk
load_sdk()
import anthropic
client = anthropic.AsyncAnthropic(api_key="sk-test")
print({expression})
""")
    assert used.stdout == "x\n"
    assert "is used; loading its types" in used.stderr


def test_stand_ins_end_while_another_thread_imports(monkeypatch):
    stand_ins = StandIns(["unused_library"])
    stand_ins.begin()
    assert importlib.import_module("unused_library.part").Anything
    # Collecting garbage gives other threads their turn; here it is one that imports.
    turns = []

    def import_one_more(*_):
        turns.append(f"one_more_{len(turns)}")
        monkeypatch.setitem(sys.modules, turns[-1], ModuleType("more"))

    gc.callbacks.append(import_one_more)
    try:
        gc.collect()
        threshold = gc.get_threshold()
        gc.set_threshold(1)
        stand_ins.end()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(import_one_more)
    assert turns
    assert not any(name.startswith("unused_library") for name in sys.modules)


def later_version(directory: Path, more: str) -> str:
    """A copy of the SDK whose package says more than the one here."""
    package = directory / "anthropic"
    package.mkdir()
    found = find_spec("anthropic")
    assert found
    assert found.origin
    installed = Path(found.origin).parent
    for entry in installed.iterdir():
        if entry.name not in ("__init__.py", "__pycache__"):
            (package / entry.name).symlink_to(entry)
    (package / "__init__.py").write_text((installed / "__init__.py").read_text() + more)
    return str(directory)


@prove
@pytest.mark.parametrize(
    "more",
    ["\nclass Later(types.Message):\n    pass\n", "\nassert type(types).__name__ == 'module'\n"],
    ids=["a subclass of a type", "whatever looks closely"],
)
def test_a_version_that_needs_its_types_is_loaded_whole(tmp_path, more):
    loaded = run_python(
        """
import logging
logging.basicConfig(format="%(message)s")
from sanderling.providers.anthropic.sdk import load_sdk
load_sdk()
import anthropic
print(anthropic.__file__, type(anthropic.types.TextBlock).__name__)
""",
        path=later_version(tmp_path, more),
    )
    assert loaded.stdout.startswith(str(tmp_path))
    assert "ModelMetaclass" in loaded.stdout
    assert "the SDK cannot be loaded in part; loading all of it" in loaded.stderr
