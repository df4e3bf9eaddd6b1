"""The source of `web_search`, which is offered only if the user has configured an endpoint."""

from collections.abc import Sequence

from sanderling.config import Settings
from sanderling.tools.base import Tool


class SearchTools:
    """The tool that searches the web."""

    def __init__(self, tool: Tool) -> None:
        self._tools = (tool,)

    async def tools(self) -> Sequence[Tool]:
        return self._tools


def search_sources(settings: Settings) -> tuple[SearchTools, ...]:
    """
    Return the source of `web_search`, if an endpoint is configured.

    Raises:
        ConfigError: the table `[web_search]` is incomplete or invalid.
    """
    if settings.web_search_provider == "off":
        return ()
    from sanderling.providers.web_search import load_search  # only needed if configured
    from sanderling.tools.web_search import make_web_search

    endpoint = load_search(settings)
    return (SearchTools(make_web_search(endpoint)),) if endpoint else ()
