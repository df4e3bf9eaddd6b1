"""Slash commands of this face: each is one of the person's actions, and ends when that has."""

from collections.abc import Awaitable, Callable, Iterable

import anyio

from sanderling.acp_agent.questions import Questions
from sanderling.protocol.actions import Compact, RedoTurn, TrustFiles, UndoTurn
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import ApprovalRequested
from sanderling.protocol.requests import Report, ShowTrust, ShowUsage, TrustFile, TrustPage
from sanderling.text import visible

SHOWN_CHARS = 300_000  # more than any one file that can be trusted
MORE = "There is more than can be shown at once: ask again for the rest."
PATIENCE_S = 30.0  # with files that are brought back


ALONE = frozenset(("/usage", "/trust", "/undo", "/redo"))


def is_ours(text: str) -> bool:
    """Say whether `text` is a command of this face."""
    words = text.split()
    return bool(words) and (words[0] == "/compact" or (words[0] in ALONE and len(words) == 1))


class OwnCommands:
    """The commands of a session. `say` tells the person what comes of one, `next_news` returns when something else has."""

    def __init__(
        self,
        agent: Agent,
        session_id: str,
        say: Callable[[str], None],
        questions: Questions,
        next_news: Callable[[], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._session_id = session_id
        self._say = say
        self._questions = questions
        self._next_news = next_news

    async def run(self, text: str, ended: anyio.Event) -> None:
        """Run the command that `text` is. `ended` is set when a turn has ended, or is given up."""
        name, _, rest = text.strip().partition(" ")
        match name:
            case "/compact":
                self._agent.act(Compact(rest.strip()))
                await ended.wait()
            case "/usage":
                await self._show_usage()
            case "/trust":
                await self._trust()
            case "/undo":
                self._agent.act(UndoTurn())
                await self._wait_for_news()
            case _:
                self._agent.act(RedoTurn())
                await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        with anyio.move_on_after(PATIENCE_S):
            await self._next_news()

    async def _show_usage(self) -> None:
        report = await self._agent.answer(ShowUsage(self._session_id))
        assert isinstance(report, Report)
        self._say(report.text)

    async def _trust(self) -> None:
        page = await self._agent.answer(ShowTrust(self._session_id))
        assert isinstance(page, TrustPage)
        new = [file for file in page.files if file.state != "trusted"]
        shown = _shown_whole(new)
        if page.refusal or not new:
            self._say(page.refusal or "There is nothing in this project that waits to be trusted.")
            return
        question = ApprovalRequested(
            f"trust:{self._session_id}",
            "trust",
            "this project's files",
            "\n\n".join(shown.values()),
            "What stands here would be told to the model, or change what Sanderling does."
            + (f" {MORE}" if len(shown) < len(new) else ""),
            page.project,
            ("once",),
        )
        answer = await self._questions.ask(question)
        if getattr(answer, "answer", "") == "once":
            trusted = [f for f in page.files if f.state == "trusted" or f.path in shown]
            self._agent.act(TrustFiles({file.path: file.sha256 for file in trusted}))
            self._say("Trusted, as it is now.")
        else:
            self._say("Not trusted: nothing has changed.")


def _shown_whole(files: Iterable[TrustFile]) -> dict[str, str]:
    """The files as they are shown, by path, as far as there is room: nobody trusts what they have not seen."""
    shown, room = dict[str, str](), SHOWN_CHARS
    for file in files:
        text = _shown(file)
        room -= len(text)
        if room >= 0:
            shown[file.path] = text
    return shown


def _shown(file: TrustFile) -> str:
    allowed = "".join(f"\n(lets it: {each})" for each in file.allowed)
    return f"--- {file.path} ({file.state}){allowed}\n{visible(file.text)}"
