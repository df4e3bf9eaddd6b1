"""
`sanderling sandbox status|check|exec`: the sandbox for scripts, tests and bug reports.

`check` runs the self-test; exit status 1 means that an escape succeeded, or that a program does not work in the sandbox.
`exec` runs one command with the caller's streams, and exits with its status (128 + n after signal n). Actions of the guard are reported
on stderr. Status 125 with one sentence means that the sandbox refused, and nothing ran.
"""

import argparse
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

import sanderling
from sanderling.config import state_dir
from sanderling.errors import ConfigError, SandboxError
from sanderling.json_lines import for_terminal
from sanderling.paths import is_within, own_command, state_directory
from sanderling.protocol.modes import Level
from sanderling.sandbox import outer
from sanderling.sandbox.credentials import CredentialUse
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.disk import DiskFull
from sanderling.sandbox.gaps import OUTER, missing_at
from sanderling.sandbox.policy import LEVELS, SandboxPolicy
from sanderling.sandbox.processes import Process
from sanderling.sandbox.report import EXIT_REFUSED, SEATBELT, GuardEvent, LayerReport
from sanderling.sandbox.sandbox import VERIFYING, Sandbox, SandboxEvent, alone, must_verify
from sanderling.text import visible

if TYPE_CHECKING:
    from sanderling.sandbox.selftest.running import Result

LAYER_ADVICE = {
    "namespaces": "Allow unprivileged user namespaces: `sysctl kernel.unprivileged_userns_clone=1` (Debian), `sysctl kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile with `userns,` for the Python of the plugin (Ubuntu); in Docker `--security-opt` with each of `seccomp=unconfined`, `apparmor=unconfined` and `systempaths=unconfined`",
    "bubblewrap": "Install bubblewrap, which may create namespaces where users may not",
    "landlock": "Landlock needs Linux 5.13 or newer with `landlock` among the security modules in /sys/kernel/security/lsm (boot parameter `lsm=`)",
    "seccomp": "seccomp needs x86_64 or aarch64 and a kernel with CONFIG_SECCOMP_FILTER",
    SEATBELT: "Run `{sanderling} sandbox check`: it tries again, and shows what came out wrong. Then see |sanderling-seatbelt|",
}
FULL: tuple[Level, ...] = ("full", "full-bwrap", "seatbelt")
"""The levels that are the most that their system offers."""
NESTED = "If this shell runs in a sandbox already, run the check in a terminal of its own."
REFUSED_HERE = """Until all succeed, Sanderling refuses commands on this Mac. `:help sanderling-seatbelt` explains the self-test.
Please report the lines above, and what `sw_vers` prints, to https://github.com/sanderling-nvim/sanderling.nvim/issues"""
EXIT_FAILED = 1
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def add(commands: Any) -> None:
    sandbox = commands.add_parser("sandbox")
    actions = sandbox.add_subparsers(required=True)
    status = actions.add_parser(
        "status", help="show the level that this machine reaches, and what it lacks"
    )
    status.add_argument("--json", action="store_true", help="print one JSON object")
    status.add_argument(
        "--min-level", default="none", choices=LEVELS, help="the option sandbox.min_level"
    )
    status.set_defaults(run=print_status)

    check = actions.add_parser(
        "check", help="try escapes and ordinary tasks in the sandbox, and show the outcome"
    )
    check.add_argument("--json", action="store_true", help="print a list of JSON objects")
    check.set_defaults(run=check_sandbox)

    run = actions.add_parser("exec", help="run COMMAND in the sandbox", usage=EXEC_USAGE)
    run.add_argument(
        "--project",
        default=".",
        metavar="DIR",
        help="the directory that COMMAND may write (default: the current one)",
    )
    run.add_argument("--net", default="off", choices=("off", "proxy", "on"))
    run.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST",
        help="a host that the proxy allows",
    )
    run.add_argument("--mode", default="rw", choices=("rw", "ro"), help="whether DIR is writable")
    run.add_argument(
        "--rw", action="append", default=[], metavar="PATH", help="another writable path"
    )
    run.add_argument(
        "--ro", action="append", default=[], metavar="PATH", help="another readable path"
    )
    run.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="/NAME=DIR",
        help="show DIR, writable, as a directory in /",
    )
    run.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="pass this variable to COMMAND, though it may be a secret",
    )
    run.add_argument("--level", choices=LEVELS[:-1], help="use exactly this level, or refuse")
    run.add_argument(
        "--no-guard", action="store_true", help="run without the guard: only the kernel enforces"
    )
    run.add_argument("--die-with-parent", action="store_true", help=argparse.SUPPRESS)
    run.add_argument("argv", nargs="+", metavar="COMMAND")
    run.set_defaults(run=execute)


EXEC_USAGE = "sanderling sandbox exec [options] -- COMMAND [ARGUMENT...]"


