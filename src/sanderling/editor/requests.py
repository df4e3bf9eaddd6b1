"""Answers to Neovim's requests about sessions and keys that concern no open session."""

from collections.abc import Collection
from typing import Any

import msgspec
from anyio import to_thread

from sanderling.config import Settings
from sanderling.errors import SanderlingError, SessionError
from sanderling.protocol.requests import (
    BlameFile,
    ChangePlugin,
    CountCorrections,
    DeleteSession,
    ExportSession,
    ForkSession,
    ListAgents,
    ListPlugins,
    ListSessions,
    Login,
    Logout,
    MeasureSession,
    PreviewSession,
    RenameSession,
    Request,
    TraceStaged,
    WorktreeRequest,
)
from sanderling.providers.choice import credentials
from sanderling.providers.credentials import Credentials
from sanderling.session.store import (
    delete,
    export_markdown,
    fork,
    last_exchange,
    list_sessions,
    rename,
    write_export,
)


async def answer(request: Request, settings: Settings, open_ids: Collection[str]) -> dict[str, Any]:
    """Execute the request in a thread. If it fails, the answer has `error`, a sentence."""
    try:
        if isinstance(request, WorktreeRequest):
            from sanderling.editor import worktrees  # only with worktrees

            return await to_thread.run_sync(worktrees.answer, request, settings)
        if isinstance(request, BlameFile):
            return await to_thread.run_sync(_blame, request, settings)
        if isinstance(request, TraceStaged):
            return await to_thread.run_sync(_trace, request, settings)
        if isinstance(request, CountCorrections):
            return await to_thread.run_sync(_count, request, settings)
        return await to_thread.run_sync(_answer, request, settings, open_ids)
    except SanderlingError as error:
        return {"error": str(error)}


def _answer(  # noqa: PLR0911 - one table
    request: Request, settings: Settings, open_ids: Collection[str]
) -> dict[str, Any]:
    directory = settings.session_dir
    match request:
        case ListAgents():
            from sanderling.agents.declared import agent_names

            return {"agents": list(agent_names(settings.agents))}
        case ListPlugins() | ChangePlugin():
            return _list_or_change_plugins(request, settings)
        case ListSessions(project, text, has_printed):
            found = list_sessions(directory, project, text, is_in_editor=not has_printed)
            return {"sessions": msgspec.to_builtins(found)}
        case RenameSession(session_id, title):
            rename(directory, session_id, title)
        case DeleteSession(session_id):
            if session_id in open_ids:
                raise SessionError("the session is open: close it first, with :Agent close")
            delete(directory, session_id)
        case PreviewSession(session_id):
            return {"text": last_exchange(directory, session_id)}
        case MeasureSession(session_id):
            from sanderling.session.store.export import last_words  # only needed for mentions

            return {"size_bytes": len(last_words(directory, session_id).text.encode())}
        case ForkSession(session_id, new_id, prompt_id, is_before):
            prompt = fork(directory, session_id, new_id, prompt_id, is_before=is_before)
            return {"prompt": prompt.text} if prompt else {}
        case ExportSession(session_id, path):
            write_export(path, export_markdown(directory, session_id))
            return {"path": path}
        case Login() | Logout():
            return _log_in_or_out(request, credentials(settings, request.provider))
        case _:
            pass  # answered by the open session
    return {}


def _blame(request: BlameFile, settings: Settings) -> dict[str, Any]:
    from sanderling.blame.origins import origins_in  # only for :AgentBlame

    found = origins_in(settings, request.project).blame(request.path, request.text)
    return msgspec.to_builtins(found)


def _count(request: CountCorrections, settings: Settings) -> dict[str, Any]:
    from sanderling.session.corrections import left_in  # only when a session has ended

    return {"count": len(left_in(settings.session_dir, request.session_id))}


def _trace(request: TraceStaged, settings: Settings) -> dict[str, Any]:
    from sanderling.blame.origins import origins_in  # only for :AgentCommit with commit_trace
    from sanderling.blame.trace import as_json, repository_of, trace_of_index

    git = repository_of(request.project)
    record = trace_of_index(git, origins_in(settings, git.directory), request.index)
    return {"trace": as_json(record) if record else ""}


def _list_or_change_plugins(
    request: ListPlugins | ChangePlugin, settings: Settings
) -> dict[str, Any]:
    from sanderling.project.plugins import changing, disabling, installed

    match request:
        case ListPlugins(project):
            found = installed.shown_plugins(settings, project)
            return {"plugins": msgspec.to_builtins(found)}
        case ChangePlugin(name, "remove"):
            changing.remove_plugin(name, settings.state_dir)
        case ChangePlugin(name, what):
            disabling.disable_plugin(name, is_disabled=what == "disable")
    return {}


def _log_in_or_out(request: Login | Logout, kept: Credentials) -> dict[str, Any]:
    match request:
        case Login(key) if key:
            kept.store(key)
        case Login():
            pass
        case Logout():
            return {"was_kept": kept.remove()}
    return {"backend": kept.backend()}
