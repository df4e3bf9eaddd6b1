"""The slash commands that this frontend handles itself, by sending actions to the agent."""

from collections.abc import Awaitable, Callable, Iterable

import anyio

from sanderling.acp.agent.questions import ClientQuestions
from sanderling.protocol.actions import Compact, RedoTurn, TrustFiles, UndoTurn
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import ApprovalRequested
from sanderling.protocol.requests import Report, ShowTrust, ShowUsage, TrustFile, TrustPage
from sanderling.text import visible

SHOWN_CHARS = 300_000  # more than the largest file that can be trusted
MORE = "There are more files: run /trust again for the rest."
PATIENCE_S = 30.0  # for files to be restored


ALONE = frozenset(("/usage", "/trust", "/undo", "/redo"))


def is_ours(text: str) -> bool:
    words = text.split()
    return bool(words) and (words[0] == "/compact" or (words[0] in ALONE and len(words) == 1))


class OwnCommands:
    """Runs commands in a session. `say` shows the user a result; `next_news` waits for the agent's next event."""

    def __init__(
        self,
        agent: Agent,
        session_id: str,
        say: Callable[[str], None],
        questions: ClientQuestions,
        next_news: Callable[[], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._session_id = session_id
        self._say = say
        self._questions = questions
        self._next_news = next_news

    async def run(self, text: str, ended: anyio.Event) -> None:
        """Run the command in `text`. `ended` is set when a turn ends or is given up."""
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
            self._say(page.refusal or "Nothing in this project needs to be trusted.")
            return
        question = ApprovalRequested(
            f"trust:{self._session_id}",
            "trust",
            "this project's files",
            "\n\n".join(shown.values()),
            "These files instruct the model, or change what Sanderling does."
            + (f" {MORE}" if len(shown) < len(new) else ""),
            page.project,
            ("once",),
        )
        answer = await self._questions.ask(question)
        if getattr(answer, "answer", "") == "once":
            trusted = [f for f in page.files if f.state == "trusted" or f.path in shown]
            self._agent.act(TrustFiles({file.path: file.sha256 for file in trusted}))
            self._say("Trusted in their current state.")
        else:
            self._say("Not trusted; nothing changed.")


def _shown_whole(files: Iterable[TrustFile]) -> dict[str, str]:
    """Return the files that fit on one page, by path. The user must see a file whole to trust it."""
    shown, room = dict[str, str](), SHOWN_CHARS
    for file in files:
        text = _shown(file)
        room -= len(text)
        if room >= 0:
            shown[file.path] = text
    return shown


def _shown(file: TrustFile) -> str:
    allowed = "".join(f"\n(allows: {each})" for each in file.allowed)
    return f"--- {file.path} ({file.state}){allowed}\n{visible(file.text)}"
