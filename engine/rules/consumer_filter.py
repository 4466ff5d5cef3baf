"""The filters of consumers (arguments x-filter and x-selector), queues and diverts.

Source: queues page A.2, B.2.
"""

from collections.abc import Mapping
from functools import lru_cache

from ...expressions.language import AMPS, JMS, Dialect, Expression, ExpressionError, Value, compiled
from ..errors import InvalidArgument
from ..messages.field_table import FieldTable
from .arguments import CONSUMER_FILTERS, Reason

#: The dialect of each argument.
_DIALECTS: dict[str, Dialect] = dict(zip(CONSUMER_FILTERS, (AMPS, JMS)))
#: Maximum number of compiled filters in the cache.
CACHED_MAX = 256


def filter_of(arguments: FieldTable, client_values: Mapping[str, Value], *, name: str, vhost: str) -> Expression | None:
    """The filter in a consumer's arguments; None: no filter. `client_values`: see `compiled`.

    Raises: InvalidArgument: not a text, not an expression, or both arguments.
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
            return _compiled(field.value.decode(), _DIALECTS[key], tuple(sorted(client_values.items())))
        except UnicodeDecodeError as error:
            reason = Reason("text", f"octet {error.start + 1}: this is not UTF-8")
        except ExpressionError as error:
            reason = Reason("text", str(error))
    raise InvalidArgument(key=key, name=name, vhost=vhost, reason=reason)


def selector(text: str) -> Expression:
    """The filter of a queue or a divert. Raises: ExpressionError."""
    return _compiled(text, JMS, ())


@lru_cache(CACHED_MAX)
def _compiled(text: str, dialect: Dialect, client_values: tuple[tuple[str, Value], ...]) -> Expression:
    return compiled(text, dialect, dict(client_values))
