"""
Notes to the model beside the person's words: facts, instructions, mode, todo list.

All of it changes, and none of it may stand in the prefix of the requests, whose cache would be lost: each piece of news is appended
once, to the message that goes out next.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sanderling.permissions.gate import Gate
from sanderling.project.facts import Facts
from sanderling.project.instructions import Instructions
from sanderling.project.trust.reading import visible_name
from sanderling.protocol.actions import RejectChanges
from sanderling.protocol.messages import Prompt, ToolUse
from sanderling.protocol.modes import Mode
from sanderling.protocol.restoring import FilesRestored
from sanderling.session.records import LoggedRestored, LoggedRewind
from sanderling.session.session import Session
from sanderling.tools.workspace import Workspace

MAX_CHANGED_FILES = 100
MAX_REJECTED_LINES = 200
PROJECT_REPLACED = (
    "[The project's directory was replaced by another one of the same name: moved away, or deleted and made again. Commands and"
    " files are the new one's from here on, and what ran in the old one was stopped. Do not rely on what you have read or changed"
    " before.]"
)

_MODE_NEWS: dict[Mode, str] = {
    "ask": "[The person has switched to ask mode: changes, commands and fetches ask them first.]",
    "auto": "[The person has switched to auto mode: what the sandbox confines runs without asking them.]",
    "plan": "[The person has switched to plan mode: the kernel keeps the project read-only, for commands, too. Look and plan;"
    " do not try to change anything. Say what you would do.]",
}

_DID = {
    "undo": "The person has undone what you had changed in files in an earlier turn.",
    "redo": "The person has done again what was undone before.",
    "rewind": "The person has taken files back to what they were at an earlier prompt.",
    "finish": "An undoing of the person's that was interrupted has been finished.",
}
_HOW = {
    "restored": "Brought back",
    "merged": "Merged with what they have changed",
    "left": "Left as they are",
}
REWOUND = (
    "[The person has taken the conversation back to this point: what was said after it is not shown to you any more. Files may have"
    " been changed meanwhile, by you, too: read them before you rely on them.]"
)


def _rejection(path: str, changes: RejectChanges) -> str:
    """Tell of the changes of a file that the person took back, exactly: as a diff."""
    reason = f" They say: {changes.reason.strip()}" if changes.reason.strip() else ""
    lines: list[str] = []
    left_out = 0
    for hunk in changes.hunks:
        diff = [
            f"@@ line {hunk.first_line} @@",
            *(f"-{line}" for line in hunk.rejected),
            *(f"+{line}" for line in hunk.restored),
        ]
        if len(lines) + len(diff) > MAX_REJECTED_LINES:
            left_out += 1
        else:
            lines += diff
    more = f"\n({left_out} more, too large to be shown: read the file.)" if left_out else ""
    return (
        f"[The person has looked at your changes of {path} and rejected these: the file holds again what stood there"
        f" before. Do not make them again unless they ask for it.{reason}\n"
        + "\n".join(lines)
        + f"{more}]"
    )


class _Told(msgspec.Struct):
    """All that the model has been told, as it is kept with the session."""

    facts: dict[str, Any] = {}
    instructions: dict[str, Any] = {}
    changed_files: list[str] = []
    mode: Mode | None = "ask"
    rejected: list[str] = []  # which is to be told yet


class Notes:
    """The notes of one session."""

    def __init__(
        self,
        session: Session,
        workspace: Workspace,
        gate: Gate,
        instructions: Instructions,
    ) -> None:
        self._has_todo = True
        self._session = session
        self._workspace = workspace
        self._gate = gate
        self._instructions = instructions
        self._facts = Facts(session.project)
        self._mode: Mode | None = "ask"
        self._changed_files: set[str] = set()  # before the last summary
        self._rejected: list[str] = []

    def read(self, instructions: Instructions, *, has_todo: bool) -> None:
        """Take other instructions from now on, and leave out the todo list unless this session has it."""
        instructions.restore(self._instructions.state())
        self._instructions, self._has_todo = instructions, has_todo

    def state(self) -> dict[str, Any]:
        """All that the model has been told, as plain data for `restore`. Keep it once the message with the last notes is in the log."""
        facts, instructions = self._facts.state(), self._instructions.state()
        files = sorted(self._changed_files)
        told = _Told(facts, instructions, files, self._mode, list(self._rejected))
        return msgspec.to_builtins(told)

    def restore(self, state: object) -> None:
        told = msgspec.convert(state, _Told)
        self._facts.restore(told.facts)
        self._instructions.restore(told.instructions)
        self._mode = told.mode
        self._changed_files = set(told.changed_files)
        self._rejected = told.rejected

    def add_rejected(self, changes: RejectChanges) -> None:
        """Have the model told that the person took back changes of its own."""
        self._rejected.append(_rejection(self._workspace.shown(changes.path), changes))

    def with_prompt(self, prompt: Prompt) -> list[str]:
        """The notes that go along with a prompt."""
        paths = [self._workspace.path(each.path) for each in prompt.selections if not each.is_piped]
        taken_back = map(_taken_back, self._session.taken_back)
        return [*taken_back, *self._news(paths, is_prompt=True)]

    def of_person(self) -> list[str]:
        """The notes on what the person has taken back of the agent's work: all that an agent is told that is not ours."""
        rejected, self._rejected = self._rejected, []
        return [*map(_taken_back, self._session.taken_back), *rejected]

    def with_results(self, paths: Iterable[str]) -> list[str]:
        """The notes that go along with the results of tools that were about these paths."""
        return self._news(list(paths), is_prompt=False)

    def after_summary(self) -> list[str]:
        """All that the model has to know again when a summary stands for what was said."""
        self.forget()
        self._mode = "ask"  # the mode that no note tells of, as in a new session
        notes = [*self._news([], is_prompt=True), self._changes(), self._jobs()]
        return [note for note in notes if note]

    def forget(self) -> None:
        """Tell all again with the next message: the model is not shown any more what it was told."""
        self._facts.forget()
        self._instructions.forget()
        self._mode = None

    def _news(self, paths: Sequence[str], *, is_prompt: bool) -> list[str]:
        notes = [
            PROJECT_REPLACED if self._workspace.sandbox.place.take_replaced() else "",
            self._news_of_surroundings(paths),
            self._news_of_mode(),
            *self._rejected,
            self._workspace.todo.reminder(is_prompt=is_prompt) if self._has_todo else "",
        ]
        self._rejected = []
        return [note for note in notes if note]

    def _news_of_mode(self) -> str:
        is_known, self._mode = self._gate.mode == self._mode, self._gate.mode
        return "" if is_known else _MODE_NEWS[self._gate.mode]

    def _news_of_surroundings(self, paths: Sequence[str]) -> str:
        ground = self._workspace.sandbox.facts
        facts = self._facts.news(sandbox=ground.level, network=ground.network)
        instructions = self._instructions.news(paths)
        return "\n\n".join(filter(None, (facts, instructions)))

    def _changes(self) -> str:
        uses = (block for each in self._session.history for block in each.content)
        self._changed_files |= {
            str(use.input["path"])
            for use in uses
            if isinstance(use, ToolUse) and use.name in ("edit", "write") and "path" in use.input
        }
        listed = sorted(self._changed_files)[:MAX_CHANGED_FILES]
        return (
            f"Files that you have changed in this session: {', '.join(listed)}." if listed else ""
        )

    def _jobs(self) -> str:
        running = [job for job in self._workspace.jobs.all() if job.is_running]
        listed = ", ".join(f"{job.id} ({job.command})" for job in running)
        return f"Jobs of yours that still run: {listed}." if listed else ""


def _taken_back(record: LoggedRestored | LoggedRewind) -> str:
    """The note on what the person has taken back since the last turn."""
    match record:
        case LoggedRewind():
            return REWOUND
        case LoggedRestored(restored=restored):
            listed = {how: _named(restored, how) for how in ("restored", "merged", "left")}
            parts = [f"{_HOW[how]}: {names}." for how, names in listed.items() if names]
            return f"[{_DID[restored.kind]} {' '.join(parts)} Read a file again before you rely on it.]"


def _named(restored: FilesRestored, how: str) -> str:
    files = [visible_name(each.path) for each in restored.files if each.how == how]
    more = f" and {len(files) - MAX_CHANGED_FILES} more" if len(files) > MAX_CHANGED_FILES else ""
    return ", ".join(files[:MAX_CHANGED_FILES]) + more
