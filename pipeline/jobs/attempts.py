"""What became of each delivery of a message, from its recorded events: who simulates it does the same again.

A leased message that nobody settles is held: until its lease ends, or until somebody acknowledges it late.
"""

from collections.abc import Iterable
from typing import NamedTuple

ACK, REQUEUE, DISCARD, CLOSE, LOSE, HOLD, LATE = "ack", "requeue", "discard", "close", "lose", "hold", "late"
#: Why a message came back -> the consumer's act. Of others (a delay) it is REQUEUE.
ACTS = {"closed": CLOSE, "unsubscribed": CLOSE, "lost": LOSE}
#: The kinds of events of a message that say how a delivery ended, beside those that end the message.
RETURNS = ("requeued", "scheduled", "lease_ended")


class Attempt(NamedTuple):
    """One delivery. `ms`: from the delivery to the act; nothing of HOLD, which is none. LATE: its consumer unsubscribed
    then, and acknowledged after `late_ms`, before anybody else had the message. `lsn`: of the record of the act.
    `number`: of the delivery, as the broker counted it; 0: not known."""

    ms: int = 0
    act: str = ACK
    late_ms: int = 0
    lsn: int = 0
    number: int = 0


class MessageEvent(NamedTuple):
    """An event of a message in a queue. `attempt`: of a delivery."""

    ms: int
    kind: str
    reason: str | None = None
    lsn: int = 0
    attempt: int = 0


def attempts_of(moments: Iterable[MessageEvent]) -> tuple[Attempt, ...]:
    """The deliveries among the events of one message, which are in their order."""
    found: list[Attempt] = []
    begun: int | None = None
    began = number = 0
    unsettled = Attempt(0, HOLD)  # what becomes of the one that is out if its consumer does nothing more
    is_gone = False
    for ms, kind, reason, lsn, attempt in moments:
        if kind == "delivered":
            if begun is not None:
                found.append(unsettled)
            begun, began, number, unsettled = ms, ms, attempt, Attempt(0, HOLD, number=attempt)
            if is_gone:  # acknowledged as it was sent
                found.append(Attempt(lsn=lsn, number=number))
                begun = None
        elif begun is None:
            if kind == "acked" and found and found[-1].act == CLOSE:
                found[-1] = Attempt(found[-1].ms, LATE, ms - began, lsn, number)
            is_gone = is_gone or kind == "acked"
        elif kind == "lease_ended" and reason == "taken_over":  # by an acknowledgement, or by an operator
            unsettled = Attempt(ms - begun, CLOSE, lsn=lsn, number=number)
        elif (act := _act(kind, reason)) is not None:
            found.append(Attempt(ms - begun, act, lsn=lsn, number=number))
            begun = None
    if begun is not None:
        found.append(unsettled)
    return tuple(found)


def _act(kind: str, reason: str | None) -> str | None:
    """What the consumer did; None: nothing, though its lease may have ended."""
    if kind == "acked":
        return ACK
    if kind in RETURNS:
        return None if reason in ("deadline", "lifetime") else ACTS.get(reason or "", REQUEUE)
    if kind in ("killed", "dead_lettered"):
        return DISCARD if reason == "rejected" else REQUEUE  # by its attempts: it came back once too often
    return None
