"""The API key in the system's keychain: the real one where there is one, plugins of `keyring` for what a real one rarely does."""

import os
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from tests.conftest import DEADLINE_S, ROOT, prove, prove_rest, wait_until
from tests.homes import Home
from tests.loopback import LoopbackServer, Reply, Status, Until, done, hello, message_start, text

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest, ReplyDone
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.credentials import Credentials, CredentialsError
from sanderling.providers.endpoint import ANTHROPIC, load_endpoint

ACCOUNT = ANTHROPIC.account
KEY = "sk-ant-this-is-secret"
OTHER_KEY = "sk-ant-this-is-secret-too"
REQUEST = ModelRequest("", [Message("user", (TextBlock("Good morning."),))])

SCRIPT = """
import sys, anyio
from sanderling.config import Settings
from sanderling.providers.credentials import Credentials, CredentialsError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.endpoint import ANTHROPIC

state_dir, url, key = sys.argv[1:]
credentials = Credentials(state_dir, ANTHROPIC.account, timeout_s=20)

async def ask():
    request = ModelRequest("", [Message("user", (TextBlock("Good morning."),))])
    provider = AnthropicProvider(Settings(state_dir, base_url=url))
    async for _ in provider.stream(request):
        pass
    await provider.aclose()

try:
    print(credentials.backend())
    if key == "remove":
        credentials.remove()
    elif key == "ask":
        anyio.run(ask)
    else:
        credentials.store(key)
    print(credentials.is_known(), credentials.read() == sys.argv[3])
except CredentialsError as error:
    print(error.message)
"""


def run_script(*arguments: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], check=True, capture_output=True, text=True
    )
    return run.stdout.splitlines()


UNLOCKED = "printf pw | gnome-keyring-daemon --unlock --components=secrets --daemonize"
LOCKED = "gnome-keyring-daemon --start --components=secrets"

UseKeychain = Callable[[str], Credentials]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL", "PROFILE", "CUSTOM_HEADERS"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> UseKeychain:
    """Choose the keychain."""
    monkeypatch.setenv("KEYCHAIN_FILE", str(tmp_path / "keychain.json"))

    def choose(name: str = "FileKeychain") -> Credentials:
        backend = name if "." in name else f"tests.keychain.{name}"
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
        return Credentials(tmp_path / "state", ACCOUNT, timeout_s=DEADLINE_S)

    return choose


@pytest.mark.parametrize(
    "environment, has_key",
    [
        ({"ANTHROPIC_API_KEY": "k"}, True),
        ({"ANTHROPIC_AUTH_TOKEN": "t"}, True),
        ({"ANTHROPIC_API_KEY": ""}, False),
        ({}, False),
    ],
)
def test_key_counts_when_it_is_set_and_not_empty(environment, has_key):
    assert ACCOUNT.is_set(environment) is has_key


def test_key_is_looked_for_in_the_environment_of_the_moment(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert ACCOUNT.is_set()
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert not ACCOUNT.is_set()


def test_key_is_kept_read_and_removed(use):
    credentials = use("FileKeychain")
    assert credentials.backend() == "keychain FileKeychain"
    assert (credentials.is_known(), credentials.read()) == (False, "")
    credentials.store(KEY)
    assert (credentials.is_known(), credentials.read()) == (True, KEY)
    credentials.store(OTHER_KEY)
    assert credentials.read() == OTHER_KEY
    credentials.remove()
    assert (credentials.is_known(), credentials.read()) == (False, "")


def test_version_changes_with_what_is_kept(use):
    credentials = use("FileKeychain")
    assert credentials.version() is None
    credentials.store(KEY)
    first = credentials.version()
    credentials.store(OTHER_KEY)
    assert None not in (first, credentials.version())
    assert credentials.version() != first


def test_marker_holds_no_secret_and_is_the_persons_alone(use, tmp_path):
    use("FileKeychain").store(KEY)
    [marker] = (tmp_path / "state").iterdir()
    assert "secret" not in marker.read_text()
    assert marker.stat().st_mode & 0o777 == 0o600


def test_link_in_place_of_the_marker_is_not_written_through(use, tmp_path):
    (tmp_path / "state").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "state" / "keychain").symlink_to(victim)
    use("FileKeychain").store(KEY)
    assert victim.read_text() == "mine"


def test_key_that_somebody_else_removed_is_none(use, tmp_path):
    credentials = use("FileKeychain")
    credentials.store(KEY)
    (tmp_path / "keychain.json").unlink()
    assert credentials.read() == ""
    credentials.remove()
    assert not credentials.is_known()


@pytest.mark.parametrize("key", ["", "sk\r", "sk\n", " sk", "sk ", "sk-\u00e4", "s\x00k", "s\tk"])
def test_what_cannot_be_a_key_is_not_kept(use, key):
    credentials = use("FileKeychain")
    with pytest.raises(CredentialsError, match="not an API key"):
        credentials.store(key)
    assert not credentials.is_known()


