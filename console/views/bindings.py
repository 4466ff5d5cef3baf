"""Views of bindings, and their properties keys, by which paths name them. Source: management page 1.8, 4."""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from ...engine import Binding, Queue, json_of_table
from .arguments_hash import hash_of_arguments

#: The fields by which lists of bindings are sorted. RabbitMQ names a field `type` third, which bindings don't have.
ORDER = ("vhost", "source", "destination", "routing_key", "properties_key", "destination_type")


def order_of(view: Mapping[str, Any]) -> tuple[str, ...]:
    """The sort key of a binding's view."""
    return tuple(str(view[name]) for name in ORDER)


def properties_key(binding: Binding) -> str:
    """The name of a binding among those between the same two objects. A restart does not change it."""
    key = quote_plus(binding.routing_key, safe="").replace("~", "%7E")
    if not binding.arguments:
        return key or "~"
    octets = hash_of_arguments(binding.arguments).to_bytes(4, "big")
    return f"{key}~{base64.urlsafe_b64encode(octets).decode().rstrip('=')}"


def location_of(binding: Binding) -> str:
    """The path of a new binding, relative to the path of the request."""
    return f"{quote(binding.destination.name, safe='')}/{quote(properties_key(binding), safe='~')}"


def binding_view(binding: Binding, vhost: str) -> dict[str, Any]:
    return {
        "source": binding.source.name,
        "vhost": vhost,
        "destination": binding.destination.name,
        "destination_type": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "routing_key": binding.routing_key,
        "arguments": json_of_table(binding.arguments),
        "properties_key": properties_key(binding),
    }


def default_binding_view(queue: Queue) -> dict[str, Any]:
    """The binding of a queue to the default exchange."""
    return {
        "source": "",
        "vhost": queue.vhost_name,
        "destination": queue.name,
        "destination_type": "queue",
        "routing_key": queue.name,
        "arguments": {},
        "properties_key": quote_plus(queue.name, safe="").replace("~", "%7E") or "~",
    }