def print_status(arguments: argparse.Namespace) -> int:
    try:
        report = anyio.run(_probe)
        is_outer = outer.is_outer()
    except (SandboxError, ConfigError) as error:
        return _refuse(error)
    if arguments.json:
        text = for_terminal(
            describe(report, arguments.min_level, is_outer=is_outer), has_lines=True
        )
    elif is_outer:
        text = "\n".join(("level: outer", *(f"- {gap}" for gap in OUTER)))
    else:
        missing = [f"- {gap['what']} ({gap['reason']})" for gap in missing_at(report, report.level)]
        if reason := report.reasons.get(SEATBELT):
            missing = [f"- {SEATBELT}: {reason}"]
        advice = (f"* {each}" for each in advice_on(report))
        text = "\n".join((f"level: {report.level}", *missing, *advice))
    sys.stdout.write(text + "\n")
    return 0


async def _probe() -> LayerReport:
    await _say_if_verifying()
    return await Sandbox.probe()


async def _say_if_verifying() -> None:
    if await must_verify():
        sys.stderr.write(f"sanderling: {VERIFYING}\n")


def describe(report: LayerReport, min_level: Level, *, is_outer: bool = False) -> dict[str, Any]:
    """Return the report for `status --json`. Only sessions open the network, so it is off here, if it is not a container's."""
    reason = "the container around Sanderling is the sandbox"
    missing = [{"what": each, "reason": reason} for each in OUTER]
    return {
        "level": "outer" if is_outer else report.level,
        "layers": {
            layer: {"works": not reason, "reason": reason}
            for layer, reason in report.reasons.items()
        },
        "landlock_abi": report.landlock_abi,
        "missing": missing if is_outer else missing_at(report, report.level),
        "network": "on" if is_outer else "off",
        "findings": outer_findings() if is_outer else findings(report, min_level),
    }


def outer_findings() -> list[dict[str, Any]]:
    """Return what `:checkhealth` says if the container is the sandbox."""
    gaps = [gap.removesuffix(".") for gap in OUTER]
    return [
        {"level": "warn", "text": "level outer: the container is the sandbox", "advice": []},
        *({"level": "warn", "text": f"missing: {gap}", "advice": []} for gap in gaps),
    ]


def findings(report: LayerReport, min_level: Level) -> list[dict[str, Any]]:
    """Return what `:checkhealth` says about the report. A finding's level is "ok", "info", "warn" or "error"."""
    found: list[dict[str, Any]] = []

    def add(level: str, text: str, advice: Iterable[str] = ()) -> None:
        found.append({"level": level, "text": text, "advice": list(advice)})

    level, advice = report.level, advice_on(report)
    is_full = level in FULL
    if level == "none":
        add("error", "level none: commands are blocked here", advice)
    elif LEVELS.index(level) > LEVELS.index(min_level):
        option = f"the option sandbox.min_level is '{min_level}'"
        add("error", f"level {level}, but {option}: commands are blocked here", advice)
    elif not is_full:
        add("warn", f"level {level}, weaker than full", advice)
    else:
        add("ok", f"level {level}")
    for gap in missing_at(report, level):
        what = gap["what"].removesuffix(".")
        add("info" if is_full else "warn", f"missing: {what} ({gap['reason']})")
    for layer, reason in sorted(report.reasons.items()):
        version = f", ABI {report.landlock_abi}" if layer == "landlock" else ""
        add("info", f"{layer}: {reason}" if reason else f"{layer} works{version}")
    return found


def advice_on(report: LayerReport) -> list[str]:
    """Return the advice on layers that do not work. Bubblewrap and our own namespaces are alternatives."""
    failed = [layer for layer in LAYER_ADVICE if report.reasons.get(layer)]
    if SEATBELT not in failed and not {"namespaces", "bubblewrap"} <= set(failed):
        failed = [layer for layer in failed if layer in ("landlock", "seccomp")]
    return [LAYER_ADVICE[layer].format(sanderling=own_command()) for layer in failed]


def _refuse(error: SandboxError | ConfigError) -> int:
    sys.stderr.write(f"sanderling: {error}\n")
    return EXIT_REFUSED


def check_sandbox(arguments: argparse.Namespace) -> int:
    try:
        results = anyio.run(_self_test)
    except (SandboxError, ConfigError) as error:
        return _refuse(error)
    wrong = [each for each in results if not each.is_right]
    if arguments.json:
        fields = ("name", "is_escape", "is_right", "words", "outcome")
        found = [{field: getattr(each, field) for field in fields} for each in results]
        sys.stdout.write(for_terminal(found, has_lines=True) + "\n")
    else:
        lines = (f"{_word_for(each):7}  {each}" for each in results)
        sys.stdout.write(visible("\n".join((*lines, *_verdict(results)))) + "\n")
    return EXIT_FAILED if wrong else 0


def _word_for(result: "Result") -> str:
    if result.is_missing:
        return "skipped"
    return "ok" if result.is_right else "FAILED"


