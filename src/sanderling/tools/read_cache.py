"""The files that the model has seen: it must not replace text that it does not know."""

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

from sanderling.sandbox.execution_environment import LOCAL_DISK, Disk
from sanderling.sandbox.inside.reading import Stamp

MAX_TEXT_CHARS = 16 << 20
MAX_FILES = 4096


class KnownFile(NamedTuple):
    """A file's text as the model knows it; only its digest if memory is short, only its stamp if it is very large."""

    text: str | None = None
    digest: bytes = b""
    stamp: Stamp | None = None

    def is_of(self, text: str, stamp: Stamp | None) -> bool:
        """True if `text` is what the model saw, apart from line endings and encoding."""
        if self.stamp:
            return self.stamp == stamp
        return self.text == text if self.text is not None else self.digest == _digest(text)


class ReadCache:
    """
    The files that the model has read or written; the least recently used are forgotten first.

    Paths are absolute; symbolic links to the same file share an entry. A file of which the model read one page counts as seen: it knows
    that there is more.
    """

    def __init__(
        self,
        max_text_chars: int = MAX_TEXT_CHARS,
        max_files: int = MAX_FILES,
        disk: Disk = LOCAL_DISK,
    ) -> None:
        self._disk = disk
        self._max_text_chars, self._max_files = max_text_chars, max_files
        self._known: OrderedDict[str, KnownFile] = OrderedDict()
        self._text_chars = 0

    def get(self, path: str) -> KnownFile | None:
        if (path := self._disk.real_path(path)) in self._known:
            self._known.move_to_end(path)
        return self._known.get(path)

    def note(self, path: str, text: str) -> None:
        self._keep(path, KnownFile(text, _digest(text)))

    def note_large(self, path: str, stamp: Stamp) -> None:
        """Record that the model knows of `path`, whose text is too large to compare."""
        self._keep(path, KnownFile(stamp=stamp))

    def forget(self, path: str) -> None:
        if known_file := self._known.pop(self._disk.real_path(path), None):
            self._text_chars -= len(known_file.text or "")

    def forget_all(self) -> None:
        self._known.clear()
        self._text_chars = 0

    def _keep(self, path: str, known_file: KnownFile) -> None:
        self.forget(path)
        self._known[self._disk.real_path(path)] = known_file
        self._text_chars += len(known_file.text or "")
        if self._text_chars > self._max_text_chars:
            self._keep_digests()
        while len(self._known) > self._max_files:
            self.forget(next(iter(self._known)))

    def _keep_digests(self) -> None:
        """Reduce the least recently used texts to digests until the rest fits."""
        for path, known_file in self._known.items():
            if self._text_chars <= self._max_text_chars:
                break
            self._text_chars -= len(known_file.text or "")
            self._known[path] = known_file._replace(text=None)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
