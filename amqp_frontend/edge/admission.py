"""Decides whether a connection is accepted, and which other connection makes room for it. Pure: no sockets, no clock.

Descriptors, connections, and slots for connections that are not logged in are limited. The slots are few, so that
strangers (addresses without a recent login) take little memory. But a flood that fills them must not lock out all
others. So:

- Each address (of IPv6 each /64) has a share: all slots if it is this machine's own or a listed proxy's, half of them
  if a client logged in from it recently, otherwise an eighth, but at least `SHARE_MIN`. A quarter of all slots is not
  for strangers.
- A newcomer whose share is used up gets the slot of the oldest connection of its address. If all slots are taken, it
  gets that of the oldest connection of the address with most slots. Connections that have sent nothing lose theirs
  first. One that has sent octets ("begun") is safe for a second, so that clients of a burst do not displace each other.
  It is not safe if its address has more slots than the newcomer's. Against newcomers from this machine or a known
  address it is safe for a tenth of a second, and the newcomer waits for that time.
- The slot of a connection whose login was refused cannot be taken: this makes guessing passwords slow.
"""

import logging
from collections import OrderedDict
from typing import Generic, TypeVar

from ..options import FrontendOptions
from ..peer.login import Peer

#: A connection that has begun is safe for this time from strangers whose address has as many slots (ns).
BEGUN_NS = 1_000_000_000
#: The same against newcomers from known addresses: long enough for a login, and too short for a flood to lock them out.
BEGUN_AGAINST_KNOWN_NS = 100_000_000
#: Minimum slots in the share of an address (if there are as many).
SHARE_MIN = 8
#: Maximum addresses with a login that are remembered; the latest stay.
KNOWN_MAX = 4096

T = TypeVar("T")


class NoSlot(Exception):
    """No connection can make room; the text is for the log. `wait_ns`: time until one can, if the newcomer may wait."""

    def __init__(self, text: str, wait_ns: int | None = None) -> None:
        super().__init__(text)
        self.wait_ns = wait_ns


class _Address(Generic[T]):
    """The connections of one address, oldest first, by state: silent, begun, refused."""

    __slots__ = ("begun", "is_stranger", "origin", "refused", "silent")

    def __init__(self, origin: str, is_stranger: bool) -> None:
        self.origin = origin
        self.is_stranger = is_stranger
        self.silent: dict[T, int] = {}  # values: time of entering (ns)
        self.begun: dict[T, int] = {}
        self.refused: dict[T, None] = {}

    @property
    def weight(self) -> int:
        """Slots that can be taken away."""
        return len(self.silent) + len(self.begun)

    @property
    def count(self) -> int:
        """Slots of the address."""
        return len(self.silent) + len(self.begun) + len(self.refused)

    def oldest(self, before_ns: int) -> T | None:
        """The first connection to lose its slot; None: none is silent, and those that have begun entered later."""
        for one in self.silent:
            return one
        for one, since_ns in self.begun.items():
            return one if since_ns <= before_ns else None
        return None

    def wait_ns(self, before_ns: int) -> int | None:
        """Nanoseconds until the oldest connection that has begun can lose its slot; None: none has begun."""
        return next((since_ns - before_ns for since_ns in self.begun.values()), None)


