"""When a changed setting of a leased queue takes effect in a broker that reloads. Source: address-settings page 3.8."""

from ..lifetime import ARRIVAL, AT_CONSUMER, LIVE, NEVER, RESTART, WITHOUT_MEANING, Lifetime

#: Queue argument -> when. How a queue counts, and in which order it delivers, is built with its state.
ACTS: dict[str, Lifetime] = {
    "x-replication": WITHOUT_MEANING,
    "x-message-type": NEVER,
    "x-underlying-topic": ARRIVAL,
    "x-default-publish-target": ARRIVAL,
    "x-lease-period": LIVE,
    "x-semantics": RESTART,
    "x-max-backlog-total": LIVE,
    "x-max-backlog-per-consumer": AT_CONSUMER,
    "x-message-ttl": ARRIVAL,
    "x-expiration-model": ARRIVAL,
    "x-expire-leased": LIVE,
    "x-dead-letter-reasons": LIVE,
    "x-dead-letter-data": LIVE,
    "x-queue-filter": ARRIVAL,
    "x-recovery-point": RESTART,
    "x-fairness": LIVE,
    "x-leasing": LIVE,
    "x-max-deliveries": LIVE,
    "x-cancel-limit": LIVE,
    "x-priority-expr": RESTART,
    "x-barrier-expr": RESTART,
    "x-file-backed": WITHOUT_MEANING,
    "x-target-depth": RESTART,
    "x-deferred-ack-ttl": LIVE,
    "x-initial-owner": WITHOUT_MEANING,
    "x-queue-domain": WITHOUT_MEANING,
}

#: Arguments that can change on an existing leased queue.
LIVE_LEASED = frozenset(argument for argument, acts in ACTS.items() if acts in (LIVE, ARRIVAL, AT_CONSUMER))
#: Those of them that only whoever declared the queue changes: what it captures.
OF_CAPTURE = frozenset(("x-underlying-topic", "x-default-publish-target", "x-queue-filter"))
