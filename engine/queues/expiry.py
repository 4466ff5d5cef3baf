"""Messages whose time is over leave a queue at its heads. Source: behaviour page 3.2; address-settings page 3.6."""

from ..messages.deaths import EXPIRED
from .core import QueueCore

#: Octets of messages that expire at once and become dead letters, of a store that expires in slices.
EXPIRE_OCTETS = 4 * 1024 * 1024
#: While so many dead letters are under way, such a store makes no more of them: they are in memory.
BURIED_MAX = 500


def expire(queue: QueueCore) -> None:
    """Take expired messages off the heads; those behind a head that is alive wait for their turn, as in RabbitMQ.

    Where nobody gets a dead letter of it, content that only the journal has is not read for that.
    """
    store, surroundings = queue.store, queue.surroundings
    is_wanted = queue.rules.dead_letter_target(EXPIRED) is not None
    if is_wanted and store.expires_in_slices and surroundings.dead_count() >= BURIED_MAX:
        return
    now_ns = surroundings.clock.monotonic_ns()
    gone = store.expire(now_ns, with_content=is_wanted, octets_max=EXPIRE_OCTETS)
    queue.ledger.octets_changed(gone.recounted)
    if gone.messages:
        queue.lose(gone.messages, EXPIRED)
    if gone.unread:
        queue.ledger.lost_unread(gone.unread, EXPIRED)


def arm(queue: QueueCore) -> None:
    """Set the deadline of the next head to expire; what is due already and was too much for a slice goes soon."""
    store, surroundings = queue.store, queue.surroundings
    due_ns = store.next_expiry_ns
    if store.expires_in_slices and 0 < due_ns <= surroundings.clock.monotonic_ns():
        surroundings.trim_later(queue)
    else:
        queue.timers.arm_expiry(due_ns, queue.expire_due)
