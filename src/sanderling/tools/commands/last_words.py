"""
The reason for a program's failure, in its output.

The last line is seldom the reason: npm ends with the path of a log file, which is hidden with HOME, Node.js with its version, Docker with
a hint at its help.
"""

import re
from collections.abc import Sequence

TAIL = 80
MAX_CAUSES = 3
NEAR_END = 12

_NPM = re.compile(r"npm (?:error|ERR!) ?(.*)")
_NPM_ASIDE = re.compile(
    r"(?:code|syscall|errno|path|dest|command|cmd|node|npm|engine|stack) |A complete log|(?:network|\d+|notarget)$"
    r"|network (?:This is a problem|In most cases|If you are)|\d+ (?:In most cases|Note that you can|tarball, folder|or one of)"
    r"|In most cases|Note that you can|or one of|This is probably|It was specified"
)
_NPM_REASON = re.compile(r"could not be found|is not in this registry|No matching version|reason:")
_NPM_TAG = re.compile(r"(?:network|notarget|[0-9]{3})\s+(?:[0-9]{3} )?")
_ERROR = re.compile(r"(?:error|Error): *|\s*\u00d7 *")
_CAUSE = re.compile(r"\s+(?:(?:cause|Caused by): *|[├╰]\S* +)(.*)")
_EXCEPTION = re.compile(r"(?:Uncaught )?(?:\w+\.)*\w*(?:Error|Exception)(?: \[\w+\])?: ")
_FRAME_END = re.compile(r"\s*[\u2570\u2514][\u2500\u2501]+[\u256f\u2518]$")
_FRAMED = re.compile(r"\s*\u2502\s*(.*?)\s*\u2502$")
_GROUP = re.compile(r"^ *(?:\| )+")
_ASIDE = re.compile(
    r"\s|Node\.js v\d|npm notice|Run '.*help|See '.*help|Try '.*help|For more information|[Uu]sage:"
    r"|\[refused: |[\[\](){}^~*=_+|.,;: -]*$"
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):")


def reason_in(text: str) -> str:
    """Return the reason in the output `text` of a program that has failed, as one line; empty if it has no output."""
    lines = [_GROUP.sub("", line).rstrip() for line in text.splitlines()[-TAIL:]]
    found = _of_npm(lines) or _of_box(lines) or _of_python(lines) or _of_causes(lines)
    if found:
        return found
    said = [line for line in lines if line.strip()]
    if raised := [line for line in said[-NEAR_END:] if _EXCEPTION.match(line)]:
        return raised[-1]
    plain = next((line for line in reversed(said) if not _ASIDE.match(line)), "")
    return plain or (said[-1].strip() if said else "")


def _of_npm(lines: Sequence[str]) -> str:
    """Return npm's reason if npm has failed, not a program that it has started and that wrote after it."""
    ends = [line for line in lines if line and not line.startswith("npm notice")]
    if not (ends and _NPM.match(ends[-1])):
        return ""
    said = [found[1] for line in lines if (found := _NPM.match(line))]
    begins = max((at for at, each in enumerate(said) if each.startswith("code ")), default=0)
    reasons = [each for each in said[begins:] if each.strip() and not _NPM_ASIDE.match(each)]
    best = next((each for each in reasons if _NPM_REASON.search(each)), "")
    reason = best or (reasons[0] if reasons else "")
    return f"npm: {_NPM_TAG.sub('', reason, count=1).strip()}" if reason else ""


def _of_box(lines: Sequence[str]) -> str:
    """Return the text in the frame that ends the output, as programs with rich in Python draw one around their errors."""
    said = [line for line in lines if line.strip()]
    if not (said and _FRAME_END.match(said[-1])):
        return ""
    inside = list[str]()
    for line in reversed(said[:-1]):
        if not (found := _FRAMED.match(line)):
            break
        inside.insert(0, found[1])
    return " ".join(filter(None, inside))


def _of_python(lines: Sequence[str]) -> str:
    """Return the exception of the last traceback if it ends the output, with the lines of its message."""
    begins = [at for at, line in enumerate(lines) if _TRACEBACK.search(line)]
    if not begins:
        return ""
    after = [line for line in lines[begins[-1] + 1 :] if line.strip("-+ ")]
    at = next((at for at, line in enumerate(after) if not line[0].isspace()), None)
    return "" if at is None else " ".join(line.strip() for line in after[at:])


def _of_causes(lines: Sequence[str]) -> str:
    """Return the error that ends the output with its first and its last cause, as programs in Rust report it."""
    begins = [at for at, line in enumerate(lines) if _ERROR.match(line)]
    rest = [line for line in lines[begins[-1] + 1 :] if line.strip()] if begins else []
    if not all(line[0].isspace() for line in rest):
        return ""
    parts = [_ERROR.sub("", lines[begins[-1]]).rstrip(":")] if begins else [""]
    for line in rest:
        if found := _CAUSE.match(line):
            parts.append(found[1])
        else:
            parts[-1] += f" {line.strip()}"
    error, *causes = parts
    shown = causes if len(causes) < MAX_CAUSES else [causes[0], causes[-1]]
    return ": ".join((error, *shown)) if causes else ""
