"""Lines in the log about who waits, who makes others wait, and what is not captured."""

import logging

from ..engine import BlockedWarning, Broker, Queue, SlowConsumer
from ..settings.printable import printable
from ..settings.values import shown

#: Peers cause these lines: they share the budget of the others about peers.
logger = logging.getLogger("leveret.amqp")


def log_flow(broker: Broker) -> None:
    """From now on log blocked publishers and slow consumers of a broker, and topics that a queue selects in vain."""
    broker.blocked_warnings.on_due = _log_blocked
    broker.slow_consumers.on_found = _log_slow
    broker.on_unlogged = _log_unlogged


def _log_blocked(warning: BlockedWarning) -> None:
    logger.warning(
        "%s: %d %s to publish: %d of %d used (%s)",
        printable(warning.destination),
        warning.clients,
        "connection waits" if warning.clients == 1 else "connections wait",
        warning.used,
        warning.limit,
        warning.limit_name,
    )


def _log_slow(found: SlowConsumer) -> None:
    logger.warning(
        "%s: slow consumer %r of queue %r in vhost %r: %s; %s",
        found.client,
        found.tag,
        found.queue,
        found.vhost,
        found.why,
        found.action,
    )


def _log_unlogged(queue: Queue, topic: str) -> None:
    logger.error(
        "queue %r in vhost %r: E-TXLOG: it selects the topic %s, which is not among the logged topics: not captured",
        queue.name,
        queue.vhost_name,
        shown(topic),
    )
