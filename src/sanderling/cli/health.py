"""
The report of `sanderling check`, which `:checkhealth` shows, too: whether what a session needs is there, and what to do if not.

Each section has its own deadline, so that a file system or a program that does not answer costs its section, not the report.
"""

import argparse
import os
import platform
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio import to_thread

import sanderling
from sanderling.cli.config import Checked, check_settings
from sanderling.cli.mcp import listed_servers
from sanderling.cli.sandbox import findings, outer_findings
from sanderling.config import ALL_PATHS, Settings
from sanderling.config.project import PROJECT_FILE
from sanderling.errors import ConfigError, ProviderError, SandboxError, SanderlingError, ToolError
from sanderling.paths import own_command, path_outside
from sanderling.project.root import project_root
from sanderling.project.trust.trust import Trust
from sanderling.protocol.remedies import NEOVIM, remedies
from sanderling.providers.choice import (
    DEFAULT,
    SCRIPTED,
    ChosenModel,
    credentials,
    make_provider,
    search_warning,
)
from sanderling.providers.credentials import CredentialsError
from sanderling.providers.endpoint import is_local, load_endpoint
from sanderling.providers.local_servers import find_local
from sanderling.providers.packaged import load_wires
from sanderling.sandbox.credentials import check_credentials, read_secret
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.sandbox.outer import is_outer
from sanderling.sandbox.remotes import read_remotes, resolved
from sanderling.sandbox.sandbox import Sandbox, must_verify
from sanderling.text import counted, printable
from sanderling.tools.packaged import load_tools
from sanderling.tools.ripgrep import find_ripgrep

SECTION_S, ASKING_S, PROGRAM_S = 8.0, 25.0, 2.0
SLOW_ESCAPE_MS = 50
PACKAGES = (
    *("pynvim", "anthropic", "msgspec", "anyio", "landlock", "httpx2", "greenlet", "msgpack"),
    *("h11", "httpcore2", "html-to-markdown", "mcp", "tree-sitter", "tree-sitter-bash", "keyring"),
    *("jsonschema", "pypdf", "pyyaml", "truststore", "websockets"),
)
RUN_WITHOUT = ":Agent sandbox off runs commands without a sandbox in one session, after you confirm"
KEYS = {
    "environment": "an API key is in the environment",
    "keychain": "an API key is in the keychain",
    "profile": "the environment names a profile instead of an API key",
    "not needed": "this provider needs no API key",
}
STORES = (
    ("sessions", "file", "sessions"),
    ('rules stored by "always"', "project", "rules"),
    ("trusted files", "project", "trust"),
)


class Line(msgspec.Struct, frozen=True):
    level: Literal["ok", "info", "warn", "error"]
    text: str
    advice: tuple[str, ...] = ()


class Section(msgspec.Struct, frozen=True):
    title: str
    lines: tuple[Line, ...]


class Report(msgspec.Struct, frozen=True):
    sections: tuple[Section, ...]

    @property
    def is_well(self) -> bool:
        return all(line.level != "error" for section in self.sections for line in section.lines)


class _Subject(NamedTuple):
    """The subject of the report. `is_asking`: ask the model's API and the keychain, too."""

    checked: Checked
    project: str
    is_asking: bool

    @property
    def settings(self) -> Settings:
        return self.checked.settings

    @property
    def chosen(self) -> ChosenModel | None:
        return self.checked.report.model


async def examine(arguments: argparse.Namespace) -> Report:
    """
    Examine the installation and the project. Without `arguments.api` nothing outside this machine is asked.

    Raises:
        ConfigError: the project or the settings cannot be found.
    """
    project = project_root(arguments.project)
    subject = _Subject(check_settings(arguments, project), project, arguments.api)
    parts: tuple[tuple[str, Callable[[_Subject], Awaitable[Iterable[Line]]]], ...] = (
        ("Python packages", _in_thread(_packages)),
        ("Configuration", _in_thread(_configuration)),
        ("Model", _model),
        ("Sandbox", _sandbox),
        ("Programs", _in_thread(_programs)),
        ("MCP servers", _in_thread(_servers)),
        ("Project", _in_thread(_trusted)),
        ("tmux", _in_thread(partial(_tmux, is_in_neovim=arguments.setup))),
        ("Files", _in_thread(_files)),
    )
    sections = [Section("", ())] * len(parts)

    async def fill(place: int) -> None:
        title, part = parts[place]
        sections[place] = Section(title, await _within(part(subject), _deadline_of(subject)))

    async with anyio.create_task_group() as tasks:
        for place in range(len(parts)):
            tasks.start_soon(fill, place)
    return Report(tuple(section for section in sections if section.lines))


