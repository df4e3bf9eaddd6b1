"""
Loading of the `mcp` SDK, without the half that servers are made with.

The rest takes a third of a second, in which a thread competes with the event loop. So it is loaded with the first server, in steps.
Between two steps it yields to anything urgent, such as a prompt on its way to the model.
"""

import gc
import importlib
import logging
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

from sanderling.providers.stand_ins import StandIns

_SERVERS = "mcp.server"
_STEPS = (
    "httpx2",
    "pydantic.networks",
    "mcp_types._types",
    "mcp_types._v2025_11_25",
    "mcp_types._v2026_07_28",
    "mcp.client.client",
)
SWITCH_S = 0.0005  # how long the thread keeps the loop waiting
_GIVES_WAY_S = 5.0  # at most, for each step
# These log what a server has sent, with a traceback for each invalid line. Our own logs report it.
_LOGGERS = ("mcp", "client")

_loading = threading.Lock()
_may_load = threading.Event()
_may_load.set()


@contextmanager
def giving_way() -> Generator[None]:
    """Finish the step that is being loaded, and load nothing more in this context."""
    _may_load.clear()
    try:
        yield
    finally:
        _may_load.set()


def load_sdk() -> None:
    """Import the SDK: in a thread, never on the event loop."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with _loading:
        if "mcp.client.client" in sys.modules:
            return
        stand_ins = StandIns([_SERVERS])
        try:
            stand_ins.load("mcp", _import_in_steps)
        finally:
            stand_ins.end()
        gc.freeze()


def _import_in_steps() -> None:
    for name in _STEPS:
        _may_load.wait(_GIVES_WAY_S)
        # Garbage collections during the import would block the event loop, and so would later ones, for objects that live as long as the
        # process. The short switch interval is for prompts that come meanwhile: the answer begins after 39 ms, otherwise after 84.
        gc.disable()
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            importlib.import_module(name)
        finally:
            sys.setswitchinterval(interval_s)
            gc.enable()
