"""
What Linux and macOS do differently, behind one interface: each module has functions, and chooses their implementation by `sys.platform`.

Everything here works with the standard library alone, because the sandbox's own processes import it. `libproc` has the structures of macOS,
which are parsed on any system.
"""