class HalfOpen(Generic[T]):
    """Connections that are not logged in, in their slots. `T`: a connection. Methods: O(square root of slots)."""

    def __init__(self) -> None:
        self._addresses: dict[str, _Address[T]] = {}
        self._address_of: dict[T, _Address[T]] = {}
        self._by_weight: dict[bool, dict[int, dict[_Address[T], None]]] = {True: {}, False: {}}  # strangers, others
        self._strangers = 0
        self._known: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._address_of)

    def make_room(self, origin: str, *, is_trusted: bool, now_ns: int, slots: int) -> T | None:
        """Find a slot for a newcomer. Returns: the connection that loses its slot and is to be closed, or None.

        origin: as in `Peer.origin`. is_trusted: this machine, or a listed proxy. Raises: NoSlot.
        """
        is_known = origin in self._known
        is_stranger = not is_trusted and not is_known
        part = 1 if is_trusted else 2 if is_known else 8
        share = min(slots, max(slots // part, SHARE_MIN))
        strangers_max = slots - slots // 4
        before_ns = now_ns - (BEGUN_NS if is_stranger else BEGUN_AGAINST_KNOWN_NS)
        own = self._addresses.get(origin)
        count = 0 if own is None else own.count
        if own is not None and count >= share:
            losing: _Address[T] | None = own
            why = f"{count} connections from {origin} are not logged in"
        elif len(self._address_of) >= slots or (is_stranger and self._strangers >= strangers_max):
            losing = self._heaviest(only_strangers=is_stranger and self._strangers >= strangers_max)
            why = f"{len(self._address_of)} connections are not logged in"
            if losing is not None and losing.weight > (own.weight if own is not None else 0) + 1:
                before_ns = now_ns
        else:
            return None
        if losing is None:
            raise NoSlot(why)
        lost = losing.oldest(before_ns)
        if lost is None:
            wait_ns = None if is_stranger else losing.wait_ns(before_ns)
            raise NoSlot(why, wait_ns)
        self.leave(lost)
        return lost

    def enter(self, one: T, origin: str, *, is_trusted: bool, now_ns: int) -> None:
        """Give a connection the slot that `make_room` found."""
        own = self._addresses.get(origin)
        if own is None:
            own = self._addresses[origin] = _Address(origin, not is_trusted and origin not in self._known)
        weight = own.weight
        own.silent[one] = now_ns
        self._address_of[one] = own
        self._weigh(own, weight, weight + 1)
        self._strangers += own.is_stranger

    def note_begun(self, one: T) -> None:
        """Note that the connection has sent octets."""
        address = self._address_of.get(one)
        if address is not None and one in address.silent:
            address.begun[one] = address.silent.pop(one)

    def note_refused(self, one: T) -> None:
        """Note that the login was refused: the connection keeps its slot until it is closed."""
        address = self._address_of.get(one)
        if address is not None and one not in address.refused:
            weight = address.weight
            address.silent.pop(one, None)
            address.begun.pop(one, None)
            address.refused[one] = None
            self._weigh(address, weight, weight - 1)

    def note_logged_in(self, one: T) -> None:
        """Free the connection's slot, and remember its address as known."""
        address = self._address_of.get(one)
        if address is None:
            return
        self.leave(one)
        known = self._known
        known[address.origin] = None
        known.move_to_end(address.origin)
        if len(known) > KNOWN_MAX:
            known.popitem(last=False)
        if address.is_stranger and address.count:
            weight = address.weight
            self._weigh(address, weight, 0)
            address.is_stranger = False
            self._strangers -= address.count
            self._weigh(address, 0, weight)

    def leave(self, one: T) -> None:
        """Free the connection's slot, if it has one."""
        address = self._address_of.pop(one, None)
        if address is None:
            return
        weight = address.weight
        if one in address.refused:
            del address.refused[one]
        else:
            address.silent.pop(one, None)
            address.begun.pop(one, None)
            self._weigh(address, weight, weight - 1)
        self._strangers -= address.is_stranger
        if weight <= 1 and not address.count:
            del self._addresses[address.origin]

    def _heaviest(self, *, only_strangers: bool) -> _Address[T] | None:
        """The address with the most slots that can be taken away."""
        heaviest = max(
            (
                (weight, next(iter(addresses)))
                for is_stranger, by_weight in self._by_weight.items()
                if is_stranger or not only_strangers
                for weight, addresses in by_weight.items()
            ),
            key=lambda found: found[0],
            default=None,
        )
        return None if heaviest is None else heaviest[1]

    def _weigh(self, address: _Address[T], before: int, now: int) -> None:
        """Note that the number of slots that an address can lose changed from `before` to `now`."""
        by_weight = self._by_weight[address.is_stranger]
        if before:
            alike = by_weight[before]
            del alike[address]
            if not alike:
                del by_weight[before]
        if now:
            by_weight.setdefault(now, {})[address] = None


logger = logging.getLogger("leveret.amqp")

#: Number of free descriptors from which a shortage is over.
_FREE_AGAIN = 8


class Admission(Generic[T]):
    """Admits connections. `T`: a connection. `half_open`: the connections that are not logged in."""

    def __init__(self) -> None:
        self.half_open: HalfOpen[T] = HalfOpen()
        self._is_short = False  # of descriptors; logged once until it ends

    def shortage(self, descriptor: int, connections: int, options: FrontendOptions) -> str:
        """The reason why no further connection can be accepted, from any peer; empty: it can.

        descriptor: the number of the new socket. connections: the number of other open connections.
        """
        descriptor_max = options.descriptor_max
        if is_beyond(descriptor, options):
            return f"{descriptor_max} descriptors are in use, the rest is for the broker's files"
        if self._is_short and (descriptor_max is None or descriptor < descriptor_max - _FREE_AGAIN):
            self.note_short("")
        if options.connections_max and connections >= options.connections_max:
            return f"{options.connections_max} connections are open"
        return ""

    def note_short(self, why: str) -> None:
        """Log the reason of a shortage once, and its end: `why` is empty when a connection was accepted."""
        if why and not self._is_short:
            logger.error("no more connections are accepted: %s", why)
        elif self._is_short and not why:
            logger.warning("connections are accepted again")
        self._is_short = bool(why)

    def make_room(
        self, peer: Peer, *, is_trusted: bool, options: FrontendOptions, is_short: bool, now_ns: int
    ) -> T | None:
        """Find a slot for a newcomer that is not logged in. In a shortage, another such connection makes room.

        Such connections get at most half of the descriptors: the rest is for connections that are logged in.
        Returns: the connection that loses its slot and is to be closed. Raises: NoSlot.
        """
        slots = options.half_open_max
        if options.descriptor_max is not None:
            slots = min(slots, max(options.descriptor_max // 2, 1))
        if is_short:
            slots = min(slots, len(self.half_open))
        return self.half_open.make_room(peer.origin, is_trusted=is_trusted, now_ns=now_ns, slots=slots)


def is_beyond(descriptor: int, options: FrontendOptions) -> bool:
    """Whether the descriptor is reserved for files."""
    return options.descriptor_max is not None and descriptor >= options.descriptor_max
