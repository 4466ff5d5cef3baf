"""How much a connection holds, in memory and in the temp store, and where the contents of new work go.

Source: queues page E.5, "Hold area".
"""

from collections.abc import Callable

from ..engine import Broker
from .held_channel import HeldWork, Work, blobs_of

#: What a connection may hold in memory, in events; for octets see [flow] hold-bytes. More goes to the temp store, ...
HELD_MAX = 512
#: ... up to so many events.
SPOOLED_MAX = 65_536


class HeldContents:
    """`count`, `octets`: of all that is held in memory. `spooled_count`, `spooled`: of what is in the temp store.

    `publishes`: messages among both. `is_unread`: that is so much that the peer is not read. A `Holding` of the engine.
    """

    __slots__ = ("_broker", "count", "is_unread", "octets", "publishes", "spooled", "spooled_count")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.count = 0
        self.octets = 0
        self.spooled_count = 0
        self.spooled = 0
        self.publishes = 0
        self.is_unread = False

    def has_no_room_behind(self, work: HeldWork) -> bool:
        """Whether what was added last is one too much in memory."""
        if work.place is not None:
            return False
        if self.octets > self._broker.options.flow.hold_size or self.count > HELD_MAX:
            return True
        return work.octets > 0 and not self._broker.flow.holdings.has_room(0)

    def placed(self, work: HeldWork, makes_room: Callable[[], bool]) -> HeldWork:
        """New work: its contents go to the temp store if more is held in memory than may be, and there is room there.

        makes_room: whether the peer, if it is read, may make room for what it publishes; then its quota does not count.
        """
        flow = self._broker.options.flow
        if not work.octets or not (
            self.octets + work.octets > flow.hold_size
            or (self.count >= HELD_MAX and self.octets)
            or not self._broker.flow.holdings.has_room(work.octets)
        ):
            return work
        if self.spooled_count >= SPOOLED_MAX or (self.spooled >= flow.hold_spool_size and not makes_room()):
            return work
        holdings = self._broker.flow.holdings
        holdings.spooled += work.octets  # before the temp store tells that there is more in it
        place = self._broker.storage.temp.spool(blobs_of(work.event))
        if place is None:
            holdings.spooled -= work.octets
            return work
        return work.spooled(place)

    def added(self, work: HeldWork) -> None:
        """It is held from now on."""
        self._count(work, 1)

    def removed(self, work: HeldWork) -> None:
        """It is not held any more; `brought` or `released` is to be called, too."""
        self._count(work, -1)

    def _count(self, work: HeldWork, sign: int) -> None:
        octets = work.octets * sign
        if work.place is not None:
            self.spooled_count += sign
            self.spooled += octets
        else:
            self.count += sign
            self.octets += octets
            self._broker.flow.holdings.octets += octets
        self.publishes += work.messages * sign

    def brought(self, work: HeldWork) -> Work:
        """What is to be handled, with its contents. Raises: Unreadable."""
        if work.place is None:
            return work.event
        octets = self._broker.storage.temp.unspool(work.place, work.octets)
        self.released(work)
        return work.brought(octets).event

    def released(self, work: HeldWork) -> None:
        """Nobody will ask for its contents."""
        if work.place is not None:
            self._broker.flow.holdings.spooled -= work.octets
            self._broker.storage.temp.release(work.place, work.octets)
