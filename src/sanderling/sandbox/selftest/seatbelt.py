"""
The self-test of the level `seatbelt`, which counts only where it was verified: on this machine, since its last start and its last update.

A profile can mean something else to the next macOS: its language is not documented, and rules have changed between versions. So the machine
itself tries, before the first command. The result is kept in a file that no project can write.
"""

import hashlib
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import STDOUT

import anyio
import msgspec

from sanderling import __version__
from sanderling.errors import ConfigError, SandboxError
from sanderling.sandbox.kernel.layout import Protection, temporary_directory
from sanderling.sandbox.kernel.programs import search_path, with_programs
from sanderling.sandbox.policy import SandboxPolicy, private_home, resolve_policy
from sanderling.sandbox.report import SELF_TEST_FAILED
from sanderling.sandbox.seatbelt.profile import (
    PROGRAM,
    compile_profile,
    launcher,
    with_environment,
)
from sanderling.sandbox.selftest.running import (
    TIMED_OUT,
    TIMEOUT_S,
    Ended,
    Result,
    Start,
    run,
    why_nothing_starts,
)
from sanderling.sandbox.selftest.scene import Scene
from sanderling.state_file import StateFile, UnreadableError, Versioned

RECORD, VERSION, MAX_BYTES = "seatbelt.json", 1, 1 << 16
_SYSCTL = "/usr/sbin/sysctl"


class Stamp(msgspec.Struct, frozen=True):
    """What a verification is valid for: this start of the machine, and these versions of everything that takes part."""

    boot: str
    system: str
    sanderling: str
    profile: str
    python: str


class Record(Versioned):
    stamp: Stamp
    problems: tuple[str, ...]


def reference_digest() -> str:
    """Return a digest of profiles that use every rule of the compiler."""
    policy = SandboxPolicy("/a/b", "/a", "/a/s", tmp_dir="/a/s/t", masked=("/a/b/m",))
    protection = Protection(pinned=("/a/b/p",), read_only=("/a/b/r",))
    profiles = (
        compile_profile(
            policy._replace(network=network), protection, proxy_port=1, canonical=os.path.normpath
        )
        for network in ("off", "proxy", "on")
    )
    return hashlib.sha256("\n".join(profiles).encode()).hexdigest()


async def current_stamp() -> Stamp:
    """
    Return the stamp of this machine.

    Raises:
        SandboxError: the system does not say when it started, or which build it is.
    """
    boot = await _sysctl("kern.bootsessionuuid") or await _sysctl("kern.boottime")
    build = await _sysctl("kern.osversion")
    if not boot or not build:
        raise SandboxError("macOS does not say when it started, or which build it is.")
    return Stamp(boot, build, __version__, reference_digest(), sys.version)


async def _sysctl(name: str) -> str:
    with suppress(OSError):
        ended = await anyio.run_process([_SYSCTL, "-n", name], check=False)
        return ended.stdout.decode(errors="replace").strip() if ended.returncode == 0 else ""
    return ""


async def why_not_verified(state_dir: Path, stamp: Stamp, program: str = PROGRAM) -> str:
    """
    Return why the level cannot be used here, or "". The self-test runs if there is no result for `stamp`.

    `state_dir` is Sanderling's own, and `program` is `sandbox-exec`.
    """
    if known := _known(state_dir, stamp):
        return _sentence(known.problems)
    return _sentence(_problems(await verify(state_dir, stamp, program)))


def _known(state_dir: Path, stamp: Stamp) -> Record | None:
    with suppress(UnreadableError):
        known = _file(state_dir).read()
        return known if known and known.stamp == stamp else None
    return None


def is_due(state_dir: Path, stamp: Stamp) -> bool:
    """Return whether the self-test has to run, because there is no result for `stamp`."""
    return _known(state_dir, stamp) is None


def why_still_not(state_dir: Path, stamp: Stamp, reason: str) -> str:
    """Return why the level cannot be used now, after `reason`. The user may have run the self-test again in a shell."""
    known = _known(state_dir, stamp)
    return _sentence(known.problems) if known else reason


async def verify(state_dir: Path, stamp: Stamp, program: str = PROGRAM) -> list[Result]:
    """Run the self-test, keep its result for `stamp`, and return it."""
    results = await run(state_dir, partial(in_seatbelt, program=program))
    record = Record(version=VERSION, stamp=stamp, problems=_problems(results))
    with suppress(ConfigError, OSError):  # it runs again at the next start
        _file(state_dir).change(lambda: record)
    return results


def _problems(results: Sequence[Result]) -> tuple[str, ...]:
    if reason := why_nothing_starts(results):
        return (reason,)
    return tuple(str(result) for result in results if not result.is_right)


def _sentence(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{SELF_TEST_FAILED}: {problems[0]}{others}"


def _file(state_dir: Path) -> StateFile[Record]:
    return StateFile(state_dir / RECORD, Record, version=VERSION, max_bytes=MAX_BYTES)


@asynccontextmanager
async def in_seatbelt(scene: Scene, program: str = PROGRAM) -> AsyncGenerator[Start]:
    """Run commands of the scene's project with the profile that a session would use."""
    policy, profile, environment = _prepared(scene)

    async def start(argv: Sequence[str]) -> Ended:
        with anyio.move_on_after(TIMEOUT_S):
            try:
                ended = await anyio.run_process(
                    [*launcher(profile, program), *with_environment(argv, environment)],
                    check=False,
                    stderr=STDOUT,
                    env={},
                    cwd=policy.project,
                )
            except OSError as error:
                return Ended(TIMED_OUT, f"{program}: {error.strerror}")
            return Ended(ended.returncode, ended.stdout.decode(errors="replace"))
        return Ended(TIMED_OUT, f"it took longer than {TIMEOUT_S:.0f} s")

    yield start


def _prepared(scene: Scene) -> tuple[SandboxPolicy, str, dict[str, str]]:
    """Return the policy, the profile and the environment of the scene's commands."""
    policy = resolve_policy(scene.policy)
    policy = with_programs(policy._replace(tmp_dir=f"{policy.state_dir}/tmp/1"))
    temporary_directory(policy)
    git = f"{policy.project}/.git"
    profile = compile_profile(
        policy,
        Protection(
            pinned=(git,),
            read_only=(f"{git}/config", f"{git}/hooks"),
            absent=((git, "commondir"),),
        ),
        runtime=(sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))),
    )
    environment = {
        "PATH": search_path(os.environ.get("PATH", os.defpath), policy),
        "HOME": f"{policy.state_dir}/{private_home(policy)}",
        "TMPDIR": policy.tmp_dir,
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    return policy, profile, environment
