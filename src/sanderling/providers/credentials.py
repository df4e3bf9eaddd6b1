"""
The API keys in the system's keychain, through `keyring`.

A file without a secret says that there is one. So nobody pays for the import, or is asked to unlock a keychain, who keeps nothing
there; and whoever has the key sees at once that it was changed or removed, by whichever process.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

import msgspec

from sanderling.errors import SanderlingError
from sanderling.protocol.remedies import remedies

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "sanderling"
MARKER_TEXT = "The API key is in the system's keychain. :AgentLogout in Neovim removes it.\n"
TIMEOUT_S = 60.0  # a locked keychain asks the person first
NOT_A_KEYCHAIN = (
    "keyring.backends.fail",
    "keyring.backends.null",
    "keyring.backends.chainer",  # stands for others, which are looked at one by one
    "keyrings.alt",  # files without encryption, or with a password that is asked for on the terminal
    "keyrings.cryptfile",
)

T = TypeVar("T")


class Account(msgspec.Struct, frozen=True):
    """One provider's key: `variables` of the environment hold it, else the keychain under `name`, as the file `marker` says."""

    name: str
    variables: tuple[str, ...]
    marker: str

    def is_set(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Say whether a variable holds a key."""
        return any(environment.get(name) for name in self.variables)

    def log_in(self) -> str:
        """The command that stores a key for it."""
        return remedies().login + ("" if self.name == "anthropic" else f" {self.name}")

    def use_the_environment(self) -> str:
        return f"Set {self.variables[0]} in {remedies().environment} instead."

    def unlock_it(self) -> str:
        return f"Unlock it and try again, or set {self.variables[0]} in {remedies().environment}."


class CredentialsError(SanderlingError):
    """The keychain cannot be used: what happened, and what a person can do. Never with the key in it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.message = message
        self.remedy = remedy


class Credentials:
    """
    The key of `account` that a person keeps here. `state_dir` is Sanderling's own directory.

    All but `is_known` and `version` block, for up to `timeout_s`: call them in a thread.
    """

    def __init__(
        self, state_dir: str | Path, account: Account, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.account = account
        self._marker = Path(state_dir) / account.marker
        self._timeout_s = timeout_s

    def is_known(self) -> bool:
        return self.version() is not None

    def version(self) -> int | None:
        """Changes with each `store`; None while no key is kept."""
        try:
            return self._marker.stat().st_mtime_ns
        except OSError:
            return None

    def backend(self) -> str:
        """
        Name the keychain that would hold the key, having asked it something.

        Raises:
            CredentialsError: there is none that encrypts, or it does not answer.
        """

        def name(keychain: "KeyringBackend") -> str:
            keychain.get_password(SERVICE, self.account.name)
            return str(keychain.name)

        return self._ask(name)

    def read(self) -> str:
        """
        Return the key; empty when none is kept.

        Raises:
            CredentialsError: the keychain cannot be asked.
        """
        if not self.is_known():
            return ""
        return self._ask(lambda keychain: keychain.get_password(SERVICE, self.account.name)) or ""

    def store(self, key: str) -> None:
        """
        Keep `key` in place of any other.

        Raises:
            CredentialsError: it cannot be a key, or the keychain does not keep it.
        """
        if not key or is_mangled(key):
            raise CredentialsError(
                "This is no API key: it is empty, or holds a blank or another character that no key has.",
                "Copy the key once more, and nothing else.",
            )

        def keep(keychain: "KeyringBackend") -> bool:
            keychain.set_password(SERVICE, self.account.name, key)  # pyright: ignore[reportUnknownMemberType]
            return keychain.get_password(SERVICE, self.account.name) == key

        if not self._ask(keep):
            raise CredentialsError(
                "The keychain did not keep the key.", self.account.use_the_environment()
            )
        self._write_marker()

    def remove(self) -> bool:
        """
        Forget the key, and say whether there was one.

        Raises:
            CredentialsError: the keychain cannot be asked, and the key is still there; or the file that says so cannot be removed.
        """
        if not self.is_known():
            return False

        def forget(keychain: "KeyringBackend") -> None:
            if keychain.get_password(SERVICE, self.account.name) is not None:
                keychain.delete_password(SERVICE, self.account.name)

        self._ask(forget)
        try:
            self._marker.unlink(missing_ok=True)
        except OSError as error:
            raise CredentialsError(
                f"The keychain has forgotten the key, but {self._marker} cannot be removed ({error.strerror}).",
                "Remove it by hand.",
            ) from error
        return True

    def _write_marker(self) -> None:
        try:
            self._marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._marker.unlink(missing_ok=True)
            file = os.open(self._marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(file, "w") as marker:
                marker.write(MARKER_TEXT)
        except OSError as error:
            raise CredentialsError(
                f"The keychain has the key, but {self._marker} cannot be written ({error.strerror}).",
                "Make its directory writable, then log in again.",
            ) from error

    def _ask(self, question: Callable[["KeyringBackend"], T]) -> T:
        """Ask in a thread that may be left behind: nothing ends a call that waits for a person, or for a service that hangs."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(question(_find_keychain(self.account)))
            except Exception as error:  # noqa: BLE001  a backend is a plugin, and raises what it likes
                answer.set_exception(error)

        Thread(target=copy_context().run, args=(run,), name="keychain", daemon=True).start()
        try:
            return answer.result(self._timeout_s)
        except CredentialsError:
            raise
        except TimeoutError:
            raise CredentialsError(
                f"The keychain did not answer within {self._timeout_s:g} s.",
                self.account.unlock_it(),
            ) from None
        except Exception as error:  # noqa: BLE001
            # Without the error's own words: they may quote the key.
            raise CredentialsError(_explain(error), self.account.unlock_it()) from None


def is_mangled(key: str) -> bool:
    """A key with a line break (from a file) or a blank would fail as a header, and the error would quote it."""
    return key != key.strip() or not key.isascii() or (key != "" and not key.isprintable())


def _explain(error: Exception) -> str:
    from keyring.errors import InitError, KeyringLocked

    if isinstance(error, KeyringLocked):
        return "The keychain is locked."
    if isinstance(error, InitError):
        return "The keychain could not be opened."
    return f"The keychain failed ({type(error).__name__})."


def _find_keychain(account: Account) -> "KeyringBackend":
    """The best that the machine has, or the one that the person's settings for `keyring` name."""
    from keyring import core

    core.init_backend(_is_keychain)
    keychain = core.get_keyring()
    if not _is_keychain(keychain):
        remedy = account.use_the_environment()
        raise CredentialsError("This system has no keychain that encrypts.", remedy)
    return keychain


def _is_keychain(backend: "KeyringBackend") -> bool:
    return not type(backend).__module__.startswith(NOT_A_KEYCHAIN) and backend.priority > 0
