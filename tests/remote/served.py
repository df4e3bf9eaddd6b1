"""A server on this machine, and a proxy before it that cuts connections where it is told to."""

import asyncio
import os
import signal
import subprocess
from contextlib import asynccontextmanager, suppress

NEVER = 1 << 30


class Cutter:
    """Passes on what comes to `port`, and cuts each connection after as many bytes, in a direction, as the next of `cuts` says."""

    def __init__(self, target):
        self.target = target
        self.cuts = []
        self.made = 0
        self.is_down = False
        self.is_mute = False  # then nothing comes back any more
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self):
        """Cut all connections there are."""
        for task in tuple(self._tasks):
            task.cancel()

    async def _take(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:  # it is cut; streams would tell of it
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader, writer):
        if self.is_down:
            return
        self.made += 1
        incoming, outgoing, after_s = self.limits()
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        ways = (
            carry(reader, there_writer, incoming),
            carry(there_reader, _Out(self, writer), outgoing),
            asyncio.sleep(after_s),
        )
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            there_writer.transport.abort()

    def limits(self):
        """How many bytes pass in each direction, and for how many seconds."""
        way, count = self.cuts.pop(0) if self.cuts else ("", 0)
        return count if way == "in" else NEVER, count if way == "out" else NEVER, NEVER


class RandomCutter(Cutter):
    """One that ends each connection after some bytes in one of the directions, or after a time, as `random` says."""

    def __init__(self, target, random):
        super().__init__(target)
        self.random = random
        self.is_cutting = True

    def limits(self):
        if not self.is_cutting:
            return NEVER, NEVER, NEVER
        match self.random.randrange(4):
            case 0:
                return self.random.randrange(1, 2_500), NEVER, NEVER
            case 1:
                return NEVER, self.random.randrange(1, 12_000), NEVER
            case 2:  # past the answers to initialize and session/resume
                return NEVER, self.random.randrange(4_000, 40_000), NEVER
            case _:
                return NEVER, NEVER, self.random.uniform(0, 0.4)


class _Out:
    """The way back through `cutter`."""

    def __init__(self, cutter, writer):
        self._cutter, self._writer = cutter, writer

    def write(self, data):
        if not self._cutter.is_mute:
            self._writer.write(data)

    async def drain(self):
        await self._writer.drain()


async def carry(reader, writer, left):
    with suppress(OSError):
        while left > 0 and (data := await reader.read(min(left, 65_536))):
            writer.write(data)
            await writer.drain()
            left -= len(data)


def cuts_at_random(chance):
    return [
        chance.choice((("in", chance.randrange(1, 1_600)), ("out", chance.randrange(1, 12_000))))
        for _ in range(20)
    ]


class Server:
    """`sanderling serve`, with the home and the model of `elsewhere`."""

    def __init__(self, elsewhere, *arguments):
        self._elsewhere = elsewhere
        self._arguments = arguments
        self._process = None
        self.port = 0

    def start(self):
        argv = [
            str(self._elsewhere.bin / "sanderling"),
            "serve",
            "--listen",
            f"127.0.0.1:{self.port}",
            *self._arguments,
        ]
        self._process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        line = self._process.stdout.readline()
        if not line.startswith("unix:"):
            self.port = int(line.rpartition(":")[2].partition("/")[0])
        return self

    @asynccontextmanager
    async def talk_over_a_cutter(self):
        """A session there, as soon as it runs, over a connection that can be cut."""
        self.start()
        async with (
            Cutter(self.port) as cutter,
            self._elsewhere.talk(address=self.address(cutter.port)) as talk,
        ):
            yield cutter, talk

    def stop(self):
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process.stdout.close()
            self._process = None

    def kill(self):
        os.killpg(self._process.pid, signal.SIGKILL)
        self.stop()

    def log(self):
        """All that the logs there say."""
        return "".join(path.read_text() for path in self._elsewhere.there.rglob("sessions/*.jsonl"))

    @property
    def token_file(self):
        [found] = self._elsewhere.there.rglob("serve-token")
        return found

    def address(self, port=0):
        tools = "&tools=client" if "client" in self._arguments else ""
        return f"ws://127.0.0.1:{port or self.port}?cwd={self._elsewhere.project}&token-file={self.token_file}{tools}"
