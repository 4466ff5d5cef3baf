"""Checks for operations that queues of a kind refuse (`Kind.refusals`). Source: behaviour page 2.6, 2.7, 2.11, 3.6,
3.7.
"""

from .. import errors
from ..delivery.consumer import holder_of
from ..messages.message import Message
from .queue import Queue


def check_consume(queue: Queue, *, no_ack: bool, prefetch: int, prefetch_total: int) -> None:
    """Raises: GlobalPrefetchNotSupported, PrefetchMissing, NoAckNotSupported."""
    refusals = queue.kind.refusals
    if refusals.shared_prefetch and prefetch_total:
        raise errors.GlobalPrefetchNotSupported(name=queue.name, vhost=queue.vhost_name)
    if refusals.no_prefetch and not prefetch:
        raise errors.PrefetchMissing(name=queue.name, vhost=queue.vhost_name)
    if refusals.no_ack and no_ack:
        raise errors.NoAckNotSupported(name=queue.name, vhost=queue.vhost_name)


def check_get(queue: Queue) -> None:
    """Raises: StreamOperationNotSupported, GetBesideActiveConsumerRefused."""
    refusals = queue.kind.refusals
    if refusals.get:
        raise errors.StreamOperationNotSupported(operation="basic.get", name=queue.name, vhost=queue.vhost_name)
    if refusals.get_beside_active_consumer and queue.rules.single_active_consumer:
        raise errors.GetBesideActiveConsumerRefused(name=queue.name, vhost=queue.vhost_name)


def check_reject(messages: list[Message]) -> None:
    """Raises: StreamOperationNotSupported."""
    for message in messages:
        if message.holder is not None and (queue := holder_of(message).queue).kind.refusals.reject:
            raise errors.StreamOperationNotSupported(
                operation="basic.nack and basic.reject", name=queue.name, vhost=queue.vhost_name
            )


def check_purge(queue: Queue) -> None:
    """Raises: StreamOperationNotSupported."""
    if queue.kind.refusals.purge:
        raise errors.StreamOperationNotSupported(operation="queue.purge", name=queue.name, vhost=queue.vhost_name)


def check_delete(queue: Queue, *, if_unused: bool, if_empty: bool) -> None:
    """Raises: ConditionalDeleteNotSupported."""
    if queue.kind.refusals.conditional_delete and (if_unused or if_empty):
        flag = "if-unused" if if_unused else "if-empty"
        raise errors.ConditionalDeleteNotSupported(name=queue.name, vhost=queue.vhost_name, flag=flag)
