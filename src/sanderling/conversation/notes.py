"""
Notes to the model in addition to the user's text: facts, instructions, mode, todo list.

All of these change, and none may be in the prefix of requests, because the API's cache would be lost. So each change is appended once, to
the next message.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sanderling.conversation.role import SessionRole
from sanderling.permissions.gate import Gate
from sanderling.project.facts import SessionFacts
from sanderling.project.project import Project
from sanderling.project.trust.reading import visible_name
from sanderling.protocol.actions import RejectChanges
from sanderling.protocol.messages import Prompt, ToolUse
from sanderling.protocol.modes import Mode
from sanderling.session.records import LoggedRestored, LoggedRewind
from sanderling.session.session import Session
from sanderling.tools.client_tools import ClientTools
from sanderling.tools.commands.git_status import count_changed
from sanderling.tools.commands.jobs import ending_line
from sanderling.tools.workspace import Workspace

MAX_CHANGED_FILES = 100
MAX_REJECTED_LINES = 200
PROJECT_REPLACED = (
    "[The project directory was replaced by another of the same name (moved away, or deleted and recreated). Commands and files"
    " use the new one from here on; processes in the old one were stopped. Do not rely on what you read or changed"
    " before.]"
)

_MODE_NEWS: dict[Mode, str] = {
    "ask": "[Ask mode: changes, commands and fetches ask the user first.]",
    "auto": "[Auto mode: what the sandbox confines runs without asking.]",
    "plan": "[Plan mode: the kernel keeps the project read-only, for commands, too. Look and plan;"
    " do not try to change anything. Say what you would do.]",
}
_PLAN_ENDS = "Write out your plan when it is complete, then call `ask_user`, if you have it, with `plan`: that lets the user accept it.]"

_DID = {
    "undo": "The user undid your file changes of an earlier turn.",
    "redo": "The user redid what was undone before.",
    "rewind": "The user took files back to their state at an earlier prompt.",
    "finish": "An interrupted undo of the user's was finished.",
    "worktree": "The user brought the work of a worktree into these files.",
}
_HOW = {
    "restored": "Restored",
    "removed": "Removed",
    "merged": "Merged with the user's changes",
    "left": "Left as they are",
}
_RESTORED = {"redo": "Changed again", "worktree": "Changed"}
CUT_OFF = "[Interrupted by the user.]"
REWOUND = (
    "[The user took the conversation back to this point: you no longer see what came after it. Files may have"
    " changed meanwhile, by you, too: read them before you rely on them.]"
)


def _rejection(path: str, changes: RejectChanges) -> str:
    """Describe the changes of a file that the user rejected, as a diff."""
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
    more = f"\n({left_out} more, too large to show: read the file.)" if left_out else ""
    return (
        f"[The user reviewed your changes of {path} and rejected these: the file has its previous"
        f" lines again. Do not make them again unless asked.{reason}\n"
        + "\n".join(lines)
        + f"{more}]"
    )


class _SentNotes(msgspec.Struct):
    """The notes that the model has received, as recorded in the session's log."""

    facts: dict[str, Any] = {}
    instructions: dict[str, Any] = {}
    skills: dict[str, Any] = {}
    changed_files: list[str] = []
    mode: Mode | None = "ask"
    role: str | None = ""  # its mark; None if the model may have been sent another
    rejected: list[str] = []  # not yet sent


