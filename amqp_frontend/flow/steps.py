"""How far a turn of a connection goes: what it may spend, what it handles, and why it ends."""

from collections.abc import Sequence
from enum import Enum, auto

from ...engine import Blocker, Broker
from ..peer.channel import EFFORT_MAX


class Step(Enum):
    """How an event ended that was to be handled; or a turn."""

    DONE = auto()  # nothing is left
    CUT = auto()  # the turn is long: what else was read is for the next one
    PARKED = auto()  # it waits for room, for the end of an alarm, or behind what waits
    UNFINISHED = auto()  # the rest of the event is for another turn; nothing behind it is handled before
    STALLED = auto()  # the peer does not read its answers: nothing more is handled before it does
    CLOSING = auto()  # the connection ends: what else was read does not matter


class Quota:
    """What may be published of what is parked before other connections have their turn. `used`: octets so far.

    `full`: what was waited for. `is_over`: others have their turn now.
    """

    __slots__ = ("full", "is_over", "messages", "octets", "used")

    def __init__(self, full: Blocker, octets: int, messages: int) -> None:
        self.full = full
        self.is_over = False
        self.octets = octets
        self.messages = messages
        self.used = 0

    def spend(self, blobs: Sequence[bytes]) -> None:
        """These were published."""
        self.spend_octets(sum(map(len, blobs)), len(blobs))

    def spend_octets(self, octets: int, messages: int) -> None:
        """So much was published."""
        self.octets -= octets
        self.messages -= messages
        self.used += octets


class Turn:
    """`effort_max`: the `Effort` spent at which the turn is long.

    `since_ns`: when the event came that is handled now (monotonic), if it has waited; None: it is new. `quota`: None:
    the turn may publish whatever there is room for.
    """

    __slots__ = ("_effort", "effort_max", "quota", "since_ns")

    def __init__(self, broker: Broker, quota: Quota | None = None) -> None:
        self._effort = broker.context.effort
        self.effort_max = broker.context.effort.share_until(EFFORT_MAX)
        self.quota = quota
        self.since_ns: int | None = None

    @property
    def is_long(self) -> bool:
        """Whether what is left is for the next turn."""
        return self._effort.spent >= self.effort_max

    @property
    def is_over(self) -> bool:
        """Whether other connections have their turn now with what is parked."""
        return self.quota is not None and self.quota.is_over
