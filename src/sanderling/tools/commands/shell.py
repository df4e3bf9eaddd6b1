"""
The model's shell: its working directory and exported variables persist between commands.

No shell process persists. Each command is its own process, which ends with everything that it started. A wrapper around it first restores
what earlier commands left, and at the end reports what this one leaves. The report goes into a directory where commands can write, but
through a descriptor opened before the command starts, so replacing the file has no effect. Its size is limited. Its content is trusted,
because it only sets the state of the next command, which is confined like this one.

A background command leaves no state: a change of directory minutes later would be a surprise.
"""

import os
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from sanderling.errors import SandboxError, ToolError
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.environment import (
    environment,
    proxy_environment,
    resolver_environment,
)
from sanderling.sandbox.execution_environment import RunningCommand
from sanderling.sandbox.policy import NO_GRANT, PROXY_PORT, Grant, SandboxPolicy
from sanderling.text import is_seen
from sanderling.tools.commands.pipes import last_pipe, statuses_in
from sanderling.tools.commands.shell_report import (
    MAX_PATH_CHARS,
    MAX_REPORT_BYTES,
    MAX_VALUE_BYTES,
    reports_in,
    valid_cwd,
)

NO_TERMINAL_ELSEWHERE = "Outside the sandbox, commands run in the editor's own terminals, which take no input. Run the command without `pty`."
MAX_COMMAND_BYTES = 100_000  # the kernel's limit for one string is 128 KiB
MAX_STATE_BYTES = 96 * 1024
MAX_TITLE_CHARS = 80

BASH = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/run/current-system/sw/bin/bash")

# For an editor that another program starts (`GIT_EDITOR=vim git commit`, `timeout 9 vim`): it ends where it would wait for a key, unless
# keys come from a pipe, or it serves its API. The variable replaces the user's own configuration, so it loads that first.
_VIMINIT = r"""if 1
if has('nvim') | let g:sanderling_rc = [stdpath('config') . '/init.lua', stdpath('config') . '/init.vim'] | endif
if !has('nvim') | let g:sanderling_rc = [$HOME . '/.vimrc', $HOME . '/.vim/vimrc', $VIMRUNTIME . '/defaults.vim'] | endif
let g:sanderling_rc = get(filter(g:sanderling_rc, 'filereadable(v:val)'), 0, '')
if g:sanderling_rc !~# '^$\|defaults.vim$' | let $MYVIMRC = g:sanderling_rc | endif
if g:sanderling_rc !=# '' | exe 'source' fnameescape(g:sanderling_rc) | endif
unlet g:sanderling_rc
let g:sanderling_serves = has('nvim') && match(v:argv, '^--\(headless\|embed\)$\|^-[lE]') >= 0
if resolve('/proc/self/fd/0') ==# '/dev/null' && exists('##SafeState') && !g:sanderling_serves | au SafeState * cquit | endif
unlet g:sanderling_serves
endif""".replace("\n", " | ")

WITHOUT_PROMPTS = {
    "VIMINIT": _VIMINIT,
    "TERM": "dumb",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",  # keeps a prepared text; git rejects an empty one
    "GIT_SEQUENCE_EDITOR": "false",  # otherwise a rebase without edits would seem to succeed
    "EDITOR": "false",
    "VISUAL": "false",
    "PIP_NO_INPUT": "1",
    "GH_PROMPT_DISABLED": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}

ON_TERMINAL = {
    "TERM": "xterm-256color",
    # A history would keep what the user types in a file, which the model can read. Python has such a variable from 3.13 on.
    "HISTFILE": "",
    "LESSHISTFILE": "-",
    "NODE_REPL_HISTORY": "",
    **dict.fromkeys(("PYTHON_HISTORY", "SQLITE_HISTORY", "PSQL_HISTORY"), os.devnull),
    "MYSQL_HISTFILE": os.devnull,
}

