"""
Loading of the `anthropic` SDK, without its unused parts.

The whole SDK takes 3,300 modules and 0.8 s, nearly all of it classes for requests and responses, which `request` and `reply` handle
instead. So stand-ins replace the packages in `UNUSED`. An import from one yields a class that serves in annotations, unions and tables;
any other use of it loads the real packages. A version of the SDK that cannot be loaded this way is loaded whole.
"""

import gc
import importlib
import logging
import sys
import threading
from functools import partial
from typing import Any

from sanderling.providers.stand_ins import StandIns

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

log = logging.getLogger(__name__)


def load_sdk() -> None:
    """Import the SDK: in a thread, never on the event loop."""
    with _loading:
        if "anthropic" in sys.modules:
            return
        # Garbage collections during the import would block the event loop, and so would later ones, for objects that live as long as the
        # process.
        gc.disable()
        try:
            _stand_ins.load("anthropic", partial(importlib.import_module, "anthropic"))
        finally:
            gc.freeze()
            gc.enable()


class _Unloaded(type):
    """The type of classes that load the real ones when used."""

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> "_Unloaded":
        if bases:
            raise TypeError(f"{name} needs real classes")
        return super().__new__(cls, name, bases, members)

    def _real(cls) -> Any:
        with _loading:
            if _stand_ins.are_there:
                log.warning("%s of the SDK is used; loading its types", cls.__name__)
                _stand_ins.end()
            return getattr(importlib.import_module(cls.__module__), cls.__name__)

    def __call__(cls, *args: Any, **named: Any) -> Any:
        return cls._real()(*args, **named)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._real())

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls._real())

    def __getitem__(cls, _: object) -> "_Unloaded":
        return cls


_stand_ins = StandIns(UNUSED, lambda name, module: _Unloaded(name, (), {"__module__": module}))
_loading = threading.RLock()
