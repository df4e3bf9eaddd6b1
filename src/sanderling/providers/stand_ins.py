"""Stand-ins: modules without code in the place of the parts of a library that nobody here uses, so that these are not loaded."""

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
    Stand-ins for the modules `names` and all below them, from `begin` on.

    What is imported from one is a class of `make`, which is given its name and its module's.
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
        """Have `import_it` load the library `package` without those modules; a version that needs them is loaded whole."""
        self.begin()
        try:
            import_it()
        # Whatever another version wants of what is not there.
        except Exception as problem:
            self.end()
            for name in [name for name in sys.modules.copy() if name.partition(".")[0] == package]:
                del sys.modules[name]
            import_it()  # what fails here, too, is its caller's to tell
            log.warning("the SDK cannot be loaded in part: all of it is", exc_info=problem)

    def begin(self) -> None:
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Have what is imported from now on be real."""
        if self.are_there:
            sys.meta_path.remove(self)
        # A copy, which is made in one step: another thread may import meanwhile.
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
