"""Environment variables: which of them can change the behaviour of programs."""

import re

from sanderling.text import name_set


def is_plain_variable(name: str) -> bool:
    """True if only the command line itself uses this variable: names in this form have no meaning to programs."""
    return re.fullmatch(r"[a-z][a-z0-9]{0,30}", name) is not None and name not in _SPECIAL_VARIABLES


_SPECIAL_VARIABLES = name_set(
    "path cdpath fpath manpath mailpath histchars prompt psvar status argv"
)

_HARMLESS_VARIABLE = (
    r"LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES|CI|PYTHONUNBUFFERED"
    r"|PYTHONDONTWRITEBYTECODE|RUST_BACKTRACE|CARGO_TERM_COLOR|(NODE|RAILS|RACK|APP|FLASK)_ENV|DEBUG|VERBOSE|PORT|LOG_LEVEL"
)

_HARMLESS_VALUE = r"(?a)[\w.,@+-]{0,64}"


def is_harmless_setting(name: str, value: str) -> bool:
    """True if this value only affects how programs print, or a program's own mode."""
    return bool(re.fullmatch(_HARMLESS_VARIABLE, name) and re.fullmatch(_HARMLESS_VALUE, value))


def is_decisive(name: str, value: str | None) -> bool:
    """True if exporting the variable, or unsetting it (None), can change what runs; this includes unknown variables."""
    return not (is_plain_variable(name) or is_harmless_setting(name, value or ""))
