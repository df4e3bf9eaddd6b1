"""The words of the project and the person to the agent: instructions, command files, and which of them are trusted."""

from collections.abc import Mapping

import msgspec

from sanderling.config import Settings, config_dir
from sanderling.errors import ConfigError
from sanderling.project.instructions import Instructions
from sanderling.project.slash_commands import SlashCommands
from sanderling.project.trust.trust import CONFIG_FILE, MCP_FILE, OwnFiles, Trust
from sanderling.protocol.events import SlashCommand
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import TrustPage


class Project:
    """One session's project."""

    def __init__(self, settings: Settings, project: str) -> None:
        self.trust = Trust(settings.state_dir, project)
        own = OwnFiles(config_dir(), self.trust)
        self.instructions = Instructions(self.trust, own)
        self._slash_commands = SlashCommands(self.trust, own)
        self._told_untrusted: tuple[str, ...] = ()

    def expand(self, prompt: Prompt) -> Prompt:
        """
        The prompt with what its slash command stands for.

        Raises:
            ConfigError: there is no such command, or it cannot be used so.
        """
        text = self._slash_commands.expand(prompt.text)
        return prompt if text == prompt.text else msgspec.structs.replace(prompt, sent=text)

    def expand_or_keep(self, prompt: Prompt) -> Prompt:
        """Expand the prompt where it can be, for it cannot be refused any more."""
        try:
            return self.expand(prompt)
        except ConfigError:
            return prompt

    def commands(self) -> tuple[SlashCommand, ...]:
        return self._slash_commands.all()

    def news_of_untrusted(self) -> tuple[str, ...]:
        """The files that are ignored for want of trust, if they are others than before."""
        settings = self.trust.untrusted((CONFIG_FILE, MCP_FILE))
        files = (*self.instructions.ignored(), *settings, *self._slash_commands.ignored())
        ignored = tuple(dict.fromkeys(files))
        is_news, self._told_untrusted = ignored != self._told_untrusted, ignored
        return ignored if is_news else ()

    def shown(self) -> TrustPage:
        """All that could be trusted. Reads the project: call it from a thread."""
        return self.trust.shown()

    def trust_files(self, hashes: Mapping[str, str]) -> None:
        """
        Trust these files as they were shown, and no others.

        Raises:
            ConfigError: nothing of this project can be trusted, or that cannot be written down.
        """
        self.trust.trust(hashes)
