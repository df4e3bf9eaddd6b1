"""Loading the `mcp` SDK: 600 modules, half a second and more. So it is loaded with the first server, in a thread."""

import gc
import importlib
import logging
import sys
import threading

_MODULES = ("mcp.client.client", "mcp_types")
# They write down what a server has sent, with a traceback for each line that is none of the protocol's. A log of ours tells of it.
_LOGGERS = ("mcp", "client")

_loading = threading.Lock()


def load_sdk() -> None:
    """Import the SDK: in a thread, never on the loop."""
    with _loading:
        if all(name in sys.modules for name in _MODULES):
            return
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        # Collecting garbage meanwhile would hold up the loop, and so would later collections, for objects that live as long as the
        # process.
        gc.disable()
        try:
            for name in _MODULES:
                importlib.import_module(name)
        finally:
            gc.enable()
        gc.freeze()
