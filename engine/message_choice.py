"""Which messages an operator means: by what they say, where they were, and what they died of.

The language of filters is loaded when somebody writes one. Source: docs/expressions.md; management page 16.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .errors import BadRequest
from .messages.message import Message
from .messages.origins import origin_of

Takes = Callable[[Message], bool]


def takes_all(message: Message) -> bool:
    """No choice is made."""
    return True


def chosen_by(
    *,
    filter_text: str | None = None,
    headers: Mapping[str, Any] | None = None,
    routing_key: str | None = None,
    text: str | None = None,
    cause: str | None = None,
    origin: str | None = None,
) -> Takes:
    """What takes a message that meets all of these, as far as they are given.

    `filter_text`: a content filter. `headers`: name -> value, compared as text. `routing_key`: it was published with.
    `text`: somewhere in its body. `cause`, `origin`: the reason of its last death, and the queue. Raises: BadRequest.
    """
    tests: list[Takes] = []
    if routing_key is not None:
        tests.append(lambda message: message.envelope.routing_key == routing_key)
    if cause is not None or origin is not None:
        tests.append(lambda message: _died(message, cause, origin))
    if text:
        octets = text.encode()
        tests.append(lambda message: octets in message.body)
    if headers or filter_text is not None:
        tests += _of_contents(headers or {}, filter_text)
    if not tests:
        return takes_all
    return tests[0] if len(tests) == 1 else lambda message: all(test(message) for test in tests)


def _died(message: Message, cause: str | None, origin: str | None) -> bool:
    found = origin_of(message)
    return found is not None and cause in (None, found.reason) and origin in (None, found.queue)


def _of_contents(headers: Mapping[str, Any], filter_text: str | None) -> list[Takes]:
    from ..expressions.language import AMPS, ExpressionError, compiled
    from .delivery.filters import MessageSubject

    tests: list[Takes] = []
    if headers:
        wanted = {name: _shown(value) for name, value in headers.items()}

        def has_headers(message: Message) -> bool:
            there = MessageSubject(message).headers()
            return all(name in there and _shown(there[name]) == value for name, value in wanted.items())

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
