"""
Agents of others, which speak the Agent Client Protocol: how settings declare them, their process, and what that is served.

Whoever drives one has a connection, and puts these into it: `process.py` starts the program in the sandbox and ends it, `files.py`
and `terminals.py` do what it asks of an editor, `permits.py` answers what it asks the person. None of them knows the wire. They raise
what the errors of tools are, and what they are told by a program that nobody trusts they hold against the same rules, the same mode
and the same kernel as what a model of ours asks for.
"""
