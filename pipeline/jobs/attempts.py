"""The outcome of each delivery of a message, read from its events. A simulation (simulation.py) repeats the outcomes.

A consumer that does not settle a leased message holds it: until the lease ends, or until it acknowledges late.
"""

from collections.abc import Iterable
from typing import NamedTuple

ACK, REQUEUE, DISCARD, CLOSE, LOSE, HOLD, LATE = "ack", "requeue", "discard", "close", "lose", "hold", "late"
#: Reason of a return -> act of the consumer. Other reasons, such as a delay, are REQUEUE.
ACTS = {"closed": CLOSE, "unsubscribed": CLOSE, "lost": LOSE}
#: Kinds of events with which a message returns. They end its delivery, unless only the lease has ended: then its
#: consumer has done nothing, and may acknowledge late.
RETURNS = ("requeued", "scheduled", "lease_ended")


class Attempt(NamedTuple):
    """One delivery, and the act of its consumer that ended it.

    `ms`: from the delivery to the act; 0 for HOLD, which has no act. `late_ms`: for LATE, from the delivery to the
    acknowledgement, which came after the delivery had ended and before the next one: its consumer had unsubscribed, or
    its lease had ended. `lsn`: of the record of the act. `number`: of the delivery, as the broker counts; 0: not known.
    """

    ms: int = 0
    act: str = ACK
    late_ms: int = 0
    lsn: int = 0
    number: int = 0


class MessageEvent(NamedTuple):
    """An event of a message in a queue. `attempt`: the number of the delivery, as the broker counts."""

    ms: int
    kind: str
    reason: str | None = None
    lsn: int = 0
    attempt: int = 0


def attempts_of(events: Iterable[MessageEvent]) -> tuple[Attempt, ...]:
    """The deliveries of a message. `events`: of this message, in their order."""
    found: list[Attempt] = []
    delivered_ms: int | None = None  # when the delivery began that has not ended yet
    last_delivered_ms = number = 0
    unsettled = Attempt(0, HOLD)  # the outcome of that delivery if no event ends it
    acked: MessageEvent | None = None  # outside of a delivery
    for event in events:
        ms, kind, reason, lsn, attempt = event
        if kind == "delivered":
            if delivered_ms is not None:
                found.append(unsettled)
            delivered_ms, last_delivered_ms, number, unsettled = ms, ms, attempt, Attempt(0, HOLD, number=attempt)
            if acked:  # automatically when it was sent
                found.append(Attempt(lsn=lsn, number=number))
                acked = delivered_ms = None
        elif delivered_ms is None:
            acked = event if kind == "acked" else acked
        elif kind == "lease_ended" and reason == "taken_over":  # by an acknowledgement, or by an operator
            unsettled = Attempt(ms - delivered_ms, CLOSE, lsn=lsn, number=number)
        elif (act := _act(kind, reason)) is not None:
            found.append(Attempt(ms - delivered_ms, act, lsn=lsn, number=number))
            delivered_ms = None
    if delivered_ms is not None:
        found.append(unsettled)
    elif acked and found:
        found[-1] = Attempt(found[-1].ms, LATE, acked.ms - last_delivered_ms, acked.lsn, number)
    return tuple(found)


def _act(kind: str, reason: str | None) -> str | None:
    """The act of the consumer in an event; None: the consumer did nothing, but its lease may have ended."""
    if kind == "acked":
        return ACK
    if kind in RETURNS:
        return None if reason in ("deadline", "lifetime") else ACTS.get(reason or "", REQUEUE)
    if kind in ("killed", "dead_lettered"):
        return DISCARD if reason == "rejected" else REQUEUE  # REQUEUE: the return that reached the delivery limit
    return None