_NO_POLICY = SandboxPolicy(project="", home="", state_dir="")
NOT_KEPT = frozenset(
    {
        *environment({}, _NO_POLICY, "full"),
        *environment({}, _NO_POLICY, "landlock"),
        *proxy_environment(PROXY_PORT),
        *resolver_environment(""),
        *("VIMINIT", "_", "PWD", "OLDPWD", "CDPATH", "SHLVL", "IFS"),
        *("BASHOPTS", "SHELLOPTS", "UID", "EUID", "PPID"),  # the shell refuses to set them
    }
)
"""Variables that the sandbox or each new shell sets."""

PRIVATE = "_sanderling_"
"""Prefix of Sanderling's own variables; commands cannot set them."""
MAX_NAME_CHARS = 128

# On one line, so that the shell counts the command's lines from 1. The command comes in a variable: as an argument it would be found, and
# killed, by its own `pkill -f`.
_BEGIN = """\
_sanderling_file=$SANDERLING_FILE _sanderling_state=$SANDERLING_STATE _sanderling_command=$SANDERLING_COMMAND; \
unset SANDERLING_FILE SANDERLING_STATE SANDERLING_COMMAND CDPATH; """
_DUMP_IN_BASH = r"""_sanderling_dump() { \
builtin printf .cwd=; builtin pwd; builtin printf '\0.oldpwd=%s\0.lost=%s\0.pipe=%s\0.exported=' \
"${OLDPWD-}" "${_sanderling_lost-}" "${_sanderling_pipe-}"; \
builtin export -p; builtin printf '\0.end=\0'; }; """
_DUMP_IN_SH = r"""_sanderling_dump() { \
printf .cwd=; pwd; printf '\0.oldpwd=%s\0.lost=%s\0' "${OLDPWD-}" "${_sanderling_lost-}"; \
command -p env -0; printf '.end=\0'; }; """
# `set -x` and `set -e` should affect the command only, not the wrapper. The command may also exit the shell, or set an EXIT trap.
#
# The braces make bash parse the whole wrapper before it runs the command. After a command that ends in a backslash or inside a quote,
# bash 5.2 parses its unread input as if it were inside a quote, too: it reported a syntax error in the wrapper, lost the command's
# directory and variables, and after `echo $(date` died of "free(): invalid next size".
_RUN = r"""_sanderling_save() { [ "${_sanderling_is_saved-}" ] || \
{ _sanderling_dump 2>/dev/null >>"$_sanderling_file" || :; _sanderling_is_saved=1; }; }; \
eval "$_sanderling_state"; trap '{ set +x; } 2>/dev/null; _sanderling_save' EXIT; \
{ eval "$_sanderling_command"
{ _sanderling_status=${_sanderling_ended-$?}; set +x; } 2>/dev/null; _sanderling_save; exit "$_sanderling_status"; }
"""
_WITH_PIPE = """
{ _sanderling_ended=$? _sanderling_pipe=${PIPESTATUS[*]}; } 2>/dev/null"""
"""Follows a command that ends with a pipe."""
_CONTINUATION = "\\\n"
# A read-only git command must not run programs that the repository's configuration and attributes name: these may come with the project.
# So in a line where git only reads, this function replaces git. It is not exported: git calls by the line's other programs are unchanged.
# A key that names a program cannot be unset, only overridden, and git itself lists the configured keys. Submodules have their own keys,
# so git does not look for changes there. It handles the same options before a subcommand as `core_words`.
#
# `git config` prints the configuration, and `git rev-parse --git-path hooks` the hooks' path, so neither may see the overrides. Neither
# needs them: `config` starts a pager only on a terminal, and `rev-parse` runs no hook and no filter. But `rev-parse :FILE` reads the
# index, and if the index was written with a monitor, git queries that monitor at once (`tweak_fsmonitor` in git's fsmonitor.c). `git
# ls-files` does so, too, and runs filters with -m. It prints no setting, so it gets all overrides.
GIT_THAT_READS = r"""git() (
{ set +exu; } 2>/dev/null
while :; do case $1 in
-C) CDPATH= cd -P -- "$2" >/dev/null || exit 128; shift 2 ;;
--no-pager|-P|--no-optional-locks) shift ;;
--literal-pathspecs) export GIT_LITERAL_PATHSPECS=1; shift ;;
*) break ;;
esac; done
_sanderling_git_set() {
export "GIT_CONFIG_KEY_$GIT_CONFIG_COUNT=$1" "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT=$2"
GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1))
}
export GIT_TRACE2=0 GIT_TRACE2_EVENT=0 GIT_TRACE2_PERF=0
export GIT_OPTIONAL_LOCKS=0 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL= GIT_CONFIG_COUNT="${GIT_CONFIG_COUNT:-0}"
case $1 in
config) command git "$@"; exit ;;
rev-parse) _sanderling_git_set core.fsmonitor false; command git "$@"; exit ;;
esac
_sanderling_keys=$(command git config --includes --name-only --get-regexp \
'^(diff\..*\.textconv|merge\..*\.driver|filter\..*\.(clean|smudge|process)|gpg\.(.*\.)?program)$' 2>/dev/null)
while IFS= read -r _sanderling_key; do case $_sanderling_key in
diff.*) _sanderling_git_set "$_sanderling_key" cat
_sanderling_git_set "${_sanderling_key%.*}.cachetextconv" false ;;
filter.*) _sanderling_git_set "$_sanderling_key" ''
_sanderling_git_set "${_sanderling_key%.*}.required" false ;;
?*) _sanderling_git_set "$_sanderling_key" false ;;
esac; done <<.
$_sanderling_keys
.
_sanderling_git_set core.fsmonitor false
_sanderling_git_set core.hooksPath /dev/null
_sanderling_git_set core.pager cat
_sanderling_git_set core.alternateRefsCommand true
_sanderling_git_set log.showSignature false
_sanderling_git_set diff.submodule short
_sanderling_git_set status.submoduleSummary false
case $1 in
diff) shift; set -- diff --no-ext-diff --ignore-submodules=dirty "$@" ;;
status|diff-files|diff-index) _sanderling_name=$1; shift; set -- "$_sanderling_name" --ignore-submodules=dirty "$@" ;;
esac
command git "$@"
)"""
# pip loads code and configuration from the private HOME, where earlier commands could write.
_PIP_THAT_READS = """%s() { PYTHONNOUSERSITE=1 PIP_CONFIG_FILE=/dev/null command %s "$@"; }"""
_THAT_READ = {
    "git": GIT_THAT_READS,
    **{name: _PIP_THAT_READS % (name, name) for name in ("pip", "pip3")},
}


