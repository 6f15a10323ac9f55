"""Plain YAML scalars by the core schema of YAML 1.2 (chapter 10.3.2), and no other rule.

`no`, `on`, `12:30` and `2024-01-01` are strings, `012` is twelve, `1e-5` is a number.
"""

from __future__ import annotations

import re
from typing import Any

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float("inf") for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **{"-" + word: float("-inf") for word in (".inf", ".Inf", ".INF")},
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

#: a longer number is no number that any dtype holds, and costs time to read
MAX_DIGITS = 400

TAG_PREFIX = "tag:yaml.org,2002:"
#: tag -> the type that a scalar so tagged must have
SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    TAG_PREFIX + "str": (str,),
    TAG_PREFIX + "int": (int,),
    TAG_PREFIX + "float": (int, float),
    TAG_PREFIX + "bool": (bool,),
    TAG_PREFIX + "null": (type(None),),
}


def resolve_plain(text: str) -> Any:  # noqa: ANN401 -- a scalar has any of five types
    """Return the value of an unquoted scalar; ValueError for a number of absurd length."""
    if text in _WORDS:
        return _WORDS[text]
    if not (text[0].isdigit() or text[0] in "+-."):
        return text
    for pattern, read in _NUMBERS:
        if pattern.fullmatch(text):
            if len(text) > MAX_DIGITS:
                message = f"a number of {len(text)} characters is too long"
                raise ValueError(message)
            return read(text)
    return text


_NUMBERS = (
    (_DECIMAL, int),
    (_OCTAL, lambda text: int(text, 0)),
    (_HEXADECIMAL, lambda text: int(text, 0)),
    (_FLOAT, float),
)


def resolve_tagged(text: str, tag: str) -> Any:  # noqa: ANN401
    """Return the value of a scalar with one of `SCALAR_TAGS`; ValueError where it is no such."""
    if tag == TAG_PREFIX + "str":
        return text
    value = resolve_plain(text)
    wanted = SCALAR_TAGS[tag]
    if type(value) not in wanted:
        message = f"{text!r} is no {tag.removeprefix(TAG_PREFIX)}"
        raise ValueError(message)
    return float(text) if float in wanted else value
