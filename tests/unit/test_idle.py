"""The watch over silence: what is stopped for a while is not taken for a peer that says nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests import loopback
from tests.conftest import ROOT, prove, wait_until
from tests.loopback import STALL, LoopbackServer, Reply, Until

from sanderling.errors import ProviderError
from sanderling.providers.idle import IdleWatch

ASK = """
import sys, anyio
from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest, ReplyDone, TextPiece
from sanderling.providers.anthropic.provider import AnthropicProvider

async def main(state_dir, url):
    settings = Settings(state_dir, base_url=url, idle_timeout_s=1.5)
    request = ModelRequest("", [Message("user", (TextBlock("Good morning."),))])
    try:
        async for item in AnthropicProvider(settings).stream(request):
            if isinstance(item, (TextPiece, ReplyDone)):
                print(type(item).__name__, flush=True)
    except ProviderError as error:
        print(error.kind, flush=True)

anyio.run(main, *sys.argv[1:])
"""


class Child:
    """A process that asks the server, and that can be stopped."""

    def __init__(self, server: LoopbackServer, state_dir: Path) -> None:
        env = os.environ | {"ANTHROPIC_API_KEY": "sk-test", "NO_PROXY": "*"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASK, str(state_dir), server.url],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def ask(server: LoopbackServer, tmp_path: Path) -> Iterator[Child]:
    child = Child(server, tmp_path)
    yield child
    child.process.kill()
    with child.process:
        pass


BEGINNING = loopback.message_start() + loopback.block_start() + loopback.delta(text="Good mor")
END = loopback.delta(text="ning.") + loopback.block_stop() + loopback.done()

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="needs /proc to see that a process is stopped"
)


def pass_by(seconds: float) -> None:
    over = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > over, "the time is over")


@prove
@pytest.mark.parametrize("comes_s_after", [0, 0.2], ids=["meanwhile", "soon after"])
def test_bytes_win_that_come_while_a_process_is_stopped_or_soon_after(server, ask, comes_s_after):
    rest = threading.Event()
    server.answer(Reply(BEGINNING, Until(rest), END))
    assert ask.line() == "TextPiece"
    ask.stop()
    pass_by(3)
    if not comes_s_after:
        rest.set()
        pass_by(0.1)
    ask.go_on()
    pass_by(comes_s_after)
    rest.set()
    assert ask.line() == "TextPiece"
    assert ask.line() == "ReplyDone"


@prove
def test_silence_after_a_stop_is_a_stall_all_the_same(server, ask):
    server.answer(Reply(BEGINNING, STALL))
    assert ask.line() == "TextPiece"
    ask.stop()
    pass_by(2)
    ask.go_on()
    assert ask.line() == "stalled"


async def test_waiting_ends_when_the_time_is_over():
    with anyio.fail_after(10), pytest.raises(ProviderError) as caught, IdleWatch(0.05).wait():
        await anyio.sleep_forever()
    assert caught.value.kind == "stalled"
    assert caught.value.is_temporary


async def test_loop_that_was_held_up_has_the_time_once_more():
    watch = IdleWatch(0.1)
    with anyio.fail_after(10), watch.wait():
        time.sleep(0.5)  # noqa: ASYNC251  that is what it is about
        await anyio.sleep(0.02)


@prove
@pytest.mark.parametrize("late_s, is_over", [(0.2, True), (5.0, False)])
async def test_connection_that_slept_has_seconds_to_prove_that_it_lives(
    monkeypatch, late_s, is_over
):
    monkeypatch.setattr("sanderling.providers.idle.ASLEEP_S", late_s)
    monkeypatch.setattr("sanderling.providers.idle.AFTER_SLEEP_S", 0.1)
    monkeypatch.setattr("sanderling.providers.idle.MAX_TICK_S", 0.05)
    error = None
    with anyio.move_on_after(10 if is_over else 1):
        try:
            with IdleWatch(60).wait():
                await anyio.sleep(0.02)
                time.sleep(0.3)  # noqa: ASYNC251  that is what it is about
                await anyio.sleep_forever()
        except ProviderError as stalled:
            error = stalled
    assert (error is not None) is is_over
    if error:
        assert error.is_temporary
        assert "60 s" not in error.message


async def test_cancelling_from_outside_passes_through():
    with anyio.move_on_after(0.02) as scope, IdleWatch(10).wait():
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError), IdleWatch(10).wait():
        raise ZeroDivisionError
