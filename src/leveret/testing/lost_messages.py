"""The reasons why messages reached no queue, for texts of failed assertions."""

from typing import TYPE_CHECKING

from ..engine import Binding, Exchange, PublishedEvent, ServiceExchange, VirtualHost
from ..settings.faults import nearest
from ..settings.printable import printable
from .history import PublishedMessage, Recorder
from .snapshots import plain_table

if TYPE_CHECKING:
    from .runtime import WatchedRuntime

MESSAGES_MAX = 5
BINDINGS_MAX = 5


def reasons_for_missing(runtime: "WatchedRuntime", recorder: Recorder, vhost: str, queue: str) -> list[str]:
    """Possible reasons for a missing queue or missing messages. Call it in the broker's loop."""
    lines = [
        f"queue {queue!r} was deleted at {event.at:g} s"
        for event in recorder.events(lambda event: event.vhost == vhost and event.subject == queue)
        if event.kind == "undeclared"
    ][-1:]
    host = runtime.broker.virtual_hosts.get(vhost)
    lost = [message for message in recorder.published(vhost, copies=True) if not message.queues]
    if host is not None:
        lost = [message for message in lost if not isinstance(host.exchanges.get(message.exchange), ServiceExchange)]
    if not lost or host is None:
        return lines
    lines.append(f"published messages that reached no queue: {len(lost)}")
    for message in lost[-MESSAGES_MAX:]:
        cause = f" (the broker's own: {message.cause})" if message.cause else ""
        lines += [f"  {message}{cause}", f"    {_reason(host, recorder, message)}"]
    return lines


def _reason(vhost: VirtualHost, recorder: Recorder, message: PublishedMessage) -> str:
    name, key = message.exchange, message.routing_key
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        return f"exchange {name!r} no longer exists"
    if not name:
        if key in vhost.queues:
            return f"queue {key!r} was declared afterwards"
        return f"no queue is called {key!r}{nearest(key, vhost.queues)}"
    if not exchange.bindings:
        return f"{exchange.type} exchange {name!r} has no bindings"
    later = _bound_after(recorder, vhost.name, message.id)
    bindings = list(exchange.bindings.values())
    shown = "; ".join(_shown(exchange, one, one in later) for one in bindings[:BINDINGS_MAX])
    more = f"; and {len(bindings) - BINDINGS_MAX} more" if len(bindings) > BINDINGS_MAX else ""
    return f"no binding of {exchange.type} exchange {name!r} matched: {shown}{more}"


def _shown(exchange: Exchange, binding: Binding, is_later: bool) -> str:
    condition = f"{binding.routing_key!r}"
    if exchange.type == "headers":
        condition = "headers " + ", ".join(f"{key}={value!r}" for key, value in plain_table(binding.arguments).items())
    kind = "exchange" if isinstance(binding.destination, Exchange) else "queue"
    return printable(f"{condition} to {kind} {binding.destination.name!r}{' (bound afterwards)' if is_later else ''}")


def _bound_after(recorder: Recorder, vhost: str, message: int) -> list[Binding]:
    found: list[Binding] = []
    is_after = False
    for event in recorder.raw_events():
        if isinstance(event, PublishedEvent) and message in event.messages:
            is_after = True
        elif is_after and event.vhost == vhost and event.kind.value == "bound":
            binding = (event.detail or {}).get("binding")
            if isinstance(binding, Binding):
                found.append(binding)
    return found
