"""Leases that begin again when they end, because the connection of their consumer is alive. Source: docs/leases.md."""

from collections.abc import Sequence

from ..delivery.consumer import holder_of
from ..messages.message import Message
from .consumer_list import LeaseConsumers
from .table import LeaseTable


def not_renewed(
    consumer_list: LeaseConsumers, leases: LeaseTable, ended: Sequence[Message], now_ns: int
) -> list[Message]:
    """Of leases, or slots, whose time is over: those that end. The others have begun again."""
    over: list[Message] = []
    for message in ended:
        holder = holder_of(message)
        liveness = holder.session.client.liveness if holder in consumer_list.renewing else None
        if liveness is not None and liveness() and leases.by_id.get(message.id) is message:
            leases.renew(message, now_ns)
        else:
            over.append(message)
    return over
