"""
Seatbelt, the sandbox of macOS: the compiler from a policy to a profile, and the check that this machine enforces it.

`profile.py` composes a profile from `files.py`, `network.py` and the constants of `system.py`. `expressions.py` writes SBPL, the language of
profiles, and `spelling.py` knows how macOS spells a path. doc/seatbelt.md has the facts and their sources.

Sources disagree on which of two contradicting rules decides: the last one, the more specific one, or the one that denies. So no profile
contains two that contradict each other, but for denials of single operations, which follow what they restrict and are never lifted again.
Exceptions are part of the rule that they belong to (`require-not`).
"""
