"""`sanderling trust`: show the files that would instruct or configure the agent, and trust them, on a machine without a screen."""

import argparse
import os
import shlex
import sys
from textwrap import indent
from typing import Any

from sanderling.cli.streams import say
from sanderling.config.layers import own_layers
from sanderling.errors import SanderlingError, UsageError
from sanderling.json_lines import for_terminal
from sanderling.project.root import project_root
from sanderling.project.trust.trust import Trust
from sanderling.protocol.requests import TrustFile, TrustPage
from sanderling.text import did_you_mean, visible_exactly, visible_line, visible_prose

EXIT_UNTRUSTED, EXIT_USAGE = 1, 2
NOTHING = "The project has no files that would instruct or configure the agent."


def add(commands: Any) -> None:
    trust = commands.add_parser(
        "trust",
        description="List the project's files that instruct or configure the agent. Each is ignored until you trust it as it is now.",
        epilog=f"The exit status is 0; {EXIT_UNTRUSTED} if a listed file is not trusted; {EXIT_USAGE} for a mistake.",
    )
    trust.add_argument("files", nargs="*", metavar="FILE", help="show these files whole")
    trust.add_argument(
        "--accept",
        nargs="+",
        metavar="FILE=SHA256",
        help="trust these files if they still have these hashes, as the list shows them",
    )
    trust.add_argument("--revoke", nargs="+", metavar="FILE", help="trust these files no longer")
    trust.add_argument("--json", action="store_true", help="print one JSON object per file")
    trust.add_argument("--project", default="", metavar="DIR", help="project directory")
    trust.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        trust = Trust(own_layers().state_dir, project_root(arguments.project))
        page = trust.shown()
        if page.refusal:
            raise UsageError(page.refusal)
        if arguments.accept or arguments.revoke:
            _change(trust, page, arguments.accept or [], arguments.revoke or [])
            _show(trust.shown(), arguments)
            return 0
        return _show(page, arguments)
    except SanderlingError as error:
        say(str(error))
        return EXIT_USAGE


def _change(trust: Trust, page: TrustPage, accepted: list[str], revoked: list[str]) -> None:
    """Trust and revoke files. The hash makes sure that what the user has read is what is trusted."""
    hashes = {file.path: file.sha256 for file in page.files if file.state == "trusted"}
    for each in accepted:
        path, _, digest = each.rpartition("=")
        file = _found(page, path or each)
        if not file.sha256:
            raise UsageError(file.text.strip("[]"))
        if digest != file.sha256:
            raise UsageError(
                f"{file.path} has the hash {file.sha256}: read it, then accept it with that"
            )
        hashes[file.path] = digest
    for path in revoked:
        hashes.pop(_found(page, path).path, None)
    trust.trust(hashes)


def _found(page: TrustPage, path: str) -> TrustFile:
    """Return the file that `path` names, in the project or from the current directory."""
    files = {file.path: file for file in page.files}
    from_here = os.path.relpath(os.path.realpath(path), os.path.realpath(page.project))
    if file := files.get(path) or files.get(from_here):
        return file
    meant = did_you_mean(path, files) or "; `sanderling trust` lists them"
    raise UsageError(f"there is no such file to trust: '{path}'{meant}")


def _show(page: TrustPage, arguments: argparse.Namespace) -> int:
    shown = [_found(page, path) for path in arguments.files] or list(page.files)
    for file in shown:
        if arguments.json:
            print(for_terminal(file))  # noqa: T201 - the output of the command
            continue
        state = file.state if file.sha256 else "cannot be trusted"
        print(visible_line(f"{state:9} {file.sha256 or '-':64} {file.path}"))  # noqa: T201
        for allowed in file.allowed:
            print(f"{'':9} allows {visible_exactly(allowed)}")  # noqa: T201
        if arguments.files:
            # Indented, so that it cannot imitate the row with the hash, which is the hash of exactly this text.
            sys.stdout.write(indent(visible_prose(file.text).rstrip("\n"), " " * 4) + "\n")
    if not shown:
        print(NOTHING)  # noqa: T201
    is_listing = not (arguments.json or arguments.accept or arguments.revoke)
    if is_listing and (open_files := [file for file in shown if _is_open(file)]):
        sys.stderr.write(f"sanderling: {visible_line(_next_step(open_files, arguments))}\n")
    return EXIT_UNTRUSTED if any(file.state != "trusted" for file in shown) else 0


def _is_open(file: TrustFile) -> bool:
    return file.state != "trusted" and bool(file.sha256)


def _next_step(files: list[TrustFile], arguments: argparse.Namespace) -> str:
    """Return the command to go on with: it trusts `files` if they have just been shown whole."""
    command = ["sanderling", "trust"]
    if arguments.project:
        command += ["--project", arguments.project]
    if not arguments.files:
        return f"`{shlex.join(command)} FILE` shows a file whole, and how to trust it"
    accepted = (f"{file.path}={file.sha256}" for file in files)
    return f"to trust as shown: {shlex.join([*command, '--accept', *accepted])}"
