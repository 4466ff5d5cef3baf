"""The outcome of each delivery of a message, from its recorded events. A simulation repeats these outcomes.

A leased message without a settlement is held until its lease ends, or until a late acknowledgement.
"""

from collections.abc import Iterable
from typing import NamedTuple

ACK, REQUEUE, DISCARD, CLOSE, LOSE, HOLD, LATE = "ack", "requeue", "discard", "close", "lose", "hold", "late"
#: The reason of a return -> the act of the consumer. Other reasons (a delay) are REQUEUE.
ACTS = {"closed": CLOSE, "unsubscribed": CLOSE, "lost": LOSE}
#: The kinds of events that end a delivery, but not the message.
RETURNS = ("requeued", "scheduled", "lease_ended")


class Attempt(NamedTuple):
    """One delivery and the act that ended it. `ms`: from the delivery to the act; 0 for HOLD, which has no act.

    LATE: the consumer unsubscribed after `ms` and acknowledged after `late_ms`, before another delivery of the message.
    `lsn`: of the record of the act. `number`: the broker's count of the delivery; 0: not known.
    """

    ms: int = 0
    act: str = ACK
    late_ms: int = 0
    lsn: int = 0
    number: int = 0


class MessageEvent(NamedTuple):
    """An event of a message in a queue. `attempt`: for a delivery, the broker's count."""

    ms: int
    kind: str
    reason: str | None = None
    lsn: int = 0
    attempt: int = 0


def attempts_of(events: Iterable[MessageEvent]) -> tuple[Attempt, ...]:
    """The deliveries of a message. `events`: of this message, in their order."""
    found: list[Attempt] = []
    delivered_ms: int | None = None  # of the delivery that is out
    last_delivered_ms = number = 0
    unsettled = Attempt(0, HOLD)  # the outcome of the delivery that is out if there is no other event
    is_acked = False
    for ms, kind, reason, lsn, attempt in events:
        if kind == "delivered":
            if delivered_ms is not None:
                found.append(unsettled)
            delivered_ms, last_delivered_ms, number, unsettled = ms, ms, attempt, Attempt(0, HOLD, number=attempt)
            if is_acked:  # automatically, when it was sent
                found.append(Attempt(lsn=lsn, number=number))
                delivered_ms = None
        elif delivered_ms is None:
            if kind == "acked" and found and found[-1].act == CLOSE:
                found[-1] = Attempt(found[-1].ms, LATE, ms - last_delivered_ms, lsn, number)
            is_acked = is_acked or kind == "acked"
        elif kind == "lease_ended" and reason == "taken_over":  # by an acknowledgement, or by an operator
            unsettled = Attempt(ms - delivered_ms, CLOSE, lsn=lsn, number=number)
        elif (act := _act(kind, reason)) is not None:
            found.append(Attempt(ms - delivered_ms, act, lsn=lsn, number=number))
            delivered_ms = None
    if delivered_ms is not None:
        found.append(unsettled)
    return tuple(found)


def _act(kind: str, reason: str | None) -> str | None:
    """The act of the consumer in an event; None: it did nothing, though its lease may have ended."""
    if kind == "acked":
        return ACK
    if kind in RETURNS:
        return None if reason in ("deadline", "lifetime") else ACTS.get(reason or "", REQUEUE)
    if kind in ("killed", "dead_lettered"):
        return DISCARD if reason == "rejected" else REQUEUE  # REQUEUE: the return that reached the delivery limit
    return None
