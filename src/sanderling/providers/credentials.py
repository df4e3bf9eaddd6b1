"""
API keys in the system's keychain, through `keyring`.

A file without a secret, the marker, records that a key is stored. Without it `keyring` is not imported, and the user is not asked to
unlock a keychain. Its modification time shows every process that the key was changed or removed.
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
MARKER_TEXT = "The API key is in the system's keychain. :Agent logout in Neovim removes it.\n"
TIMEOUT_S = 60.0  # a locked keychain asks the user first
NOT_A_KEYCHAIN = (
    "keyring.backends.fail",
    "keyring.backends.null",
    "keyring.backends.chainer",  # wraps others, which are checked one by one
    "keyrings.alt",  # files without encryption, or with a password that is asked for on the terminal
    "keyrings.cryptfile",
)

T = TypeVar("T")


class Account(msgspec.Struct, frozen=True):
    """A provider's key: in the environment's `variables`, else in the keychain under `name` if the file `marker` exists."""

    name: str
    variables: tuple[str, ...]
    marker: str

    def is_set(self, environment: Mapping[str, str] = os.environ) -> bool:
        return any(environment.get(name) for name in self.variables)

    def log_in(self) -> str:
        """Return the command that stores its key."""
        return remedies().login + ("" if self.name == "anthropic" else f" {self.name}")

    def use_the_environment(self) -> str:
        return f"Set {self.variables[0]} in {remedies().environment} instead."

    def unlock_it(self) -> str:
        return f"Unlock it and try again, or set {self.variables[0]} in {remedies().environment}."


class CredentialsError(SanderlingError):
    """The keychain failed: what happened, and what the user can do. The key is never part of it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.message = message
        self.remedy = remedy


class Credentials:
    """
    The key of `account` in the keychain. `state_dir` is Sanderling's own directory.

    All methods except `is_known` and `version` block, for up to `timeout_s`: call them in a thread.
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
        """Changes with each `store`; None while no key is stored."""
        try:
            return self._marker.stat().st_mtime_ns
        except OSError:
            return None

    def backend(self) -> str:
        """
        Return the name of the keychain that would hold the key, after a test read.

        Raises:
            CredentialsError: no keychain encrypts, or it does not answer.
        """

        def name(keychain: "KeyringBackend") -> str:
            keychain.get_password(SERVICE, self.account.name)
            return str(keychain.name)

        return self._ask(name)

    def read(self) -> str:
        """
        Return the stored key, or "".

        Raises:
            CredentialsError: the keychain failed.
        """
        if not self.is_known():
            return ""
        return self._ask(lambda keychain: keychain.get_password(SERVICE, self.account.name)) or ""

    def store(self, key: str) -> None:
        """
        Store `key`, replacing any other.

        Raises:
            CredentialsError: it cannot be a key, or the keychain did not keep it.
        """
        if not key or is_mangled(key):
            raise CredentialsError(
                "This is not an API key: it is empty, or contains a space or another invalid character.",
                "Copy the key again, and nothing else.",
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
        Remove the key; return True if there was one.

        Raises:
            CredentialsError: the keychain failed and still has the key, or the marker cannot be removed.
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
                f"The key was removed from the keychain, but {self._marker} cannot be removed ({error.strerror}).",
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
        """Ask in a thread that may be abandoned: nothing can end a call that waits for the user or for a hanging service."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(question(_find_keychain(self.account)))
            except Exception as error:  # noqa: BLE001  a backend is a plugin, and may raise anything
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
            # Without the error's own message, which may quote the key.
            raise CredentialsError(_explain(error), self.account.unlock_it()) from None


def is_mangled(key: str) -> bool:
    """A key with a line break (from a file) or a space is invalid in a header, and the error would quote it."""
    return key != key.strip() or not key.isascii() or (key != "" and not key.isprintable())


def _explain(error: Exception) -> str:
    from keyring.errors import InitError, KeyringLocked

    if isinstance(error, KeyringLocked):
        return "The keychain is locked."
    if isinstance(error, InitError):
        return "The keychain could not be opened."
    return f"The keychain failed ({type(error).__name__})."


def _find_keychain(account: Account) -> "KeyringBackend":
    """Return the machine's best keychain, or the user's choice in the settings of `keyring`."""
    from keyring import core

    core.init_backend(_is_keychain)
    keychain = core.get_keyring()
    if not _is_keychain(keychain):
        remedy = account.use_the_environment()
        raise CredentialsError("This system has no keychain that encrypts.", remedy)
    return keychain


def _is_keychain(backend: "KeyringBackend") -> bool:
    return not type(backend).__module__.startswith(NOT_A_KEYCHAIN) and backend.priority > 0
