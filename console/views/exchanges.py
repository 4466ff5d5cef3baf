"""An exchange. Source: management page 4."""

from typing import Any

from ...engine import PREDECLARED, Exchange, ServiceExchange
from .tables import arguments_view

_PREDECLARED = frozenset(name for name, _, _ in PREDECLARED)


def exchange_view(exchange: Exchange, vhost: str) -> dict[str, Any]:
    """An exchange in a list, without the sampler's values."""
    is_own = exchange.name in _PREDECLARED or isinstance(exchange, ServiceExchange)
    view: dict[str, Any] = {
        "arguments": arguments_view(exchange.arguments),
        "auto_delete": exchange.auto_delete,
        "durable": exchange.durable,
        "internal": exchange.internal,
        "name": exchange.name,
        "type": exchange.type,
        "user_who_performed_action": "rmq-internal" if is_own else "none",
        "vhost": vhost,
    }
    if exchange.policy.policy is not None:
        view["policy"] = exchange.policy.policy.name
    return view