# Without a terminal, most programs end at the end of stdin. Vim then reads stderr, to serve `xargs vim`: stderr is our pipe, to which it can
# only write, so poll(2) waits for ever. A regular file is always ready, and reading it fails, which ends Vim. It would also pause for two
# seconds because of its warnings, and leave a swap file at which the next one would stop. Neovim waits for a client of its API, so it ends
# itself when it has run its commands and would wait for a key. `-u NONE` and `--clean` leave
# VIMINIT out, so it cannot replace these functions.
_VIM = r"""%(name)s() {
_sanderling_errors=$(command -p mktemp) || return
case $(command %(name)s --version 2>/dev/null </dev/null) in VIM*) set -- -n --not-a-term "$@" ;; esac
command %(name)s "$@" 2>"$_sanderling_errors" && _sanderling_vim=0 || _sanderling_vim=$?
command -p cat "$_sanderling_errors" >&2; command -p rm -f "$_sanderling_errors"
return "$_sanderling_vim"
}"""
_NEOVIM = r"""nvim() {
for _sanderling_vim; do case $_sanderling_vim in
--headless|--embed|-l|-es|-Es) command nvim "$@"; return ;;
esac; done
command nvim --cmd 'autocmd SafeState * call chansend(v:stderr, "nvim: there is no terminal\n") | cquit' "$@"
}"""
_WITHOUT_TERMINAL = {
    "nvim": _NEOVIM,
    **{name: _VIM % {"name": name} for name in ("vim", "vi", "view", "vimdiff", "rvim", "rview")},
}
_EDITOR = rf"(?<![\w./-])(?:{'|'.join(_WITHOUT_TERMINAL)})(?![\w./-])"


