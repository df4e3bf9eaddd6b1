"""The files as the model has seen them, so that nothing is replaced that it does not know."""

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

from sanderling.sandbox.ground import LOCAL_DISK, Disk
from sanderling.sandbox.inside.reading import Stamp

MAX_TEXT_CHARS = 16 << 20
MAX_FILES = 4096


class Sight(NamedTuple):
    """A file's text as the model knows it, or where that is too much to keep its digest, or of a very large file its stamp."""

    text: str | None = None
    digest: bytes = b""
    stamp: Stamp | None = None

    def is_of(self, text: str, stamp: Stamp | None) -> bool:
        """True if `text` is what was seen, line endings and encoding aside."""
        if self.stamp:
            return self.stamp == stamp
        return self.text == text if self.text is not None else self.digest == _digest(text)


class Seen:
    """
    The files that the model has read or written, the least recently used forgotten first.

    Paths are absolute; those that lead to one file by symbolic links mean the same.

    A file of which the model has read a page counts as seen: it knows that there is more.
    """

    def __init__(
        self,
        max_text_chars: int = MAX_TEXT_CHARS,
        max_files: int = MAX_FILES,
        disk: Disk = LOCAL_DISK,
    ) -> None:
        self._disk = disk
        self._max_text_chars, self._max_files = max_text_chars, max_files
        self._sights: OrderedDict[str, Sight] = OrderedDict()
        self._text_chars = 0

    def get(self, path: str) -> Sight | None:
        if (path := self._disk.real_path(path)) in self._sights:
            self._sights.move_to_end(path)
        return self._sights.get(path)

    def note(self, path: str, text: str) -> None:
        """The model knows that `path` holds `text`."""
        self._keep(path, Sight(text, _digest(text)))

    def note_large(self, path: str, stamp: Stamp) -> None:
        """The model knows of `path`, whose text is too large to be looked at."""
        self._keep(path, Sight(stamp=stamp))

    def forget(self, path: str) -> None:
        if sight := self._sights.pop(self._disk.real_path(path), None):
            self._text_chars -= len(sight.text or "")

    def forget_all(self) -> None:
        self._sights.clear()
        self._text_chars = 0

    def _keep(self, path: str, sight: Sight) -> None:
        self.forget(path)
        self._sights[self._disk.real_path(path)] = sight
        self._text_chars += len(sight.text or "")
        if self._text_chars > self._max_text_chars:
            self._keep_digests()
        while len(self._sights) > self._max_files:
            self.forget(next(iter(self._sights)))

    def _keep_digests(self) -> None:
        """Keep only digests of the least recently used texts, until the others are few enough."""
        for path, sight in self._sights.items():
            if self._text_chars <= self._max_text_chars:
                break
            self._text_chars -= len(sight.text or "")
            self._sights[path] = sight._replace(text=None)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
