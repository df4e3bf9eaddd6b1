"""
Loading the `anthropic` SDK, without what nobody here uses of it.

Whole, it is 3,300 modules and 0.8 s, nearly all of it classes for bodies and answers, which are written and read by
`request` and `reply`. So the packages in `UNUSED` are stood in for by modules without code: whatever is
imported from them is a class that takes the place of the real one in annotations, unions and tables. The first use of such a class
loads the real ones. A version of the SDK that cannot be loaded that way is loaded whole.
"""

import gc
import importlib
import logging
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

UNUSED = (
    "anthropic._error_classes",
    "anthropic.types",
    "anthropic.resources",
    "anthropic.lib._parse",
    "anthropic.lib.aws",
    "anthropic.lib.bedrock",
    "anthropic.lib.foundry",
    "anthropic.lib.google_cloud",
    "anthropic.lib.middleware",
    "anthropic.lib.streaming",
    "anthropic.lib.tools",
    "anthropic.lib.vertex",
)
_BELOW_UNUSED = tuple(f"{name}." for name in UNUSED)

log = logging.getLogger(__name__)


def load_sdk() -> None:
    """Import the SDK: in a thread, never on the loop."""
    with _loading:
        if "anthropic" not in sys.modules:
            _import_sdk()


def _import_sdk() -> None:
    # Collecting garbage meanwhile would hold up the loop, and so would later collections, for objects that live as long as the
    # process.
    gc.disable()
    try:
        sys.meta_path.insert(0, _finder)
        try:
            importlib.import_module("anthropic")
        # Whatever another version makes of classes that are not the real ones.
        except Exception as problem:
            _remove_empty_modules()
            for name in [name for name in sys.modules if name.startswith("anthropic.")]:
                del sys.modules[name]
            importlib.import_module("anthropic")  # what fails here, too, is its caller's to tell
            log.warning("the SDK cannot be loaded in part: all of it is", exc_info=problem)
    finally:
        gc.enable()
    gc.freeze()


def _remove_empty_modules() -> None:
    """Have what is imported from now on be real."""
    sys.meta_path.remove(_finder)
    for name in [name for name, module in sys.modules.items() if isinstance(module, _EmptyModule)]:
        del sys.modules[name]


class _Unloaded(type):
    """The type of classes that are loaded when they are used."""

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> "_Unloaded":
        if bases:
            raise TypeError(f"{name} needs real classes")
        return super().__new__(cls, name, bases, members)

    def _real(cls) -> Any:
        with _loading:
            if _finder in sys.meta_path:
                log.warning("%s of the SDK is used: its types are loaded", cls.__name__)
                _remove_empty_modules()
            return getattr(importlib.import_module(cls.__module__), cls.__name__)

    def __call__(cls, *args: Any, **named: Any) -> Any:
        return cls._real()(*args, **named)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._real())

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls._real())

    def __getitem__(cls, _: object) -> "_Unloaded":
        return cls


class _EmptyModule(ModuleType):
    """A module without code."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        unloaded = _Unloaded(name, (), {"__module__": self.__name__})
        setattr(self, name, unloaded)
        return unloaded


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname in UNUSED or fullname.startswith(_BELOW_UNUSED):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


_finder = _Finder()
_loading = threading.RLock()