class Notes:
    """The notes of one session. If its tools are the `client`'s, so are the notes: facts about this machine would be wrong."""

    def __init__(
        self,
        session: Session,
        workspace: Workspace,
        gate: Gate,
        project: Project,
        *,
        role: SessionRole,
        client: ClientTools | None = None,
    ) -> None:
        self._has_todo = True
        self._session = session
        self._workspace = workspace
        self._gate = gate
        self._project = project
        self._session_role = role
        self._client = client
        self._facts = SessionFacts(session.work_dir)
        self._mode: Mode | None = "ask"
        self._role: str | None = ""
        self._changed_files: set[str] = set()  # before the last summary
        self._rejected: list[str] = []
        self._once: list[str] = []

    def leave_out_todo(self) -> None:
        self._has_todo = False

    def state(self) -> dict[str, Any]:
        """Return what the model has been sent, as plain data for `restore`. Call this after the message with the last notes is in the log."""
        facts, instructions = self._facts.state(), self._project.instructions.state()
        files = sorted(self._changed_files)
        skills = self._project.skills.state()
        sent = _SentNotes(
            facts, instructions, skills, files, self._mode, self._role, list(self._rejected)
        )
        return msgspec.to_builtins(sent)

    def restore(self, state: object) -> None:
        sent = msgspec.convert(state, _SentNotes)
        self._facts.restore(sent.facts)
        self._project.instructions.restore(sent.instructions)
        self._project.skills.restore(sent.skills)
        self._mode = sent.mode
        self._role = sent.role
        self._changed_files = set(sent.changed_files)
        self._rejected = sent.rejected

    def add(self, note: str) -> None:
        """Send this once, with the next message."""
        self._once.append(note)

    def add_rejected(self, changes: RejectChanges) -> None:
        self._rejected.append(_rejection(self._workspace.shown(changes.path), changes))

    @property
    def rejected(self) -> Sequence[str]:
        """The notes on rejected changes that are not sent yet."""
        return self._rejected

    def with_prompt(self, prompt: Prompt) -> list[str]:
        paths = [self._workspace.path(each.path) for each in prompt.selections if not each.is_piped]
        taken_back = map(_taken_back, self._session.taken_back)
        return [*self._cut_off(), *taken_back, *self._news(paths, is_prompt=True)]

    def _cut_off(self) -> list[str]:
        """Mark an answer whose text ends where the user stopped it; of a tool call its result says so."""
        ends, history = [*self._session.prompt_history.ends.values()], self._session.history
        is_cut_off = ends[-1:] == ["cancelled"] and history and history[-1].role == "assistant"
        return [CUT_OFF] if is_cut_off else []

    def of_person(self) -> list[str]:
        """Return the notes on what the user undid or rejected. External agents get only these."""
        rejected, self._rejected = self._rejected, []
        return [*map(_taken_back, self._session.taken_back), *rejected]

    def with_results(self, paths: Iterable[str]) -> list[str]:
        paths = list(paths)
        if paths and not self._client:
            self._project.skills.note_read(paths)
        return self._news(paths, is_prompt=False)

    def after_summary(self) -> list[str]:
        """Return everything that the model needs again after a summary replaced the conversation."""
        skills = self._project.skills.read_before()
        self._forget(keeps_read_skills=True)
        self._mode = "ask"  # the mode that needs no note, as in a new session
        self._role = ""
        notes = [*self._news([], is_prompt=True), skills, self._changes(), self._jobs()]
        return [note for note in notes if note]

    async def learn_git(self) -> None:
        """Count the changed files in the sandbox, once in a session, for one of the next notes. Without a sandbox git does not run."""
        environment = self._workspace.sandbox.ahead
        if self._client or not environment or not self._facts.needs_git:
            return
        self._facts.learn_changed(await count_changed(environment))

    def forget(self) -> None:
        """Send everything again with the next message, because the model no longer sees it."""
        self._forget(keeps_read_skills=False)

    def _forget(self, *, keeps_read_skills: bool) -> None:
        self._facts.forget()
        self._project.instructions.forget()
        self._project.skills.forget(keeps_read=keeps_read_skills)
        self._mode = self._role = None
        if self._client:
            self._client.tell_again()

    def _news(self, paths: Sequence[str], *, is_prompt: bool) -> list[str]:
        reminder = self._workspace.todo.reminder(is_prompt=is_prompt) if self._has_todo else ""
        if self._client:
            notes = (*self._client.take_notes(), self._news_of_role(), reminder)
            return [note for note in notes if note]
        notes = [
            PROJECT_REPLACED if self._workspace.sandbox.location.take_replaced() else "",
            self._news_of_surroundings(paths),
            self._project.skills.news() if is_prompt else "",
            self._news_of_role(),
            self._news_of_mode(),
            *self._rejected,
            *self._once,
            *map(ending_line, self._workspace.jobs.take_ended()),
            reminder,
        ]
        self._rejected, self._once = [], []
        return [note for note in notes if note]

    def _news_of_mode(self) -> str:
        is_known, self._mode = self._gate.mode == self._mode, self._gate.mode
        news = "" if is_known else _MODE_NEWS[self._gate.mode]
        if news and self._mode == "plan" and self._workspace.user:
            news = f"{news.removesuffix(']')} {_PLAN_ENDS}"
        return news

    def _news_of_role(self) -> str:
        before, self._role = self._role, self._session_role.mark
        is_known = self._role == before or not (self._role or self._session_role.was_used)
        return "" if is_known else self._session_role.text()

    def _news_of_surroundings(self, paths: Sequence[str]) -> str:
        environment = self._workspace.sandbox.facts
        facts = self._facts.news(sandbox=environment.level, network=environment.network)
        instructions = self._project.instructions.news(paths)
        return "\n\n".join(filter(None, (facts, instructions)))

    def _changes(self) -> str:
        uses = (block for each in self._session.history for block in each.content)
        self._changed_files |= {
            str(use.input["path"])
            for use in uses
            if isinstance(use, ToolUse) and use.name in ("edit", "write") and "path" in use.input
        }
        listed = sorted(self._changed_files)[:MAX_CHANGED_FILES]
        return f"Files you changed in this session: {', '.join(listed)}." if listed else ""

    def _jobs(self) -> str:
        running = [job for job in self._workspace.jobs.all() if job.is_running]
        listed = ", ".join(f"{job.id} ({job.command})" for job in running)
        return f"Your running jobs: {listed}." if listed else ""


def _taken_back(record: LoggedRestored | LoggedRewind) -> str:
    """Return the note on an undo, redo or rewind since the last turn."""
    match record:
        case LoggedRewind():
            return REWOUND
        case LoggedRestored(restored=restored, removed=removed):
            files = [(each.path, each.how) for each in restored.files if each.path not in removed]
            files += [(path, "removed") for path in removed]
            listed = {how: _named(path for path, its in files if its == how) for how in _HOW}
            how_restored = _RESTORED.get(restored.kind, _HOW["restored"])
            words = _HOW | {"restored": how_restored}
            parts = [f"{words[how]}: {names}." for how, names in listed.items() if names]
            return f"[{_DID[restored.kind]} {' '.join(parts)} Read a file again before you rely on it.]"


def _named(paths: Iterable[str]) -> str:
    files = [visible_name(path) for path in paths]
    more = f" and {len(files) - MAX_CHANGED_FILES} more" if len(files) > MAX_CHANGED_FILES else ""
    return ", ".join(files[:MAX_CHANGED_FILES]) + more