class ShellState(msgspec.Struct, frozen=True):
    """The shell's directory, and its variables that differ from the initial environment; None marks an unset one."""

    cwd: Annotated[str, msgspec.Meta(max_length=MAX_PATH_CHARS)]
    variables: dict[str, str | None] = {}
    previous_cwd: Annotated[str, msgspec.Meta(max_length=MAX_PATH_CHARS)] = ""


class ShellChange(msgspec.Struct, frozen=True):
    """
    The changes that a command made to the shell.

    `missing_cwd` is the unreachable directory in which it should have run; it did not run. `too_large` variables are not kept.
    `is_unknown`: it ended without a report (`exec`, SIGKILL), so nothing changed.
    """

    has_moved: bool = False
    exported: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    too_large: tuple[str, ...] = ()
    missing_cwd: str = ""
    is_unknown: bool = False


class Started(msgspec.Struct, frozen=True):
    """A running command, its initial state, its report file, and `terms`, the access that it has (`SessionSandbox.terms`)."""

    process: RunningCommand
    begun_with: ShellState
    is_confined: bool
    tools: str
    directory: "ScratchDirectory"
    report_path: str
    report_fd: int
    terms: tuple[object, ...] = ()


class ScratchDirectory(msgspec.Struct, frozen=True):
    """A directory where commands can write: its path on the host, and in the sandbox."""

    ours: str
    theirs: str


class Elsewhere(Protocol):
    """Starts an unconfined command elsewhere: `argv`, in which the shell runs `line`."""

    async def __call__(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], line: str
    ) -> RunningCommand: ...


class OnlyReads(Protocol):
    def __call__(
        self, name: str, command: str, *, cwd: str, project: str, is_confined: bool
    ) -> bool: ...


