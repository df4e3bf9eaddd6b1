"""`python -P -m sanderling.editor PLUGIN_PATH`: the host process. Neovim starts it; a person has no use for it."""

import faulthandler
import os
import sys

from sanderling.editor.bridge import run_host


def main() -> None:
    faulthandler.enable()  # a native crash leaves its stack on stderr, which the shim keeps
    run_host(sys.argv[1])
    os._exit(0)  # a thread that still imports the SDK must not keep the process


if __name__ == "__main__":
    main()
