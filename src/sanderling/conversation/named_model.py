"""The model that a file names, a command's or a role's: for a turn, or as long as the role lasts."""

from collections.abc import Callable

from sanderling.errors import ConfigError
from sanderling.protocol.events import ModelChanged, Notice
from sanderling.providers import Provider
from sanderling.providers.choice import SCRIPT_PREFIX
from sanderling.providers.models.known import KnownModels, split
from sanderling.session.session import Session

INHERIT = "inherit"


class NamedModel:
    """
    A model instead of the session's own, from `begin` to `end`.

    A name that cannot be used is reported, and the model stays: the file may be from another agent. Files name no script.
    """

    def __init__(
        self,
        session: Session,
        provider: Provider,
        models: KnownModels,
        emit: Callable[[ModelChanged | Notice], None],
    ) -> None:
        self._session = session
        self._provider = provider
        self._models = models
        self._emit = emit
        self.before = self.used = ""

    def begin(self, name: str, *, origin: str) -> None:
        """Use the model that `name` means, if any; `origin` is what names it, as the subject of a sentence."""
        self.before = self.used = ""
        if name in ("", INHERIT):
            return
        before = self._provider.model
        try:
            if name.startswith(SCRIPT_PREFIX):
                raise ConfigError("a file cannot choose a script as the model")  # noqa: TRY301
            self._provider.set_model(self._models.meant(name, split(before)[0]))
        except ConfigError as error:
            self._emit(Notice("warning", f"{origin} names the model {name}: {error}."))
            return
        if self._provider.model != before:
            self.before, self.used = before, self._provider.model
            self._record()

    def end(self) -> None:
        """Use the model from before again, unless the user has chosen one meanwhile."""
        if self.before and self._provider.model == self.used:
            self._provider.set_model(self.before)
            self._record()
        self.before = self.used = ""

    def _record(self) -> None:
        self._session.switch_model(self._provider.model)
        self._emit(ModelChanged(self._provider.model))
