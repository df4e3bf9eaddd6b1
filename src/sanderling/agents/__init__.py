"""
External agents that speak the Agent Client Protocol: their settings, their process, and the services that they may use.

`process.py` runs the program in the sandbox, `files.py` and `terminals.py` handle its requests to an editor, and `permits.py` decides on
its permission requests. None of them depends on the wire format; the owner of the connection does. They raise the errors of tools. They
treat agents as untrusted: the rules, the mode and the kernel apply as for Sanderling's own model.
"""
