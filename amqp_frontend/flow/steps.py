"""The limits of a connection's turn, and the reasons why it ends."""

from collections.abc import Sequence
from enum import Enum, auto

from ...engine import Broker, FullLimit, Turn, share_of
from ...settings.slotted import slotted
from ..peer.channel import EFFORT_MAX


class Step(Enum):
    """Result of handling an event, or of a turn."""

    DONE = auto()  # all is handled
    CUT = auto()  # the turn is long: the next one handles the rest of the input
    PARKED = auto()  # the event waits for room, for the end of an alarm, or behind other parked work
    UNFINISHED = auto()  # another turn handles the rest of the event, and later events after it
    STALLED = auto()  # the peer does not read its answers: no event is handled until it does
    CLOSING = auto()  # the connection ends: the rest of the input is dropped


@slotted
class Quota:
    """How much parked work may still be published before other connections have their turn.

    `full`: the limit or alarm for which the work waited. `octets`, `messages`: what is left. `used`: octets that were
    published. `is_over`: other connections have their turn now.
    """

    full: FullLimit
    octets: int
    messages: int
    used: int = 0
    is_over: bool = False

    def spend(self, contents: Sequence[bytes]) -> None:
        """Count publishes."""
        self.spend_octets(sum(map(len, contents)), len(contents))

    def spend_octets(self, octets: int, messages: int) -> None:
        """Count publishes by octets and messages."""
        self.octets -= octets
        self.messages -= messages
        self.used += octets


class ConnectionTurn(Turn):
    """A turn of a connection.

    `since_ns`: when the current event arrived (monotonic), if it was parked; None: it is new. `quota`: None: the turn
    may publish as much as there is room for.
    """

    __slots__ = ("quota", "since_ns")

    def __init__(self, broker: Broker, quota: Quota | None = None) -> None:
        context = broker.context
        effort = context.turn.effort
        super().__init__(effort, effort + share_of(EFFORT_MAX, context.interrupted))
        self.quota = quota
        self.since_ns: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether the quota for parked work is used up, so that other connections have their turn."""
        return self.quota is not None and self.quota.is_over
