"""A message's rank, and whether it is a barrier, by the expressions of a leased queue.

Source: queues page A.3 (Priority: an unsigned long, so -1 is the highest; NULL and values that are no number come
last), A.9.
"""

from math import isnan

from ...expressions.language import Expression
from ..delivery.filters import MessageSubject
from ..messages.message import Message
from .ranked_store import RANK_MAX

#: The lowest value of a long.
LOWEST = -(2**63)


def rank_of(priority: Expression, message: Message) -> int:
    """The rank, from 0 to `RANK_MAX`. Fractions are cut off; negative numbers count from the top, as in C."""
    value = priority.value(MessageSubject(message))
    while isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 400 else None
        except ValueError:
            return 0
    if not isinstance(value, int | float) or isnan(value):
        return 0
    return int(min(max(value, LOWEST), RANK_MAX)) % (RANK_MAX + 1) if value < RANK_MAX else RANK_MAX


def is_barrier(barrier: Expression | None, message: Message) -> bool:
    """Whether a message is a barrier by an expression; without one (None) no message is."""
    return barrier is not None and barrier.matches(MessageSubject(message))