def test_whether_a_key_is_known_costs_no_import(tmp_path):
    code = (
        "import sys; from sanderling.providers.endpoint import ANTHROPIC;"
        "from sanderling.providers.credentials import Credentials; c = Credentials(sys.argv[1], ANTHROPIC.account);"
        "print(c.is_known(), repr(c.read()), 'keyring' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert run.stdout.split() == ["False", "''", "False"]


@pytest.mark.parametrize(
    "backend", ["keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"]
)
def test_keychain_that_keeps_nothing_is_none(use, backend):
    credentials = use(backend)
    for deed in (credentials.backend, lambda: credentials.store(KEY)):
        with pytest.raises(CredentialsError) as caught:
            deed()
        assert "no keychain that encrypts" in caught.value.message
        assert "ANTHROPIC_API_KEY" in caught.value.remedy


def test_file_without_encryption_is_no_keychain(use):
    pytest.importorskip("keyrings.alt")
    with pytest.raises(CredentialsError, match="no keychain that encrypts"):
        use("keyrings.alt.file.PlaintextKeyring").store(KEY)


@pytest.mark.skipif(sys.platform != "linux", reason="this system always has a keychain")
def test_machine_without_a_keychain_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND", raising=False)
    assert run_script(str(tmp_path), "", KEY) == ["This system has no keychain that encrypts."]


def test_setting_that_names_no_keychain_is_told(use):
    with pytest.raises(CredentialsError, match="ModuleNotFoundError"):
        use("no.such.Keychain").backend()


def test_keychain_that_does_not_answer_is_given_up(use, tmp_path):
    use("SilentKeychain")
    with pytest.raises(CredentialsError, match=r"within 0\.1 s"):
        Credentials(tmp_path, ACCOUNT, timeout_s=0.1).backend()


def test_keychain_that_is_locked_is_told(use):
    with pytest.raises(CredentialsError) as caught:
        use("LockedKeychain").backend()
    assert caught.value.message == "The keychain is locked."
    assert "Unlock it" in caught.value.remedy


def test_keychain_that_forgets_is_found_out(use):
    credentials = use("ForgetfulKeychain")
    with pytest.raises(CredentialsError, match="did not keep"):
        credentials.store(KEY)
    assert not credentials.is_known()


def test_marker_that_cannot_be_removed_is_told(use, tmp_path):
    credentials = use()
    credentials.store(KEY)
    [marker] = (tmp_path / "state").iterdir()
    marker.unlink()
    marker.mkdir()
    with pytest.raises(
        CredentialsError, match=r"was removed from the keychain, but .* cannot be removed"
    ):
        credentials.remove()


def test_key_stays_known_that_could_not_be_removed(use):
    use("FileKeychain").store(KEY)
    with pytest.raises(CredentialsError):
        use("LockedKeychain").remove()
    assert use("FileKeychain").read() == KEY


def test_words_of_a_keychain_that_quote_the_key_are_not_passed_on(use):
    with pytest.raises(CredentialsError) as caught:
        use("TalkativeKeychain").store(KEY)
    assert KEY not in "".join(traceback.format_exception(caught.value, chain=True))
    assert "RuntimeError" in caught.value.message


def test_state_directory_that_cannot_be_written_is_told(use, tmp_path):
    use("FileKeychain")
    (tmp_path / "file").write_text("")
    with pytest.raises(CredentialsError, match="cannot be written"):
        Credentials(tmp_path / "file" / "state", ACCOUNT).store(KEY)


@pytest.fixture
async def provider(server, tmp_path):
    settings = Settings(str(tmp_path / "state"), base_url=server.url)
    provider = AnthropicProvider(settings)
    yield provider
    await provider.aclose()


async def ask(provider: AnthropicProvider) -> ProviderError | None:
    with anyio.fail_after(DEADLINE_S):
        try:
            async with aclosing(provider.stream(REQUEST)) as stream:
                async for _ in stream:
                    pass
        except ProviderError as error:
            return error
    return None


def keys(server: LoopbackServer) -> list[str]:
    return [request.headers["authorization"].removeprefix("Bearer ") for request in server.prompts]


async def test_kept_key_is_sent(use, server, provider):
    use("FileKeychain").store(KEY)
    assert await ask(provider) is None
    assert keys(server) == [KEY]
    assert server.prompts[0].headers["x-api-key"] == KEY


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
async def test_key_of_the_environment_goes_first(use, server, provider, monkeypatch, name):
    use("FileKeychain").store(KEY)
    use("SilentKeychain")
    monkeypatch.setenv(name, OTHER_KEY)
    assert await ask(provider) is None
    assert keys(server) == [OTHER_KEY]


async def test_login_and_logout_hold_from_the_next_request_on(use, server, provider):
    credentials = use("FileKeychain")
    assert ((await ask(provider)) or pytest.fail("no error")).kind == "no_key"
    credentials.store(KEY)
    assert await ask(provider) is None
    assert await ask(provider) is None
    credentials.store(OTHER_KEY)
    assert await ask(provider) is None
    credentials.remove()
    error = await ask(provider)
    assert error.kind == "no_key"
    assert ":Agent login" in error.remedy
    assert keys(server) == [KEY, KEY, OTHER_KEY]


async def test_an_answer_goes_on_while_another_key_is_stored_and_used(use, server, provider):
    credentials, rest = use("FileKeychain"), threading.Event()
    credentials.store(KEY)
    gull = (message_start(), text("The gull"), Until(rest), text(" sleeps.", index=1), done())
    server.answer(Reply(*gull), hello())
    with anyio.fail_after(DEADLINE_S):
        async with aclosing(provider.stream(REQUEST)) as stream:
            await anext(stream)
            credentials.store(OTHER_KEY)
            assert await ask(provider) is None
            rest.set()
            items = [item async for item in stream]
    assert isinstance(items[-1], ReplyDone)
    assert keys(server) == [KEY, OTHER_KEY]
    wait_until(lambda: server.prompts[0].closed_at, "the connection with the old key is closed")


async def test_kept_key_that_the_api_refuses_can_be_replaced(use, server, provider):
    use("FileKeychain").store(KEY)
    server.answer(Status(401))
    error = await ask(provider)
    assert (error.kind, error.is_temporary) == ("auth", False)
    assert ":Agent login" in error.remedy
    assert "ANTHROPIC_API_KEY" not in error.remedy


async def test_key_that_cannot_be_read_is_told_and_read_with_the_next_prompt(use, server, provider):
    use("FileKeychain").store(KEY)
    use("LockedKeychain")
    error = await ask(provider)
    assert (error.kind, error.is_temporary) == ("auth", False)
    assert "locked" in error.message
    use("FileKeychain")
    assert await ask(provider) is None
    assert keys(server) == [KEY]


# --- from the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def home(use, monkeypatch, tmp_path) -> Home:
    use()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Home(tmp_path)


@prove
def test_key_that_is_piped_into_login_is_kept_for_its_provider_until_logout(home):
    done = home.run("login", "mistral", stdin=f"{KEY}\n")
    assert done.returncode == 0
    assert "sanderling logout mistral" in done.stdout
    assert KEY not in done.stdout + done.stderr
    account = load_endpoint("mistral", {}).account
    kept = Credentials(home.state, account)
    assert (kept.is_known(), kept.read()) == (True, KEY)
    assert not Credentials(home.state, ACCOUNT).is_known()
    assert "Removed the API key for mistral" in home.run("logout", "mistral").stdout
    assert not kept.is_known()
    assert "No API key for mistral is stored" in home.run("logout", "mistral").stdout
    assert home.run("login", stdin=OTHER_KEY).returncode == 0
    assert Credentials(home.state, ACCOUNT).read() == OTHER_KEY


@pytest.mark.parametrize("words, key, status, told", prove_rest([
    (("login", "mistrall"), KEY, 2, "did you mean 'mistral'?"),
    (("login",), "", 1, "not an API key"),
    (("login",), "sk-\u00e4\n", 1, "not an API key"),
]))  # fmt: skip
def test_login_that_cannot_be_is_told(home, words, key, status, told):
    done = home.run(*words, stdin=key)
    assert done.returncode == status
    assert told in done.stderr
    assert not list(home.state.glob("keychain*"))


@pytest.fixture
def secret_service(server, tmp_path, monkeypatch):
    """Run the script once for each word, with a Secret Service that a person has unlocked, or not."""
    if not (shutil.which("dbus-run-session") and shutil.which("gnome-keyring-daemon")):
        pytest.skip("needs dbus-run-session and gnome-keyring-daemon")
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND", raising=False)
    env = {
        key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")
    }
    env |= {"XDG_RUNTIME_DIR": str(tmp_path / "run")}

    def run(start: str, *words: str) -> list[str]:
        call = f'"{sys.executable}" -c "$SCRIPT" "{tmp_path / "state"}" {server.url}'
        script = "; ".join([f"{start} >/dev/null 2>&1", *(f"{call} {word}" for word in words)])
        done = subprocess.run(
            ["dbus-run-session", "--", "sh", "-c", script],
            cwd=ROOT,
            env=env | {"SCRIPT": SCRIPT},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.splitlines()

    return run


def test_secret_service_keeps_the_key_from_one_process_to_the_next(secret_service, server):
    lines = secret_service(UNLOCKED, KEY, "ask", "remove")
    name = "SecretService Keyring"
    assert lines == [name, "True True", name, "True False", name, "False False"]
    assert keys(server) == [KEY]


def test_secret_service_that_is_locked_is_told(secret_service):
    assert secret_service(LOCKED, KEY) == ["The keychain could not be opened."]
    assert secret_service(UNLOCKED, KEY) == ["SecretService Keyring", "True True"]
    assert secret_service(LOCKED, "ask") == ["The keychain is locked."]
