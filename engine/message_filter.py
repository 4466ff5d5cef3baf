"""Filters by which operators select messages: content, properties, death. Source: docs/expressions.md; management page
16.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .errors import BadRequest
from .messages.content import ContentError, decode_properties
from .messages.dead_letter import origin_of
from .messages.message import Message

Takes = Callable[[Message], bool]


def takes_all(message: Message) -> bool:
    """The filter that every message passes."""
    return True


def chosen_by(
    *,
    filter_text: str | None = None,
    headers: Mapping[str, Any] | None = None,
    routing_key: str | None = None,
    text: str | None = None,
    cause: str | None = None,
    origin: str | None = None,
    message_id: str | None = None,
    correlation_id: str | None = None,
) -> Takes:
    """A filter for messages that meet all given conditions.

    `filter_text`: a content filter. `headers`: name -> value, compared as text. `routing_key`: that of the publish.
    `text`: part of the body. `cause`, `origin`: reason and queue of the last death. `message_id`, `correlation_id`:
    properties. Raises: BadRequest.
    """
    tests: list[Takes] = []
    if routing_key is not None:
        tests.append(lambda message: message.envelope.routing_key == routing_key)
    if cause is not None or origin is not None:
        tests.append(lambda message: _died(message, cause, origin))
    for name, wanted in (("message_id", message_id), ("correlation_id", correlation_id)):
        if wanted is not None:
            tests.append(partial(_has_property, name, wanted.encode(errors="replace")))
    if text:
        octets = text.encode()
        tests.append(lambda message: octets in message.body)
    if headers or filter_text is not None:
        tests += _of_contents(headers or {}, filter_text)
    if not tests:
        return takes_all
    return tests[0] if len(tests) == 1 else lambda message: all(test(message) for test in tests)


def _has_property(name: str, wanted: bytes, message: Message) -> bool:
    header = message.header
    if wanted not in header:  # as in most messages
        return False
    try:
        return decode_properties(header).get(name) == wanted
    except ContentError:
        return False


def _died(message: Message, cause: str | None, origin: str | None) -> bool:
    found = origin_of(message)
    return found is not None and cause in (None, found.reason) and origin in (None, found.queue)


def _of_contents(headers: Mapping[str, Any], filter_text: str | None) -> list[Takes]:
    from ..expressions.language import AMPS, ExpressionError, compiled  # loaded for few requests
    from .delivery.filters import MessageSubject

    tests: list[Takes] = []
    if headers:
        wanted = {name: _shown(value) for name, value in headers.items()}

        def has_headers(message: Message) -> bool:
            found = MessageSubject(message).headers()
            return all(name in found and _shown(found[name]) == value for name, value in wanted.items())

        tests.append(has_headers)
    if filter_text is not None:
        try:
            expression = compiled(filter_text, AMPS)
        except ExpressionError as error:
            raise BadRequest(f"filter: {error}") from None
        tests.append(lambda message: expression.matches(MessageSubject(message)))
    return tests


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
