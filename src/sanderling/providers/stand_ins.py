"""Stand-ins: modules without code that replace unused parts of a library, so that those are not loaded."""

import logging
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

log = logging.getLogger(__name__)


def _empty_class(name: str, _module: str) -> type:
    return type(name, (), {})


class StandIns(MetaPathFinder, Loader):
    """
    Stand-ins for the modules `names` and all below them, from `begin` until `end`.

    An import from a stand-in yields a class made by `make` from its name and its module's.
    """

    def __init__(
        self, names: Sequence[str], make: Callable[[str, str], type] = _empty_class
    ) -> None:
        self._names = frozenset(names)
        self._beginnings = tuple(f"{name}." for name in names)
        self._make = make

    @property
    def are_there(self) -> bool:
        return self in sys.meta_path

    def load(self, package: str, import_it: Callable[[], object]) -> None:
        """Load the library `package` by `import_it` without those modules; a version that needs them is loaded whole."""
        self.begin()
        try:
            import_it()
        # Another version may need anything from the missing modules.
        except Exception as problem:
            self.end()
            for name in [name for name in sys.modules.copy() if name.partition(".")[0] == package]:
                del sys.modules[name]
            import_it()  # the caller handles a failure here
            log.warning("the SDK cannot be loaded in part; loading all of it", exc_info=problem)

    def begin(self) -> None:
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Let later imports load the real modules."""
        if self.are_there:
            sys.meta_path.remove(self)
        # Iterate over a copy, made in one step, because another thread may import meanwhile.
        for name, module in sys.modules.copy().items():
            if isinstance(module, _EmptyModule) and module.__loader__ is self:
                del sys.modules[name]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        is_unused = fullname in self._names or fullname.startswith(self._beginnings)
        return ModuleSpec(fullname, self, is_package=True) if is_unused else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _EmptyModule(spec.name, self._make)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _EmptyModule(ModuleType):
    def __init__(self, name: str, make: Callable[[str, str], type]) -> None:
        super().__init__(name)
        self._make = make

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = self._make(name, self.__name__)
        setattr(self, name, made)
        return made
