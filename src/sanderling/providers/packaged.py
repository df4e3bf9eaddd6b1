"""Providers of Python packages. What they raise becomes an error with the package's name and version."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import TypeVar, cast

from sanderling.errors import ConfigError, ProviderError
from sanderling.packages import Extension, extension, extensions, in_words, translated
from sanderling.protocol.messages import Usage
from sanderling.providers import Delegate, ModelLimits, ModelRequest, Provider, StreamItem
from sanderling.providers.endpoint import RESERVED, WIRES, Endpoint, is_endpoint_name, presets

Made = TypeVar("Made")
Make = Callable[[Endpoint, str], Provider]
log = logging.getLogger(__name__)


class PackagedProvider(Delegate):
    """
    Forwards to the provider that a package makes for `endpoint`, whose wire is the name of its entry point.

    Raises:
        ConfigError: the package cannot be loaded, or makes none.
    """

    learned: tuple[str, ...] = ()

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        found = extension("sanderling.providers", endpoint.wire)
        if found is None:
            raise ConfigError(f"no package has the wire '{endpoint.wire}'")
        self._name = str(found)
        make = _loaded(found)
        try:
            self._provider = make(endpoint, model)
            self._check()
        except ConfigError:
            raise
        except Exception as error:
            log.info("%s cannot be made", self._name, exc_info=True)
            raise ConfigError(f"{self._name} cannot be made: {in_words(error)}") from error

    def _check(self) -> None:
        missing = [name for name in _MEMBERS if not hasattr(self._provider, name)]
        if missing:
            raise ConfigError(f"{self._name} lacks {', '.join(missing)}")

    async def prepare(self) -> None:
        await self._guarded(self._provider.prepare())

    async def aclose(self) -> None:
        try:
            await self._provider.aclose()
        except Exception:
            log.info("%s cannot be closed", self._name, exc_info=True)

    async def learn_limits(self) -> None:
        await self._guarded(self._provider.learn_limits())

    async def fetch_limits(self) -> ModelLimits:
        return await self._guarded(self._provider.fetch_limits())

    def set_model(self, model: str) -> None:
        try:
            self._provider.set_model(model)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{self._name} does not take '{model}': {in_words(error)}") from error

    async def list_models(self) -> tuple[str, ...]:
        return await self._guarded(self._provider.list_models())

    async def prewarm(self, request: ModelRequest) -> Usage:
        return await self._guarded(self._provider.prewarm(request))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        with self._translated():
            async with aclosing(self._provider.stream(request)) as items:
                async for item in items:
                    yield item

    async def _guarded(self, call: Awaitable[Made]) -> Made:
        with self._translated():
            return await call

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._name, partial(ProviderError, "internal"))


def load_wires() -> dict[Extension, Make | ConfigError]:
    """Return what makes the providers of the installed packages, and why others cannot be used."""
    found = dict[Extension, Make | ConfigError]()
    for each in extensions("sanderling.providers"):
        try:
            found[each] = _loaded(each)
        except ConfigError as error:
            found[each] = error
    return found


def _loaded(found: Extension) -> Make:
    """
    Return what makes the provider.

    Raises:
        ConfigError: with the package's name and version.
    """
    name = found.name
    if name in (*WIRES, *RESERVED, *presets()):
        raise ConfigError(f"{found} is not used: Sanderling has a provider or a wire of that name")
    if not is_endpoint_name(name):
        raise ConfigError(f"{found} is not used: a name has only letters, digits, '-' and '_'")
    if found != extension("sanderling.providers", name):
        raise ConfigError(f"{found} is not used: another package has one of that name")
    make = found.load()
    if not callable(make):
        raise ConfigError(f"{found} is not used: {make!r:.80} cannot be called")
    return cast("Make", make)


_MEMBERS = tuple(name for name in dir(Delegate) if not name.startswith("_"))
