"""What a start does without: what is loaded, compiled and looked at, before the first request is asked or the first session opened."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.conftest import prove
from tests.homes import Home

UNNEEDED = {
    "what judges and reads commands": r"sanderling\.permissions\.(decide|allowing|forbidding|only_reading|proposing|use|shell.*)",
    "what only reports and recordings need": r"sanderling\.(conversation\.reports|config\.show|providers\.redaction)",
    "the proxy": r"h11|sanderling\.sandbox\.network\.proxy",
    "tool servers": r"mcp|sanderling\.mcp\.\w+",
    "other agents": r"sanderling\.(agents|acp\.client)\.\w+",
    "what few sessions use": (
        r"sanderling\.(blame|worktrees)(\.\w+)?|sanderling\.conversation\.(learning|corrections|undo\.(repeating|reasons|bringing))"
        r"|sanderling\.tools\.(appending|debugger|commands\.(drawing|keys|screen|style|terminal|typed))"
        r"|sanderling\.(editor\.debugger|sandbox\.remotes|sandbox\.network\.credentials)|truststore(\.\w+)?"
    ),
    "child sessions": r"sanderling\.conversation\.children\.(attached|child|children|conversation|recovery|report)",
    "other providers": r"(anthropic|httpx2|pydantic)|sanderling\.providers\.(anthropic|chat|ollama|responses|http)\.\w+",
    "of Python": r"difflib|html|http|importlib\.(metadata|resources)|zipfile",
}
PATTERNS = """
import re, sys
from re import _compiler

compile_pattern, found = _compiler.compile, set()

def note(pattern, flags=0):
    frame = sys._getframe(1)
    while frame and "/re/" in frame.f_code.co_filename:
        frame = frame.f_back
    if frame.f_code.co_name == "<module>" and "/src/sanderling/" in frame.f_code.co_filename:
        found.add(frame.f_globals["__name__"])
    return compile_pattern(pattern, flags)

_compiler.compile = note
import sanderling.cli.print_mode.run, sanderling.acp.agent.frontend, sanderling.editor.host
print(*found)
"""
COLLECTIONS = """
import gc, os, sys
from sanderling.__main__ import main

def note(phase, _):
    if phase == "start":
        walked.append(len(gc.get_objects()))

def leave(status, leave_at_once=os._exit):
    print(*walked, file=sys.stderr, flush=True)
    leave_at_once(status)

walked = []
gc.callbacks.append(note)
os._exit = leave
main()
"""


class Start(Home):
    """Where the program is started."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        script = folder / "script.json"
        script.write_text(json.dumps({"version": 1, "reply": [{"step": [{"text": "Done."}]}]}))
        self._model = ("--model", f"script:{script}")

    def loaded(self, *arguments: str, given: str = "") -> set[str]:
        """The modules that a run of the program loads."""
        told = self._told(("-X", "importtime", "-m", "sanderling"), arguments, given)
        return set(re.findall(r"^import time: .*\| +(\S+)$", told, re.MULTILINE))

    def collections(self, *arguments: str) -> list[int]:
        """How many objects a collection of garbage might look at, each time that one begins in a run of the program."""
        return [int(number) for number in self._told(("-c", COLLECTIONS), arguments).split()]

    def _told(self, program: tuple[str, ...], arguments: Sequence[str], given: str = "") -> str:
        self.program = program
        done = self.run(*arguments, *self._model, stdin=given)
        assert done.returncode == 0, done.stderr
        return done.stderr


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(tmp_path)


def unneeded(loaded: set[str]) -> dict[str, list[str]]:
    assert "sanderling.conversation.conversation" in loaded
    found = {
        what: sorted(name for name in loaded if re.fullmatch(pattern, name))
        for what, pattern in UNNEEDED.items()
    }
    return {what: names for what, names in found.items() if names}


def test_an_answer_without_tools_loads_nothing_that_only_tools_and_others_need(start):
    loaded = start.loaded("-p", "Go.")
    assert unneeded(loaded) == {}
    assert "tomllib" not in loaded  # where there is no file of settings


def test_no_collection_in_print_mode_looks_at_what_lives_as_long_as_the_process(start):
    assert max(start.collections("-p", "Go."), default=0) < 15_000


@prove
def test_a_session_of_a_client_opens_without_what_only_tools_and_others_need(start):
    asked = (
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {}}),
        ("session/new", {"cwd": str(start.project), "mcpServers": []}),
    )
    given = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
        for number, (method, params) in enumerate(asked)
    )
    assert unneeded(start.loaded("acp", given=given)) == {}


def test_no_pattern_is_compiled_while_modules_load_but_those_that_each_start_needs():
    run = subprocess.run(
        [sys.executable, "-c", PATTERNS], check=True, capture_output=True, text=True
    )
    assert set(run.stdout.split()) <= {"sanderling.config", "sanderling.text"}


def test_the_supervisor_loads_neither_openssl_nor_what_it_can_load_while_it_waits():
    code = f"import sys; sys.path = {sys.path}; import sanderling.sandbox.inside.supervisor; print(*sys.modules)"
    isolated = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(isolated, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded & {"_hashlib", "pathlib", "urllib", "landlock", "dataclasses", "inspect"} == set()