def _deadline_of(subject: _Subject) -> float:
    return ASKING_S if subject.is_asking else SECTION_S


async def _within(lines: Awaitable[Iterable[Line]], seconds: float) -> tuple[Line, ...]:
    try:
        with anyio.fail_after(seconds):
            return tuple(await lines)
    except TimeoutError:
        return (Line("error", f"no answer within {seconds:g} s"),)
    except SanderlingError as error:
        return (Line("error", str(error)),)
    except OSError as error:
        return (Line("error", f"cannot be read: {error}"),)


def _in_thread(
    part: Callable[[_Subject], Iterable[Line]],
) -> Callable[[_Subject], Awaitable[Iterable[Line]]]:
    """Have `part` run in a thread, which the end of the process ends if it still waits for the disk."""

    def run(subject: _Subject) -> tuple[Line, ...]:
        return tuple(part(subject))

    return lambda subject: to_thread.run_sync(run, subject, abandon_on_cancel=True)


# --- the installation -------------------------------------------------------------------------------------------------


def _packages(_: _Subject) -> Iterator[Line]:
    yield Line("ok", f"Python {platform.python_version()}, Sanderling {sanderling.__version__}")
    versions = {name: version_of(name) for name in PACKAGES}
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    yield Line("ok", found)
    for name, version in versions.items():
        if not version:
            yield Line("error", f"{name} is missing", (f"Run {remedies().install}",))
    yield from _extensions()


def _extensions() -> Iterator[Line]:
    """Yield what other packages add. They are loaded, to see whether they work."""
    for extension, found in (load_tools() | load_wires()).items():
        if isinstance(found, ConfigError):
            advice = "Correct the package, or remove it from Sanderling's environment"
            yield Line("error", printable(str(found)), (advice,))
        else:
            yield Line("ok", printable(str(extension)))


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _configuration(subject: _Subject) -> Iterator[Line]:
    report = subject.checked.report
    for name, state in report.files.items():
        yield Line("info", f"{name}: {state}")
    opened = (":Agent config opens the file",) if remedies() is NEOVIM else ()
    for mistake in report.mistakes:
        yield Line("error", mistake.text, opened)


# --- the model --------------------------------------------------------------------------------------------------------


async def _model(subject: _Subject) -> list[Line]:
    chosen = subject.chosen
    if not chosen:
        return [Line("info", "not checked: fix the configuration first")]
    lines = [Line("info", f"provider {chosen.provider}, model {chosen.model}"), _key(chosen)]
    if warning := search_warning(subject.settings):
        lines.append(Line("warn", warning))
    if local := [each.name for each in await find_local(subject.settings.providers)]:
        lines.append(Line("info", f"on this machine: {', '.join(local)}"))
    if subject.is_asking:
        lines.append(await to_thread.run_sync(_keychain, subject.settings, abandon_on_cancel=True))
    lines.append(await _answer(subject, chosen))
    return lines


def _key(chosen: ChosenModel) -> Line:
    if chosen.is_fallback:
        return Line(
            "warn",
            "there is no API key, so the demo model answers",
            (_how_to_store("", "ANTHROPIC_API_KEY"), remedies().keyless),
        )
    if chosen.key == "missing":
        name = "" if chosen.provider == DEFAULT else f" {chosen.provider}"
        return Line("error", "there is no API key", (_how_to_store(name, chosen.variable),))
    return Line("ok", KEYS[chosen.key])


def _how_to_store(provider: str, variable: str) -> str:
    words = remedies()
    return f"Store one with {words.login}{provider}, or set {variable} in {words.environment}"


def _keychain(settings: Settings) -> Line:
    try:
        return Line("ok", f"API keys can be stored in {credentials(settings).backend()}")
    except CredentialsError as error:
        return Line("info", str(error))


