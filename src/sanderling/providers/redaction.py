"""
Redaction of recordings: of secrets, and of the user's and the machine's names.

Secrets are recognized by their published formats, by their context (`Authorization: Bearer`, `password=`), and as values of environment
variables. Anything else, such as a password in prose, stays: read a recording before you publish it.
"""

import getpass
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sanderling.text import name_set

MIN_SECRET_CHARS = 8
STAND_IN = "REDACTED-"
COMMON_USERS = name_set(
    "root user admin nobody test dev demo app agent node python git build ci runner jenkins vscode docker debian ubuntu fedora"
)
"""User names that identify no user and are words of many commands."""

# A secret starts at the start of a word, or after an escaped character: "\nghp_…" in source code, "%3Dghp_…" in an address.
_START = r"(?:\b|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_PRIVATE_KEY = (
    r"(?P<secret>-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[\s\S]{0,16000}?-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|[\w\s+/=\\:,.-]*))"
)
_SHAPES = (
    r"sk-(?:ant-|proj-|svcacct-|or-v1-|lf-)?[\w-]{20,}",
    r"[rsp]k_(?:live|test)_\w{16,}",
    r"gh[oprsu]_\w{30,}",
    r"github_pat_\w{30,}",
    r"gl(?:pat|ptt|rt|dt|ft|cbt|soat|agent|imt)-[\w.-]{20,}",
    r"xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    r"AIza[\w-]{35}",
    r"ya29\.[\w-]{20,}",
    r"GOCSPX-[\w-]{20,}",
    r"1//0[\w-]{30,}",
    r"hf_[A-Za-z0-9]{30,}",
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-[\w-]{50,}",
    r"SG\.[\w-]{16,}\.[\w-]{30,}",
    r"SK[0-9a-f]{32}\b",
    r"key-[0-9a-f]{32}\b",
    r"[0-9a-f]{32}-us\d{1,2}\b",
    r"(?:do[opr]_v1_[0-9a-f]{64}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|whsec_[\w+/=]{24,}|dckr_pat_[\w-]{20,})",
    r"(?:gsk_|r8_|tskey-|glsa_|lin_api_|nvapi-|pplx-|xai-|ATATT3|ntn_|secret_|dapi|fo1_|hvs\.|PMAK-|rubygems_)[\w+/=-]{24,}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{50,}",
    r"eyJ[\w-]{8,4000}\.eyJ[\w-]{8,}\.[\w-]*",
    r"\d{8,10}:AA[\w-]{33}",
    r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38}",
    r"(?<=hooks\.slack\.com/services/)[\w/-]{20,}",
    r"(?<=discord\.com/api/webhooks/)[\w/-]{20,}",
)
_NAMES = r"(?:api[_-]?key|secret(?:[_-]?key)?|token|passw(?:or)?d|passphrase|credentials?|(?:private|access|account)[_-]?key)"
_VALUE = r"(?P<secret>[^\s\"'`$<>(){}&;|,]{%d,})" % MIN_SECRET_CHARS  # noqa: UP031 - braces all over
_PLACEHOLDER = r"(?:\$|[{<%])"  # `$TOKEN`, `{password}`: filled in by a program
# Each repetition before a secret has its own limit, or a long line would take quadratic time.
_PLACES = (
    rf"://(?!{_PLACEHOLDER}|[^\s/@:\"']*:{_PLACEHOLDER})(?P<secret>[^\s/@:\"']*:[^\s/@\"']+|[^\s/@:\"'$<>{{}}]{{16,}})(?=@)",
    r"(?i:\bauthorization[\"']?\s{0,9}[:=]\s{0,9}[\"']?(?:(?:bearer|basic|token|apikey)\s{1,9}|(?=\S*\d)))"
    + _VALUE,
    r"(?i:\b(?:bearer|basic)\s{1,9})(?=\S*[\d=])(?P<secret>[\w.~+/=-]{16,})",
    r"(?i:\bx-[\w-]{0,40}(?:key|token)[\"']?\s{0,9}[:=]\s{0,9}[\"']?)" + _VALUE,
    r"(?i:\bcookie[\"']?\s{0,9}:\s{0,9}[\"']?)(?P<secret>[\w.-]{1,80}=[^\n\"'$<>{}]{7,})",
    r"(?i:[?&](?:[\w-]{0,40}(?:token|key|secret|password|signature|credential)|sig|auth|code)=)(?P<secret>[^\s&\"'#$<>{}]{8,})",
    r"(?i:\b(?:curl|wget|http)\b[^\n|;&]{0,500}\s(?:-u|--user|--proxy-user)[ =]?[\"']?[^\s:\"']{1,80}:)(?P<secret>[^\s\"'$]{4,})",
    r"(?i:\bsshpass\s{1,9}-p\s?[\"']?|\bmysql(?:dump|admin)?\b[^\n|;&]{0,200}\s-p[\"']?)(?P<secret>[^\s\"'$-][^\s\"'$]{3,})",
    r"(?i:\blogin\s{1,9}\S{1,80}\s{1,9}password\s{1,9})(?P<secret>\S{4,})",  # .netrc
    r"(?i:--(?:[\w-]{0,40}(?:token|key|secret)|pass(?:word|phrase)?)[ =][\"']?)(?=\S*\d)" + _VALUE,
    # A value in small letters only is a word, such as "required", or a name. A placeholder is not a secret either.
    r"(?i:"
    + _NAMES
    + r"[\"']?\s{0,9}(?:=>|:=|[:=])\s{0,9}[\"'])(?![a-z_. -]+[\"'])"
    + _VALUE
    + r"(?=[\"'])",
    # Without quotes, as in settings files: a value without a digit, or with a dot or bracket as in code, is a name.
    r"(?i:"
    + _NAMES
    + r"\s{0,9}[:=]\s{0,9})(?=[^\s.,;&]*\d)(?=[^\s.,;&]*[a-z])"
    + r"(?P<secret>[^\s\"'`$<>(){}\[\]&;|,.]{8,})(?=[\s\"'`&;,]|$)",
    r"\b[A-Z][A-Z0-9_]{0,80}?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)=[\"']?" + _VALUE,
)
SECRETS = (
    re.compile(_PRIVATE_KEY),
    re.compile(f"{_START}(?P<secret>{'|'.join(_SHAPES)})"),
    *map(re.compile, _PLACES),
)
EMAIL = re.compile(
    r"(?:(?<![\w.+\\-])|(?<=\\[nrt]))(?!git@|noreply@|no-reply@)[\w.+-]{1,64}@(?!example\.|[\w.-]{0,80}\.(?:example|invalid|test|local)\b)"
    r"[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[A-Za-z]{2,}\b"
)
_SECRET_VARIABLE = re.compile(
    r"(?i)(?:key|token|secret|passw(?:or)?d|passphrase|credentials?)$|(?:^|[_-])(?:pass|pwd|pat|auth|authorization|cookie)$"
)


