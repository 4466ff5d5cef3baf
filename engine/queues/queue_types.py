"""What quorum and stream queues refuse that classic ones do. Source: behaviour page 2.6, 2.7, 2.11, 3.6, 3.7."""

from typing import TYPE_CHECKING

from ..delivery.consumer import holder_of
from ..errors import (
    ConditionalDeleteNotSupported,
    GetBesideActiveConsumerRefused,
    GlobalPrefetchNotSupported,
    NoAckNotSupported,
    PrefetchMissing,
    StreamOperationNotSupported,
)
from ..rules.arguments import QUORUM, STREAM

if TYPE_CHECKING:
    from ..messages.message import Message
    from .queue import Queue


def check_consume(queue: "Queue", *, no_ack: bool, prefetch: int, prefetch_total: int) -> None:
    """Raises: GlobalPrefetchNotSupported (quorum); NoAckNotSupported, PrefetchMissing (stream)."""
    if queue.type == QUORUM and prefetch_total:
        raise GlobalPrefetchNotSupported(name=queue.name, vhost=queue.vhost.name)
    if queue.type == STREAM:
        if not prefetch:
            raise PrefetchMissing(name=queue.name, vhost=queue.vhost.name)
        if no_ack:
            raise NoAckNotSupported(name=queue.name, vhost=queue.vhost.name)


def check_get(queue: "Queue") -> None:
    """Raises: StreamOperationNotSupported; GetBesideActiveConsumerRefused (quorum with single active consumer)."""
    if queue.type == STREAM:
        raise StreamOperationNotSupported(operation="basic.get", name=queue.name, vhost=queue.vhost.name)
    if queue.type == QUORUM and queue.rules.single_active_consumer:
        raise GetBesideActiveConsumerRefused(name=queue.name, vhost=queue.vhost.name)


def check_reject(messages: "list[Message]") -> None:
    """Raises: StreamOperationNotSupported."""
    for message in messages:
        if message.holder is not None and (queue := holder_of(message).queue).type == STREAM:
            raise StreamOperationNotSupported(
                operation="basic.nack and basic.reject", name=queue.name, vhost=queue.vhost.name
            )


def check_purge(queue: "Queue") -> None:
    """Raises: StreamOperationNotSupported."""
    if queue.type == STREAM:
        raise StreamOperationNotSupported(operation="queue.purge", name=queue.name, vhost=queue.vhost.name)


def check_delete(queue: "Queue", *, if_unused: bool, if_empty: bool) -> None:
    """Raises: ConditionalDeleteNotSupported (quorum)."""
    if queue.type == QUORUM and (if_unused or if_empty):
        flag = "if-unused" if if_unused else "if-empty"
        raise ConditionalDeleteNotSupported(name=queue.name, vhost=queue.vhost.name, flag=flag)
