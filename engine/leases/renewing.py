"""Renewal of leases at their end while the connection of their consumer is alive. Source: docs/leases.md."""

from collections.abc import Sequence

from ..delivery.consumer import holder_of
from ..messages.message import Message
from .consumer_list import LeaseConsumers
from .table import LeaseTable


def not_renewed(
    consumer_list: LeaseConsumers, leases: LeaseTable, ended: Sequence[Message], now_ns: int
) -> list[Message]:
    """Renew leases whose time is over if they are to be renewed; return the leases and slots that end."""
    over: list[Message] = []
    for message in ended:
        holder = holder_of(message)
        liveness = holder.session.client.liveness if holder in consumer_list.renewing else None
        if liveness is not None and liveness() and leases.by_id.get(message.id) is message:
            leases.renew(message, now_ns)
        else:
            over.append(message)
    return over
