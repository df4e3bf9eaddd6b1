"""
The role of a session: chosen by the user between turns, remembered, and sent to the model once as a note.

The system prompt and the tools' definitions stay as they are, or the API's cache would be lost: a call of a tool that the role lacks is
refused. The role is kept as it was when it was chosen, so that no change of its file, which anything in the project could make, lifts
a restriction.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from sanderling.conversation.effort import ChosenEffort
from sanderling.conversation.named_model import NamedModel
from sanderling.permissions.gate import Gate
from sanderling.project.project import Project
from sanderling.project.roles import Role
from sanderling.protocol.events import EffortChanged, ModeChanged, ModelChanged, Notice, RoleChanged
from sanderling.protocol.modes import MODES_BY_STRICTNESS, Effort, Mode
from sanderling.providers import Provider
from sanderling.providers.models.known import KnownModels
from sanderling.session.session import Session

FORBIDDEN = "The role {role} does not have the tool {tool}. Its tools: {tools}. Only the user can change the role."
REPLACED = "The role {role} is the project's, in {origin}. It replaces yours, in {replaced}, whose limits on tools and mode hold, too."
ENDED = "[The role ends here: its instructions and its limits on tools no longer hold.]"
_Shown = EffortChanged | ModeChanged | ModelChanged | Notice


class _InForce(msgspec.Struct, frozen=True):
    """
    The role, with the settings to restore when it ends.

    Attributes:
        mode, effort, model: the values from before, if the role changed them.
        models_name: the model that replaced `model`, by its full name.
        was_used: the model has been sent a role.
    """

    role: Role | None = None
    mode: Mode | None = None
    effort: Effort | None = None
    model: str = ""
    models_name: str = ""
    was_used: bool = False


class SessionRole:
    """The role of one session, if it has one. `emit` receives the events."""

    def __init__(
        self,
        session: Session,
        provider: Provider,
        models: KnownModels,
        effort: ChosenEffort,
        *,
        gate: Gate,
        project: Project,
        emit: Callable[[_Shown], None],
    ) -> None:
        self._effort = effort
        self._gate = gate
        self._project = project
        self._emit = emit
        self._is_opening = False
        self._model = NamedModel(session, provider, models, self._show)
        self._now = _InForce()

    @property
    def role(self) -> Role | None:
        return self._now.role

    @property
    def was_used(self) -> bool:
        return self._now.was_used

    def shown(self) -> RoleChanged:
        return RoleChanged(self.role.name, self.role.description) if self.role else RoleChanged()

    def begin(self, name: str, *, keeps_mode: bool) -> None:
        """
        Begin the session in a role, before it is shown. `keeps_mode`: the user has chosen another mode for this run.

        Raises:
            ConfigError: there is no such role.
        """
        self._is_opening = True
        try:
            self.choose(name, keeps_mode=keeps_mode)
        finally:
            self._is_opening = False

    def choose(self, name: str, *, keeps_mode: bool = False) -> None:
        """
        Give the session this role from now on; "" ends the role.

        Raises:
            ConfigError: there is no such role.
        """
        self.take(self._project.roles.find(name) if name else None, keeps_mode=keeps_mode)

    def take(self, role: Role | None, *, keeps_mode: bool = False) -> None:
        """Give the session this role from now on."""
        self._end()
        if role is None:
            self._now = _InForce(was_used=self.was_used)
            return
        if own := role.replaced:
            words = REPLACED.format(role=role.name, origin=role.origin, replaced=own.origin)
            self._warn(words)
        self._model.begin(role.model, origin=f"The role {role.name}")
        mode, effort = None if keeps_mode else self._mode_of(role), role.effort
        self._now = _InForce(
            role,
            self._gate.mode if mode else None,
            self._effort.state() if effort else None,
            self._model.before,
            self._model.used,
            was_used=True,
        )
        self._set(mode, effort)
        for problem in role.problems:
            self._warn(f"The role {role.name} ({role.origin}): {problem}.")
        if unknown := [each for each in role.skills if each not in self._project.skills.all()]:
            self._warn(
                f"The role {role.name} names skills that do not exist: {', '.join(unknown)}."
            )

    def _end(self) -> None:
        """Restore the settings from before the role, unless the user has changed them since."""
        if not (role := self.role):
            return
        now = self._now
        self._model.end()
        self._set(
            now.mode if self._gate.mode == role.mode else None,
            now.effort if self._effort.state() == role.effort else None,
        )

    def _mode_of(self, role: Role) -> Mode | None:
        """Return the mode that the role sets. A project's role never sets a mode that is less strict than the user's."""
        order, mode = MODES_BY_STRICTNESS, role.mode
        if mode is None or mode == self._gate.mode:
            return None
        is_looser = order.index(mode) > order.index(self._gate.mode)
        if role.source == "project" and is_looser:
            self._warn(
                f"The mode stays {self._gate.mode}: {role.origin} may only make it stricter."
            )
            return None
        return mode

    def _set(self, mode: Mode | None, effort: Effort | None) -> None:
        if mode:
            self._gate.restore_mode(mode)
            self._show(ModeChanged(mode))
        if effort:
            self._effort.restore(effort)
            self._show(self._effort.shown())

    def _warn(self, text: str) -> None:
        self._emit(Notice("warning", text))

    def _show(self, event: _Shown) -> None:
        """Emit the event, unless the opening of the session will show the same."""
        if isinstance(event, Notice) or not self._is_opening:
            self._emit(event)

    # --- what the model may do and reads -------------------------------------------------------------------------------

    def forbids(self, tool: str) -> str:
        """Return why the role does not allow the tool, for the model; "" if it does."""
        if not (role := self.role) or role.allows(tool):
            return ""
        return FORBIDDEN.format(role=role.name, tool=tool, tools=role.tools_in_words())

    @property
    def mark(self) -> str:
        """A mark of what the model reads of the role; "" without one."""
        if not (role := self.role):
            return ""
        return blake2b(role.text().encode(), digest_size=8).hexdigest()

    def text(self) -> str:
        """Return what the model reads when the role begins, with the texts of its skills; without a role, that it has ended."""
        if not (role := self.role):
            return ENDED
        return role.text(self._project.skills.texts(role.skills))

    def state(self) -> dict[str, Any]:
        return msgspec.to_builtins(self._now)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._now = msgspec.convert(state, _InForce)
        self._model.before, self._model.used = self._now.model, self._now.models_name
