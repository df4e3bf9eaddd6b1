"""`sanderling.editor PLUGIN_PATH`: the host process, started by lua/sanderling/host/init.lua and not by users."""

import faulthandler
import gc
import importlib
import logging
import os
import sys

from sanderling import forget_empty_home
from sanderling.editor.bridge import run_host

EXIT_LOST = 1


def main() -> None:
    faulthandler.enable()  # a native crash leaves its stack on stderr, which the shim keeps
    forget_empty_home()
    # A missing package ends the process here, as a broken environment; in a handler, pynvim would print a traceback.
    gc.disable()  # all modules live as long as the process
    importlib.import_module("sanderling.editor.host")
    gc.freeze()
    gc.enable()
    exit_code = EXIT_LOST
    try:
        run_host(sys.argv[1])
        exit_code = 0
    except BaseException:
        logging.getLogger("sanderling").exception("the host ends")
    finally:
        # In any case: a thread that still imports must not keep the process alive.
        os._exit(exit_code)


if __name__ == "__main__":
    main()