class Shell:
    """
    The shell of a session. Commands may run in parallel: each starts with the latest state, and adds its own changes.

    `only_reads` tells whether a program occurs in a line and only reads there. The directories of `sandbox.own_programs` are not part of
    the shell's state: each command gets the current ones.
    """

    def __init__(
        self,
        project: str,
        sandbox: SessionSandbox,
        only_reads: OnlyReads,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._only_reads = only_reads
        self._project = project
        self._sandbox = sandbox
        self._elsewhere = elsewhere
        self._state = ShellState(project)
        self._environments: dict[bool, Mapping[str, str]] = {}  # by whether they are confined
        bash = next(filter(os.path.exists, BASH), None) or shutil.which("bash")
        self._is_bash = bash is not None
        wrapper = _BEGIN + (_DUMP_IN_BASH if bash else _DUMP_IN_SH) + _RUN
        wrapper = wrapper.replace(_CONTINUATION, "")
        self._argv = (bash or "/bin/sh", "-c", wrapper, "bash" if bash else "sh")

    @property
    def now(self) -> ShellState:
        return self._state

    @property
    def cwd(self) -> str:
        return self._state.cwd

    def state(self) -> ShellState:
        """Return the state to restore when the session is resumed, without undecodable text."""
        state = self._state
        variables = {name: value for name, value in state.variables.items() if _is_text(value)}
        return ShellState(
            state.cwd if _is_text(state.cwd) else self._project,
            variables,
            state.previous_cwd if _is_text(state.previous_cwd) else "",
        )

    def restore(self, state: ShellState) -> None:
        variables = {name: value for name, value in state.variables.items() if _is_kept(name)}
        kept, _ = _bounded({}, variables)
        cwd = valid_cwd(state.cwd) or self._project
        self._state = ShellState(cwd, kept, valid_cwd(state.previous_cwd))

    async def start(
        self,
        command: str,
        grant: Grant = NO_GRANT,
        state: ShellState | None = None,
        *,
        has_terminal: bool = False,
    ) -> Started:
        """
        Start a command in the current directory, with `grant` for it alone.

        Raises:
            ToolError: it could not be started.
        """
        _check(command)
        try:
            return await self._start(command, grant, state or self._state, has_terminal)
        except (SandboxError, OSError) as error:
            raise ToolError(f"Could not start the command: {error}") from error

    async def _start(
        self, command: str, grant: Grant, state: ShellState, has_terminal: bool
    ) -> Started:
        # A line starts and runs in one environment, even if the user switches the sandbox meanwhile.
        environment = self._sandbox.environment
        is_confined = environment.is_confined
        if has_terminal and self._elsewhere and not is_confined:
            raise ToolError(NO_TERMINAL_ELSEWHERE)
        functions = [
            function
            for name, function in _THAT_READ.items()
            if self._only_reads(
                name, command, cwd=state.cwd, project=self._project, is_confined=is_confined
            )
        ]
        editors = dict.fromkeys(() if has_terminal else re.findall(_EDITOR, command))
        functions += [_WITHOUT_TERMINAL[name] for name in editors]
        tools = self._sandbox.first_on_path(environment)
        directory = ScratchDirectory(*await environment.scratch())
        name = f".sanderling-{secrets.token_hex(8)}"
        path = f"{directory.ours}/{name}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        variables = {
            "SANDERLING_FILE": f"{directory.theirs}/{name}",
            "SANDERLING_STATE": _script(
                state,
                asks=is_confined not in self._environments,
                tools=tools,
                functions="\n".join(functions),
            ),
            "SANDERLING_COMMAND": command + (_WITH_PIPE if self._reports_pipe(command) else ""),
        }
        try:
            env = (ON_TERMINAL if has_terminal else WITHOUT_PROMPTS) | variables
            if self._elsewhere and not is_confined:
                process = await self._elsewhere(
                    self._argv, cwd=self._project, env=env, line=command
                )
            else:
                process = await environment.spawn(
                    self._argv, cwd="", env=env, grant=grant, has_terminal=has_terminal
                )
        except BaseException:
            _remove(path, descriptor)
            raise
        terms = self._sandbox.terms
        return Started(process, state, is_confined, tools, directory, path, descriptor, terms)

    def _reports_pipe(self, command: str) -> bool:
        return self._is_bash and bool(last_pipe(command))

    def pipe_of(self, started: Started) -> tuple[int, ...]:
        """Return the status of each part of the pipe that ended a command; empty if that is not known."""
        reports = reports_in(os.pread(started.report_fd, MAX_REPORT_BYTES, 0))
        return statuses_in(reports[-1].get(".pipe", "")) if reports else ()

    def finish(self, started: Started) -> ShellChange:
        """Take over the directory and variables of a command that has ended."""
        reports = reports_in(os.pread(started.report_fd, MAX_REPORT_BYTES, 0))
        self.forget(started)
        if reports and started.is_confined not in self._environments:
            self._environments[started.is_confined] = reports.pop(0)
        if not reports:
            return ShellChange(is_unknown=True)
        return self._take_over(started, reports[-1])

    def forget(self, started: Started) -> None:
        """Drop the report of a command that was moved to the background or interrupted."""
        _remove(started.report_path, started.report_fd)

    def new_log(self, started: Started) -> tuple[Path, str]:
        """Return a path for a command's output: on the host, and in the sandbox."""
        name = f"sanderling-{secrets.token_hex(4)}.log"
        directory = started.directory
        return Path(directory.ours, name), f"{directory.theirs}/{name}"

    def _take_over(self, started: Started, report: Mapping[str, str]) -> ShellChange:
        begun_with = started.begun_with
        base = self._environments[started.is_confined]
        before = {name: value for name, value in base.items() if _is_kept(name)}
        for name, value in begun_with.variables.items():
            if value is None:
                before.pop(name, None)
            else:
                before[name] = value
        after = {name: value for name, value in report.items() if _is_kept(name)}
        if started.tools and "PATH" in after:
            after["PATH"] = _without(started.tools, after["PATH"])
        exported = {name: value for name, value in after.items() if before.get(name) != value}
        unset = [name for name in before if name not in after]
        variables, too_large = _bounded(
            self._state.variables, exported | dict.fromkeys(unset, None)
        )
        missing_cwd = begun_with.cwd if report[".lost"] else ""
        cwd = report[".cwd"]
        has_moved = cwd != begun_with.cwd and bool(cwd)
        state = self._state
        self._state = ShellState(
            cwd if has_moved else state.cwd,
            {name: value for name, value in variables.items() if value is not None or name in base},
            valid_cwd(report[".oldpwd"]) if has_moved else state.previous_cwd,
        )
        return ShellChange(
            has_moved and not missing_cwd,
            tuple(sorted(exported.keys() - too_large)),
            tuple(sorted(unset)),
            tuple(sorted(too_large)),
            missing_cwd,
        )


