"""Lines in the log about blocked publishers, slow consumers, topics that are not logged, dead letters, and arguments
without a meaning.
"""

import logging

from ..engine import BlockedWarning, Broker, Queue, SlowConsumer, Unroutable
from ..settings.printable import printable
from ..settings.values import shown

#: Peers cause these lines, so they share the budget of lines about peers.
logger = logging.getLogger("leveret.amqp")


def log_flow(broker: Broker) -> None:
    """Have the broker call the functions of this file."""
    broker.flow.warnings.on_due = _log_blocked
    broker.context.slow_consumers.on_found = _log_slow
    broker.context.on_unlogged = _log_unlogged
    broker.context.unroutable_letters.on_unroutable = _log_unroutable
    broker.context.unroutable_letters.on_made = _log_made
    broker.context.cycling_letters.on_unroutable = _log_cycle
    broker.context.on_unknown_arguments = _UnknownArguments().log


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


def _log_unroutable(found: Unroutable) -> None:
    logger.warning(
        "%s in vhost %r: no queue is bound for messages to %s: %d lost so far",
        f"dead letters of queue {found.queue!r}" if found.queue else "messages without a route",
        found.vhost,
        shown(found.address),
        found.count,
    )


def _log_cycle(found: Unroutable) -> None:
    logger.warning(
        "dead letters of queue %r in vhost %r, sent to %s: dropped, because they would only go round in a cycle: "
        "%d lost so far",
        found.queue,
        found.vhost,
        shown(found.address),
        found.count,
    )


def _log_made(vhost: str, queue: str, address: str) -> None:
    logger.info("queue %r in vhost %r is made: dead letters go to %s, and nothing is bound to it", queue, vhost,
                shown(address))  # fmt: skip


def _log_unlogged(queue: Queue, topic: str) -> None:
    logger.error(
        "queue %r in vhost %r: E-TXLOG: it selects the topic %s, which is not among the logged topics: not captured",
        queue.name,
        queue.vhost_name,
        shown(topic),
    )


class _UnknownArguments:
    """Logs each unknown argument once for queues, once for consumers and once for exchanges, up to a maximum."""

    #: Names after which none is logged, because clients can invent more.
    NAMES_MAX = 1_000

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def log(self, what: str, name: str, vhost: str, names: dict[str, str]) -> None:
        new = [one for one in names if (what, one) not in self._seen]
        if not new or len(self._seen) >= self.NAMES_MAX:
            return
        self._seen.update((what, one) for one in new)
        logger.warning(
            "%s %r in vhost %r: arguments without a meaning here: %s",
            what,
            name,
            vhost,
            ", ".join(unknown_argument(one, names[one]) for one in new),
        )


def unknown_argument(name: str, like: str) -> str:
    return f"{printable(name)} (did you mean {like}?)" if like else printable(name)
