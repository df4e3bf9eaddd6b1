"""
Loading the `mcp` SDK, without the half of it that servers are made with.

That leaves a third of a second, for which a thread contends with the loop. So it is loaded with the first server, in steps, and
between two of them it gives way to whoever is in a hurry: a prompt on its way to the model.
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
SWITCH_S = 0.0005  # for so long the thread keeps the loop waiting
_GIVES_WAY_S = 5.0  # at most, for each step
# Loggers that write down what a server has sent, with a traceback for each line that is none of the protocol's. A log of ours tells of it.
_LOGGERS = ("mcp", "client")

_loading = threading.Lock()
_may_load = threading.Event()
_may_load.set()


@contextmanager
def giving_way() -> Generator[None]:
    """Load nothing more in this context than what is being loaded already."""
    _may_load.clear()
    try:
        yield
    finally:
        _may_load.set()


def load_sdk() -> None:
    """Import the SDK: in a thread, never on the loop."""
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
        # Collecting garbage meanwhile would hold up the loop, and so would later collections, for objects that live as long as the
        # process. A prompt that comes meanwhile is to get its turn at once: it takes 39 ms to the answer then, 84 otherwise.
        gc.disable()
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            importlib.import_module(name)
        finally:
            sys.setswitchinterval(interval_s)
            gc.enable()