def first_line(command: str) -> str:
    """Return a command as one line for the screen, shortened, with deceptive characters escaped."""
    line, *more = command.strip().split("\n")
    shown = in_one_line(line)
    is_whole = len(shown) <= MAX_TITLE_CHARS and not more
    return shown if is_whole else f"{shown[: MAX_TITLE_CHARS - 2]} …"


def in_one_line(text: str) -> str:
    """Return `text` with line ends, control, bidi and invisible characters escaped."""
    return "".join(
        character if is_seen(character) else character.encode("unicode_escape").decode()
        for character in text
    )


def _check(command: str) -> None:
    if not command.strip():
        raise ToolError("The command is empty.")
    if "\0" in command or not _is_text(command):
        raise ToolError("The command contains a NUL or half of a surrogate pair: remove it.")
    if len(command.encode()) > MAX_COMMAND_BYTES:
        raise ToolError(
            f"The command exceeds {MAX_COMMAND_BYTES:,} bytes: write it into a file and run that."
        )


def first_on_path(tools: str) -> str:
    """Return the shell's assignment that puts `tools`, separated by colons, before the other directories of PATH."""
    return f'PATH={shlex.quote(tools)}"${{PATH:+:$PATH}}"'


def _without(tools: str, path: str) -> str:
    """Return PATH without the project's tools, which each command gets again."""
    separator = os.pathsep
    around = f"{separator}{path}{separator}"
    return around.replace(f"{separator}{tools}{separator}", separator, 1)[1:-1]


def _script(state: ShellState, *, asks: bool, tools: str = "", functions: str = "") -> str:
    """
    Return shell lines that restore `state`; if this `asks`, the first one reports the initial environment.

    `tools` then come first on PATH.
    """
    lines = ['_sanderling_dump 2>/dev/null >>"$_sanderling_file" || :'] if asks else []
    lines.append(f"cd -- {shlex.quote(state.cwd)} >/dev/null || _sanderling_lost=1")
    if state.previous_cwd:
        lines.append(f"OLDPWD={shlex.quote(state.previous_cwd)}")
    for name, value in state.variables.items():
        lines.append(f"unset -v {name}" if value is None else f"export {name}={shlex.quote(value)}")
    if tools:
        lines.append(first_on_path(tools))
    if functions:
        lines.append(functions)
    # A line approved for one directory must not run in another.
    lines.append('[ -z "${_sanderling_lost-}" ] || _sanderling_command=false')
    return "\n".join(lines)


def _bounded(
    known: Mapping[str, str | None], new: Mapping[str, str | None]
) -> tuple[dict[str, str | None], set[str]]:
    """Return `known` updated by `new` within the size limits, and the names of the variables that exceed them."""
    variables, too_large = dict(known), set[str]()
    used = sum(_size(name, value) for name, value in variables.items() if name not in new)
    for name, value in new.items():
        size = _size(name, value)
        if size > MAX_VALUE_BYTES or used + size > MAX_STATE_BYTES:
            variables.pop(name, None)
            too_large.add(name)
        else:
            variables[name] = value
            used += size
    return variables, too_large


def _size(name: str, value: str | None) -> int:
    return len(f"export {name}={shlex.quote(value or '')}\n".encode(errors="surrogateescape"))


def _is_kept(name: str) -> bool:
    return (
        name.isascii()
        and name.isidentifier()
        and len(name) <= MAX_NAME_CHARS
        and name not in NOT_KEPT
        and not name.startswith(PRIVATE)
    )


def _is_text(value: str | None) -> bool:
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def _remove(path: str, descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)
    with suppress(OSError):  # it is gone, or was replaced
        os.unlink(path)