async def _answer(subject: _Subject, chosen: ChosenModel) -> Line:
    is_neovim = remedies() is NEOVIM
    if not chosen.is_fallback and chosen.provider in SCRIPTED:
        return Line("info", "it replays a script")
    if not chosen.is_fallback and chosen.provider != DEFAULT:
        how = f"{':Agent provider_test' if is_neovim else 'sanderling check'} {chosen.provider}"
        base_url = load_endpoint(chosen.provider, subject.settings.providers).base_url
        if is_local(base_url) and not await _is_listening(base_url):
            advice = ("Start the model server", f"{how} tests it")
            return Line("warn", f"nothing listens at {base_url}", advice)
        return Line("info", f"whether it answers was not checked; {how} does so")
    if not subject.is_asking:
        how = ":Agent health!" if is_neovim else "--api"
        return Line("info", f"the API and the keychain were not checked; {how} checks them")
    # Also while the demo model answers: whether the API can be reached is known without a key.
    model = chosen.model if not chosen.is_fallback else subject.settings.model
    settings = msgspec.structs.replace(
        subject.settings, provider=DEFAULT, model=model, idle_timeout_s=20.0
    )
    try:
        await make_provider(settings).fetch_limits()
    except ProviderError as error:
        return Line("error", error.message, tuple(filter(None, (error.remedy,))))
    return Line("ok", f"the API answers and knows {model}")


