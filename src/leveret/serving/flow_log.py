"""Lines in the log about who waits, and about who makes others wait."""

import logging

from ..engine import BlockedWarning, Broker, SlowConsumer
from ..settings.printable import printable

#: Peers cause these lines: they share the budget of the others about peers.
logger = logging.getLogger("leveret.amqp")


def log_flow(broker: Broker) -> None:
    """From now on log blocked publishers and slow consumers of a broker."""
    broker.blocked_warnings.on_due = _log_blocked
    broker.slow_consumers.on_found = _log_slow


def _log_blocked(warning: BlockedWarning) -> None:
    logger.warning(
        "%s: %d connections wait to publish: %d of %d used (%s)",
        printable(warning.destination),
        warning.clients,
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
