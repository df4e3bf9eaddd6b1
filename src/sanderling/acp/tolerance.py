"""
Tolerance of what is not understood: it is as if it had not been said, where the protocol lets it be missing.

The official schema says field by field where that is so. A program of tomorrow, or a careless one, is understood as far as it goes; what
is to be taken exactly (`Wire.exact`) is never half taken.
"""

from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from sanderling.acp.base import Wire

T = TypeVar("T")


def understood(value: Any, kind: type[T]) -> T:
    """
    Read `value` as a `kind`, without what may be missing and is something else.

    Raises:
        msgspec.ValidationError: there is more wrong with it.
    """
    return msgspec.convert(_fit(value, kind), kind)


def _fit(value: Any, kind: Any) -> Any:
    """`value` without what keeps it from being a `kind`, as far as that may be missing."""
    for each in (kind, *get_args(kind)):
        if isinstance(value, list) and get_origin(each) is list:
            items = cast("list[Any]", value)
            return [_fit(item, *get_args(each)) for item in items]
        if isinstance(value, dict) and get_origin(each) is None and issubclass(each, Wire):
            return _fit_message(cast("dict[str, Any]", value), each)
    return cast("Any", value)


def _fit_message(message: dict[str, Any], kind: type[Wire]) -> dict[str, Any]:
    fit = dict(message)
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name not in fit:
            continue
        value = fit[name] = _fit(fit[name], field.type)
        if field.name in kind.exact or _is_a(value, field.type):
            continue
        if isinstance(value, list) and _is_a([], field.type):
            items = cast("list[Any]", value)
            fit[name] = [item for item in items if _is_a([item], field.type)]
        elif not field.required:
            del fit[name]
    return fit


def _is_a(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
