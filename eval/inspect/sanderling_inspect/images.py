"""
Images of containers, as far as they can be had without building them: files, variables and a working directory.

The system is that of this machine, whatever the image is made from.
"""

import posixpath
import shlex
from pathlib import Path
from typing import NamedTuple

from inspect_ai.util import ComposeConfig, ComposeService

UNBUILT = "The sandbox 'sanderling' builds no images, and {} has {!r}: only FROM, WORKDIR, COPY, ENV and LABEL need none."
DEFAULT_WORKDIR = "/app"


class Image(NamedTuple):
    """
    What a sample starts with.

    `copies` are pairs of a path on this machine and one in the sandbox, which names a directory if it ends with "/".
    """

    workdir: str
    env: dict[str, str]
    copies: tuple[tuple[str, str], ...]


def read_dockerfile(path: Path, context: Path) -> Image:
    """
    Return what a Dockerfile puts into its image.

    Raises:
        NotImplementedError: it needs to be built.
    """
    workdir, env, copies = "", dict[str, str](), list[tuple[str, str]]()
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        match instruction.upper(), _words(rest):
            case (("" | "FROM" | "LABEL" | "MAINTAINER"), _):
                pass
            case word, _ if word.startswith("#"):
                pass
            case "WORKDIR", [directory]:
                workdir = posixpath.join(workdir or "/", directory)
            case "ENV", [*pairs] if pairs and all("=" in pair for pair in pairs):
                env |= dict(pair.split("=", 1) for pair in pairs)
            case "COPY", [*sources, target] if sources and all(
                _is_in(context, each) for each in sources
            ):
                to = posixpath.join(workdir or "/", target)
                copies += [(str(context / source), to) for source in sources]
            case _:
                raise NotImplementedError(UNBUILT.format(path, line.strip()))
    return Image(workdir or DEFAULT_WORKDIR, env, tuple(copies))


def _words(text: str) -> list[str]:
    """Return the words of an instruction; none if a quote has no end, as in a comment. `#` begins a comment only at the start of a line."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _is_in(context: Path, source: str) -> bool:
    return not source.startswith("--") and (context / source).resolve().is_relative_to(
        context.resolve()
    )


def image_of(service: ComposeService) -> Image:
    """
    Return what the image of a service has.

    Raises:
        NotImplementedError: it needs to be built, or comes from a registry.
    """
    build = service.build
    context = Path((build if isinstance(build, str) else build and build.context) or ".")
    image = Image(DEFAULT_WORKDIR, {}, ())
    if build:
        name = None if isinstance(build, str) else build.dockerfile
        image = read_dockerfile(context / (name or "Dockerfile"), context)
    elif service.image:
        raise NotImplementedError(
            f"The sandbox 'sanderling' has no images, and the service needs {service.image!r}."
        )
    given = service.environment or {}
    pairs = given.items() if isinstance(given, dict) else (each.split("=", 1) for each in given)
    env = {name: value for name, value in map(tuple, pairs) if value is not None}
    return image._replace(workdir=service.working_dir or image.workdir, env=image.env | env)


def only_service(config: ComposeConfig) -> ComposeService:
    """
    Return the only service.

    Raises:
        NotImplementedError: there are several.
    """
    if len(config.services) != 1:
        names = ", ".join(config.services)
        raise NotImplementedError(
            f"The sandbox 'sanderling' is one container, not several: {names}."
        )
    (service,) = config.services.values()
    return service
