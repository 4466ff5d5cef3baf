"""The exchange type of RabbitMQ's delayed-message plugin: routes like another type, and delays messages.

A message with the header `x-delay` (milliseconds) is routed at once and waits in its queues, where operators see it.
The plugin keeps it in the exchange and routes it after the delay (docs/DEVIATIONS.md).
"""

import builtins
from collections.abc import Sequence

from ..errors import InvalidDelayedType
from ..messages.content import DELAY
from ..messages.field_table import Field, FieldTable, text_of
from ..options import BrokerOptions
from .exchange import EXCHANGE_TYPES, Binding, Destination, Exchange
from .routed import Routed

#: Maximum delay in ms. A longer one is ignored, as in the plugin.
DELAY_MAX_MS = 2**32 - 1
DELAYED_TYPE = "x-delayed-type"


class DelayedExchange(Exchange):
    """Routes as the type that its argument `x-delayed-type` names."""

    type = "x-delayed-message"
    __slots__ = ("_router",)

    def _prepare(self) -> None:
        kind = EXCHANGE_TYPES.get(text_of(self.arguments, DELAYED_TYPE) or "")
        if kind is None or kind is DelayedExchange:
            raise InvalidDelayedType(name=self.name)
        self._router = kind(self.name)
        self.routes = self._router.routes

    @property
    def decides_each(self) -> bool:  # type: ignore[override]
        return self._router.decides_each

    @property
    def is_topic(self) -> bool:  # type: ignore[override]
        return self._router.is_topic

    def check(self, routing_key: str, arguments: FieldTable) -> None:
        self._router.check(routing_key, arguments)

    def check_limits(self, routing_key: str, arguments: FieldTable, vhost: str, options: BrokerOptions) -> None:
        self._router.check_limits(routing_key, arguments, vhost, options)

    @property
    def routes_as(self) -> "builtins.type[Exchange]":
        return type(self._router)

    def match(self, message: Routed) -> Sequence[Destination]:
        return self._router.match(message)

    def forget_routes(self, binding: Binding) -> None:
        self._router.forget_routes(binding)

    def _index(self, binding: Binding) -> None:
        self._router.index(binding)

    def _unindex(self, binding: Binding) -> None:
        self._router.unindex(binding)


EXCHANGE_TYPES[DelayedExchange.type] = DelayedExchange


def delay_ms(headers: FieldTable) -> int | None:
    """The delay of a message in ms, from a number or a string of digits; None: no delay."""
    field: Field | None = headers.get(DELAY)
    if field is None:
        return None
    value = field.value
    if isinstance(value, bytes):
        digits = value.strip()
        value = int(digits) if digits.isdigit() and len(digits) < 12 else 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 < value <= DELAY_MAX_MS else None