def _verdict(results: "Sequence[Result]") -> Iterator[str]:
    """Yield what the results mean, and what the user can do."""
    from sanderling.sandbox.selftest.running import why_nothing_starts

    failed = sum(not each.is_right for each in results)
    skipped = sum(each.is_missing for each in results)
    if not failed:
        tried = f"{len(results) - skipped} in all" + (f", {skipped} skipped" if skipped else "")
        yield f"The sandbox refused each escape and allowed each task ({tried})."
        return
    yield f"{failed} of {len(results)} failed."
    if reason := why_nothing_starts(results):
        yield f"{reason[0].upper()}{reason[1:]}."
        yield from (NESTED,) if "sandbox_apply" in reason else ()
    if sys.platform == "darwin":
        yield REFUSED_HERE


async def _self_test() -> "list[Result]":
    from sanderling.sandbox.selftest import (  # only this command needs them
        running,
        sandboxed,
        seatbelt,
    )

    directory = state_dir()
    if sys.stderr.isatty():
        sys.stderr.write(
            "Trying everything without the sandbox, then in it. This takes some seconds.\n"
        )
    if sys.platform == "darwin":
        return await seatbelt.verify(directory, await seatbelt.current_stamp())
    return await running.run(directory, sandboxed.in_sandbox)


def execute(arguments: argparse.Namespace) -> int:
    if arguments.die_with_parent:
        from sanderling.batch.parent import end_with_parent

        end_with_parent()
    try:
        mounted = _mount(arguments.mount) if arguments.mount else ()
        return anyio.run(_run, _policy(arguments, mounted), arguments.argv)
    except SandboxError as error:
        return _refuse(error)


def _mount(mounts: Sequence[str]) -> tuple[str, ...]:
    """
    Enter a root directory with more directories in it, before any thread starts, and return their paths.

    Raises:
        SandboxError: one cannot be there, or this machine allows no namespaces.
    """
    from sanderling.batch.root import can_be_placed, enter_root_with

    here = _here()
    places: dict[str, Path] = {}
    for mount in mounts:
        path, _, source = mount.partition("=")
        name = path.removeprefix("/")
        if not path.startswith("/") or not can_be_placed(name):
            raise SandboxError(
                f"{path} cannot be mounted: name a directory in / that is not the system's."
            )
        if not os.path.isdir(source):
            raise SandboxError(f"{source or mount} is not a directory to mount: write /NAME=DIR.")
        for needed in (sys.prefix, sys.base_prefix, sanderling.__file__, os.path.expanduser("~")):
            if is_within(real := os.path.realpath(needed), path):
                raise SandboxError(f"{path} cannot be mounted: it would hide {real}.")
        places[name] = Path(os.path.realpath(source))
    staging = Path(_state(), "root")
    try:
        enter_root_with(places, staging)
    except OSError as error:
        raise SandboxError(f"--mount needs namespaces: {error.strerror}.") from error
    with suppress(OSError):  # it is hidden by a mount
        os.chdir(here)
    return tuple(f"/{name}" for name in places)


def _state() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return f"{state}/sanderling/sandbox"


def _policy(arguments: argparse.Namespace, mounted: tuple[str, ...]) -> SandboxPolicy:
    project = os.path.normpath(os.path.join(_here(), arguments.project))
    return SandboxPolicy(
        project=project,
        home=os.path.expanduser("~"),
        state_dir=state_directory(_state(), project),
        mode=arguments.mode,
        network=arguments.net,
        read_paths=tuple(arguments.ro),
        write_paths=(*arguments.rw, *(path for path in mounted if path != project)),
        hosts=tuple(arguments.allow_host),
        env_pass=tuple(arguments.env),
        level=arguments.level,
        has_guard=not arguments.no_guard,
    )


async def _run(policy: SandboxPolicy, argv: list[str]) -> int:
    status = 0
    await _say_if_verifying()
    async with Sandbox.open(policy, _print_event) as sandbox:
        # Open before the command starts, so that no signal is missed.
        with anyio.open_signal_receiver(*FORWARDED) as received:
            process = await sandbox.spawn(argv, cwd=_here(), stdin=0, stdout=1, stderr=2)
            with alone():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_forward, received, process)
                    status = await process.wait()
                    tasks.cancel_scope.cancel()
    return status if status >= 0 else 128 - status


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise SandboxError("The current directory no longer exists.") from error


async def _forward(received: AsyncIterator[int], process: Process) -> None:
    """Forward signals. A second SIGTERM kills: the command ignores the first, or is stopped."""
    is_terminated = False
    async for number in received:
        if is_terminated and number == signal.SIGTERM:
            process.kill()
        else:
            process.send_signal(number)
        is_terminated |= number == signal.SIGTERM


def _print_event(event: SandboxEvent) -> None:
    match event:
        case Denial(operation, target):
            text = f"denied: {operation} {target} ({event.reason})"
        case DiskFull(path, free, unit):
            text = f"stopped: the disk of {path} is nearly full ({free:,} {unit} left)"
        case GuardEvent():
            text = f"guard: {event.kind}: {event.path}: {event.reason}"
        case CredentialUse(name, method, host, path):
            text = f"credential {name}: {method} {host}{path}"
    sys.stderr.write(f"sanderling: {text}\n")