async def _is_listening(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with anyio.fail_after(PROGRAM_S):
            async with await anyio.connect_tcp(parts.hostname or "", port):
                return True
    except (OSError, TimeoutError):
        return False


# --- the machine ------------------------------------------------------------------------------------------------------


def _unverified() -> Line:
    """Return what is known on macOS before the self-test, which takes longer than a report may."""
    text = "level seatbelt is not verified since the last start or update of this Mac: the first session does that"
    return Line("info", text, (f"Or run `{own_command()} sandbox check` now",))


async def _sandbox(subject: _Subject) -> list[Line]:
    try:
        if await must_verify():
            return [_unverified()]
        report = await Sandbox.probe()
        if is_outer():
            return [Line(each["level"], each["text"]) for each in outer_findings()]
    except (SandboxError, ConfigError) as error:
        return [Line("error", f"state unknown: {error}")]
    found = [
        Line(each["level"], each["text"], tuple(each["advice"]))
        for each in findings(report, subject.settings.sandbox_min_level)
    ]
    network = f"network off at the start of a session; {remedies().network} changes it"
    if remedies() is NEOVIM and report.level == "none":
        found = [
            msgspec.structs.replace(line, advice=(*line.advice, RUN_WITHOUT))
            if line.level == "error"
            else line
            for line in found
        ]
    credentials = partial(
        credential_lines, subject.settings, subject.project, is_asking=subject.is_asking
    )
    lines = await to_thread.run_sync(lambda: [*credentials()], abandon_on_cancel=True)
    return [*found, Line("info", network), *lines]


NO_PROXY = 'Set network = "proxy", or use :AgentNet in Neovim'


def credential_lines(
    settings: Settings, project: str, *, is_asking: bool, names: Sequence[str] = ()
) -> Iterator[Line]:
    """Report the secrets that commands can use, or only those with these names; read them only when asking."""
    credentials = settings.sandbox_credentials
    if not credentials:
        return
    try:
        check_credentials(credentials, settings.sandbox_env)
    except ConfigError as error:
        yield Line("error", str(error))
        return
    rules = HostRules(settings.sandbox_hosts)
    remotes = read_remotes(project, settings.sandbox_write)
    for name, declared in credentials.items():
        if names and name not in names:
            continue
        credential = resolved(declared, remotes)
        source = "environment" if credential.source == "env" else credential.source
        text = f"credential {name} for {', '.join(credential.hosts)}, from the {source}"
        if ALL_PATHS in credential.paths:
            text += ", for all paths"
        elif credential.paths:
            text += f", for {', '.join(_shortest(credential.paths))}"
        else:
            text += ", but not here: the project has no remote on them"
        unlisted = [host for host in credential.hosts if not rules.allow_all_of(host)]
        advice = [f"Add {', '.join(unlisted)} to sandbox.hosts"] if unlisted else []
        advice += [NO_PROXY] if settings.network != "proxy" else []
        if unlisted:
            yield Line("warn", f"{text} (commands cannot reach all of these hosts)", tuple(advice))
        elif not is_asking:
            yield Line("info", text, tuple(advice))
        if is_asking:
            try:
                read_secret(name, credential, (project, *settings.sandbox_write))
            except SandboxError as error:
                yield Line("error", str(error))
            else:
                yield Line("ok", text)


def _shortest(paths: Sequence[str]) -> list[str]:
    """Return the paths, leaving out each `PATH/*` whose PATH is among them."""
    return [each for each in paths if not (each.endswith("/*") and each[:-2] in paths)]


def _programs(subject: _Subject) -> Iterator[Line]:
    if git := shutil.which("git", path=path_outside(subject.project)):
        yield _version_line(git)
    else:
        yield Line("warn", "git is missing", ("Install it: `@diff` and the branch come from it",))
    try:
        rg = find_ripgrep(subject.project)
    except ToolError:
        text = "ripgrep (rg) is missing, so the tools grep and glob do not work"
        yield Line("error", text, (f"Run {remedies().install}",))
    else:
        yield _version_line(rg)


def _version_line(program: str) -> Line:
    version = _output(program, "--version").partition("\n")[0]
    return Line("ok", version) if version else Line("warn", f"{program} does not answer")


def _output(program: str, *arguments: str) -> str:
    """Return what a program prints; "" if it fails or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603 - a program outside the project
            (program, *arguments),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _tmux(subject: _Subject, *, is_in_neovim: bool) -> Iterator[Line]:
    """Yield what tmux keeps from Neovim. Neovim adds the delay of <Esc> to its own, so it reports both itself."""
    tmux = shutil.which("tmux", path=path_outside(subject.project))
    if not tmux or not os.environ.get("TMUX"):
        return
    delay = _output(tmux, "show-options", "-sv", "escape-time")
    if not is_in_neovim and delay.isdigit():
        if int(delay) > SLOW_ESCAPE_MS:
            text = f"escape-time {delay}: <Esc> and the next key are read as Alt and that key"
            yield Line("warn", text, ("Run `tmux set -s escape-time 10`",))
        else:
            yield Line("ok", f"escape-time {delay}")
    for option, scope, without in (
        ("extended-keys", "-s", "<S-CR> and <C-End> do not arrive"),
        ("set-clipboard", "-s", '"+y does not reach the system clipboard over ssh'),
        ("focus-events", "-g", "files that others change are reloaded late"),
    ):
        value = _output(tmux, "show-options", f"{scope}v", option)
        if value == "off":
            advice = (f"Run `tmux set {scope} {option} on`",)
            yield Line("info", f"{option} off: {without}", advice)
        elif value:
            yield Line("ok", f"{option} {value}")


# --- the project ------------------------------------------------------------------------------------------------------


def _servers(subject: _Subject) -> Iterator[Line]:
    if not subject.chosen:
        return
    try:
        rows = listed_servers(subject.settings, Trust(subject.settings.state_dir, subject.project))
    except ConfigError as error:
        yield Line("error", str(error))
        return
    for row in rows:
        state = f", {row.state}" if row.state else ""
        owner = "the project's " if row.is_projects else ""
        text = f"{owner}{row.name}: {row.place}{state}"
        yield Line("error", f"{text}: {row.error}") if row.error else Line("info", text)
    if rows:
        yield Line("info", "they were not started; `sanderling mcp check` starts them")


def _trusted(subject: _Subject) -> Iterator[Line]:
    yield Line("info", subject.project)
    page = Trust(subject.settings.state_dir, subject.project).shown()
    if page.refusal:
        yield Line("info", page.refusal)
    how = ":Agent trust" if remedies() is NEOVIM else "`sanderling trust`"
    for file in page.files:
        if file.path == PROJECT_FILE:
            continue  # among the files of the configuration
        if not file.sha256:
            yield Line("warn", f"ignored: {file.text.strip('[]')}")
        elif file.state == "trusted":
            yield Line("ok", f"{file.path}: trusted")
        else:
            why = "not trusted" if file.state == "new" else "changed since you trusted it"
            yield Line("warn", f"{file.path}: {why}, so ignored", (f"{how} shows it",))


def _files(subject: _Subject) -> Iterator[Line]:
    for what, noun, name in STORES:
        directory = Path(subject.settings.state_dir, name)
        count, size = 0, 0
        if directory.is_dir():
            for entry in os.scandir(directory):
                if entry.is_file(follow_symlinks=False):
                    count, size = count + 1, size + entry.stat(follow_symlinks=False).st_size
        yield Line("info", f"{what}: {directory} ({counted(count, noun)}, {size / 1e6:.1f} MB)")
        is_writable = directory.is_dir() and os.access(directory, os.W_OK)
        if os.path.lexists(directory) and not is_writable:
            whose = "the user who runs Neovim" if remedies() is NEOVIM else "you"
            yield Line(
                "error", f"{directory} cannot be written", (f"Make it writable for {whose}",)
            )
