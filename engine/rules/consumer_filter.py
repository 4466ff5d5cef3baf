"""Which messages a consumer gets: its arguments x-filter and x-selector; and which a queue or a divert takes.

Source: queues page A.2, B.2.
"""

from collections.abc import Mapping
from functools import lru_cache

from ...expressions.language import AMPS, JMS, Dialect, Expression, ExpressionError, Value, compiled
from ..errors import InvalidArgument
from ..messages.field_table import FieldTable
from .arguments import CONSUMER_FILTERS, Reason

#: The argument, and the dialect of its text.
_DIALECTS: dict[str, Dialect] = dict(zip(CONSUMER_FILTERS, (AMPS, JMS)))
#: Filters that are kept ready for use, for the next consumer that has one of them.
KEPT = 256


def filter_of(arguments: FieldTable, facts: Mapping[str, Value], *, name: str, vhost: str) -> Expression | None:
    """What the arguments of a consumer ask for; None: all messages. `facts`: of its client (see `compiled`).

    Raises: InvalidArgument: no text, no expression, or both arguments.
    """
    given = [key for key in _DIALECTS if key in arguments]
    if not given:
        return None
    key = given[0]
    field = arguments[key]
    if len(given) > 1:
        reason = Reason("text", f"only one of {' and '.join(CONSUMER_FILTERS)} may be given")
    elif field.tag != "S" or not isinstance(field.value, bytes):
        reason = Reason("unacceptable", field.type_name)
    else:
        try:
            return _compiled(field.value.decode(), _DIALECTS[key], tuple(sorted(facts.items())))
        except UnicodeDecodeError as error:
            reason = Reason("text", f"octet {error.start + 1}: this is no UTF-8")
        except ExpressionError as error:
            reason = Reason("text", str(error))
    raise InvalidArgument(key=key, name=name, vhost=vhost, reason=reason)


def selector(text: str) -> Expression:
    """What a queue or a divert takes. Raises: ExpressionError."""
    return _compiled(text, JMS, ())


@lru_cache(KEPT)
def _compiled(text: str, dialect: Dialect, facts: tuple[tuple[str, Value], ...]) -> Expression:
    return compiled(text, dialect, dict(facts))
