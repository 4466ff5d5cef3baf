"""What quorum and stream queues refuse that classic ones do. Source: behaviour page 2.6, 2.7, 2.11, 3.6, 3.7."""

from ..delivery.consumer import holder_of
from ..errors import (
    ConditionalDeleteNotSupported,
    GetBesideActiveConsumerRefused,
    GlobalPrefetchNotSupported,
    NoAckNotSupported,
    PrefetchMissing,
    StreamOperationNotSupported,
)
from ..messages.message import Message
from ..rules.arguments import QUORUM, STREAM
from .core import QueueCore
from .queue import queue_of


def check_consume(queue: QueueCore, *, no_ack: bool, prefetch: int, prefetch_total: int) -> None:
    """Raises: GlobalPrefetchNotSupported (quorum); NoAckNotSupported, PrefetchMissing (stream)."""
    if queue.type == QUORUM and prefetch_total:
        raise GlobalPrefetchNotSupported(name=queue.name, vhost=queue.surroundings.vhost)
    if queue.type == STREAM:
        if not prefetch:
            raise PrefetchMissing(name=queue.name, vhost=queue.surroundings.vhost)
        if no_ack:
            raise NoAckNotSupported(name=queue.name, vhost=queue.surroundings.vhost)


def check_get(queue: QueueCore) -> None:
    """Raises: StreamOperationNotSupported; GetBesideActiveConsumerRefused (quorum with single active consumer)."""
    if queue.type == STREAM:
        raise StreamOperationNotSupported(operation="basic.get", name=queue.name, vhost=queue.surroundings.vhost)
    if queue.type == QUORUM and queue.rules.single_active_consumer:
        raise GetBesideActiveConsumerRefused(name=queue.name, vhost=queue.surroundings.vhost)


def check_reject(messages: list[Message]) -> None:
    """Raises: StreamOperationNotSupported."""
    for message in messages:
        if message.holder is not None and (queue := queue_of(holder_of(message))).type == STREAM:
            raise StreamOperationNotSupported(
                operation="basic.nack and basic.reject", name=queue.name, vhost=queue.surroundings.vhost
            )


def check_purge(queue: QueueCore) -> None:
    """Raises: StreamOperationNotSupported."""
    if queue.type == STREAM:
        raise StreamOperationNotSupported(operation="queue.purge", name=queue.name, vhost=queue.surroundings.vhost)


def check_delete(queue: QueueCore, *, if_unused: bool, if_empty: bool) -> None:
    """Raises: ConditionalDeleteNotSupported (quorum)."""
    if queue.type == QUORUM and (if_unused or if_empty):
        flag = "if-unused" if if_unused else "if-empty"
        raise ConditionalDeleteNotSupported(name=queue.name, vhost=queue.surroundings.vhost, flag=flag)
