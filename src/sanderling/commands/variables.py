"""Variables of the environment: which of them can change what programs do."""

import re

from sanderling.text import name_set


def is_plain_variable(name: str) -> bool:
    """True if nothing but the line itself looks at this variable: those that mean something are written otherwise."""
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
    """True if a variable of this value changes at most how programs print, or which of their own settings they use."""
    return bool(re.fullmatch(_HARMLESS_VARIABLE, name) and re.fullmatch(_HARMLESS_VALUE, value))


def is_decisive(name: str, value: str | None) -> bool:
    """True if a variable that is exported, or unset (None), can change what runs: so can any that is not known to be harmless."""
    return not (is_plain_variable(name) or is_harmless_setting(name, value or ""))