def hide_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Replace by "(hidden)" what looks like a secret, and the values of variables named like one."""
    for value in _secrets_in(environment):
        text = text.replace(value, "(hidden)")
    for pattern in SECRETS:
        text = pattern.sub(lambda found: found[0].replace(found["secret"], "(hidden)"), text)
    return text


def is_secret(name: str, value: str) -> bool:
    return (
        bool(_SECRET_VARIABLE.search(name))
        or hide_secrets(f"{name}: {value}", {}) != f"{name}: {value}"
    )


def _secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Return the values of variables that are named like secrets, except paths."""
    return [
        value
        for name, value in environment.items()
        if _SECRET_VARIABLE.search(name)
        and len(value) >= MIN_SECRET_CHARS
        and not value.startswith(("/", "~", "."))
    ]


class Redactor:
    """
    Replaces secrets, e-mail addresses, the user's name and paths of this machine by stand-ins.

    The same value always gets the same stand-in, even where nothing around it identifies it.
    """

    def __init__(
        self,
        project: str,
        *,
        environment: Mapping[str, str] = os.environ,
        home: str | None = None,
        user: str | None = None,
    ) -> None:
        self.stand_ins: dict[str, str] = {}
        self._of_environment = _secrets_in(environment)
        home = os.path.expanduser("~") if home is None else home  # noqa: PTH111 - a name as text
        names = {  # of one directory, which may be a link
            path: stand_in
            for place, stand_in in ((project, "."), (home, "~"))
            for path in (place, os.path.realpath(place))
            if path.strip("/")
        }
        self._places = [(_path_pattern(path), stand_in) for path, stand_in in names.items()]
        user = _user_name() if user is None else user
        self._user = None
        if user and user not in COMMON_USERS:
            self._user = re.compile(rf"(?:(?<!\w)|(?<=%2[Ff])){re.escape(user)}(?!\w)")

    def value(self, value: Any) -> Any:
        """Redact every string in a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value).items()
            return {self.text(key): self.value(item) for key, item in items}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in cast("Sequence[Any]", value)]
        return value

    def text(self, text: str) -> str:
        for secret in sorted((*self._of_environment, *self.stand_ins), key=len, reverse=True):
            if secret in text:
                text = _known_pattern(secret).sub(self._stand_in(secret), text)
        for pattern in SECRETS:
            text = pattern.sub(self._redacted, text)
        text = EMAIL.sub(lambda found: self._stand_in(found[0], "person-{}@example.com"), text)
        for pattern, stand_in in self._places:
            text = pattern.sub(stand_in, text)
        return self._user.sub("user", text) if self._user else text

    def _redacted(self, found: re.Match[str]) -> str:
        if STAND_IN in found["secret"]:
            return found[0]
        start, end = (place - found.start() for place in found.span("secret"))
        return found[0][:start] + self._stand_in(found["secret"]) + found[0][end:]

    def _stand_in(self, value: str, form: str = STAND_IN + "{}") -> str:
        return self.stand_ins.setdefault(value, form.format(len(self.stand_ins) + 1))


def _known_pattern(secret: str) -> re.Pattern[str]:
    """Return a pattern that finds `secret` again; a short one only as a whole word."""
    known = re.escape(secret)
    return re.compile(known if len(secret) >= MIN_SECRET_CHARS else rf"(?<!\w){known}(?!\w)")


def _path_pattern(path: str) -> re.Pattern[str]:
    """Return a pattern that matches `path` and paths below it, but not paths that merely begin or end like it."""
    return re.compile(rf"(?<![\w.~-]){re.escape(path.rstrip('/'))}(?![\w-]|\.\w)")


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return ""
