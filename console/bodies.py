"""Reads bodies of requests. They are JSON, whatever their content type is. Refusals have RabbitMQ's texts.

Source: management page 1.3, 10, 20.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..engine import octets_of_base64
from ..settings.json_values import DIGITS_MAX, value_of_json
from .http_messages import Request, bad_request

#: Maximum nesting of arrays and objects; JSON with more is refused.
DEPTH_MAX = 100
#: Maximum octets of a name.
OCTETS_MAX = 255
#: Maximum characters of a list in one line; longer ones are broken into lines, as Erlang prints them.
_LINE = 80
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf'({_TOKEN}/{_TOKEN})(?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|"(?:[^"\\]|\\.)*"))*')
_ENCODED_TWICE = "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"


def parsed(body: bytes, fault: str = "not_json", *, is_strict: bool = False) -> Any:
    """The value of a JSON text. `is_strict`: refuse objects with duplicate keys.

    Raises: Refusal with `fault` as the reason.
    """
    try:
        text = body.decode()
        value = value_of_json(text, without_duplicates if is_strict else None)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # raises for lone surrogates, which are not text
    except (ValueError, RecursionError):
        raise bad_request(fault) from None
    if body.count(b"[") + body.count(b"{") > DEPTH_MAX and is_deep(value, DEPTH_MAX):
        raise bad_request(fault)
    return value


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these pairs. Raises: ValueError: a key is duplicate."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def is_deep(value: object, levels: int) -> bool:
    """Whether arrays and objects are nested more than `levels` deep."""
    level: list[Any] = [value]
    for _ in range(levels):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


def json_object(request: Request) -> dict[str, Any]:
    """The object in a body. An empty body, null and `undefined` are an empty object. Raises: Refusal."""
    body = request.body.removeprefix(BOM_UTF8)  # which some editors write
    if body in (b"", b"null", b"undefined"):
        return {}
    value = parsed(body)
    if isinstance(value, str):
        raise bad_request(_ENCODED_TWICE)
    if not isinstance(value, dict):
        raise bad_request("not_json")
    return value


def require(given: Mapping[str, Any], *keys: str) -> list[Any]:
    """The values of these keys. Raises: Refusal, which names all missing keys."""
    missing = [f"{{key_missing,{key}}}" for key in keys if key not in given]
    if missing:
        line = f"[{','.join(missing)}]"
        raise bad_request(line if len(line) <= _LINE else "[" + ",\n ".join(missing) + "]")
    return [given[key] for key in keys]


def boolean(value: object) -> bool:
    """A boolean, or "true" or "false". Raises: Refusal."""
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise bad_request(["not_boolean", value])


def integer(value: object) -> int:
    """An integer, or a text of at most DIGITS_MAX digits and perhaps a sign. Raises: Refusal."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        digits = value[1:] if value.startswith(("-", "+")) else value
        if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX:
            return int(value)
    raise bad_request(["not_integer", value])


def text(value: object, name: str) -> str:
    """Check that a value is a text. `name`: of the value, for the refusal. Raises: Refusal."""
    if not isinstance(value, str):
        raise bad_request(["not_string", name])
    return value


def check_base64(value: str) -> None:
    """Check that a text is base64. Raises: Refusal."""
    try:
        octets_of_base64(value)
    except ValueError:
        raise bad_request(["not_base64", value]) from None


def check_size(what: str, name: str) -> None:
    """Check that a name is not too long for AMQP. `what`: the kind of object. Raises: Refusal."""
    size = len(name.encode())
    if size > OCTETS_MAX:
        raise bad_request(f"{what} should be less than 255 bytes, actually was {size}\n")


def arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The table `arguments` in a body. Null and an empty list are an empty table. Raises: Refusal."""
    value = given.get("arguments")
    if value is None or value == []:
        return {}
    if not isinstance(value, dict):
        raise bad_request("arguments: expected an object")
    if any_in(value, lambda one: one is None):
        raise bad_request("null_not_allowed")
    return value


def any_in(value: object, predicate: Callable[[object], bool]) -> bool:
    """Whether the predicate is true for a value, or for a value inside it."""
    if predicate(value):
        return True
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    return any(any_in(one, predicate) for one in inner)


def content_type(request: Request) -> str | None:
    """The media type in lower case; None: there is no header; "": it is malformed."""
    header = request.headers.get("content-type")
    if header is None:
        return None
    found = _MEDIA_TYPE.fullmatch(header.strip())
    return "" if found is None else found[1].lower()
