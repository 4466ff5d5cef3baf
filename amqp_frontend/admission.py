"""Whether one more connection is accepted, and which one has to make room for it. Pure: no sockets, no clock.

What can run short: descriptors, connections, places of those that are not logged in (half_open.py).
"""

import logging
from typing import Generic, TypeVar

from .half_open import HalfOpen
from .options import FrontendOptions
from .sasl import Peer

logger = logging.getLogger("leveret.amqp")

#: When so many descriptors below the maximum are free again, that is worth a line.
_FREE_AGAIN = 8

T = TypeVar("T")


class Admission(Generic[T]):
    """`T`: a connection. `half_open`: those that are not logged in."""

    def __init__(self) -> None:
        self.half_open: HalfOpen[T] = HalfOpen()
        self._is_short = False  # of descriptors: logged once, until it is over

    def shortage(self, descriptor: int, connections: int, options: FrontendOptions) -> str:
        """Why no further connection can be accepted, from any peer; empty: it can.

        descriptor: the number of its socket. connections: how many are open without it.
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
        """Log that no connection can be accepted, or (no reason) that one was."""
        if why and not self._is_short:
            logger.error("no more connections are accepted: %s", why)
        elif self._is_short and not why:
            logger.warning("connections are accepted again")
        self._is_short = bool(why)

    def make_room(
        self, peer: Peer, *, is_trusted: bool, options: FrontendOptions, is_short: bool, now_ns: int
    ) -> T | None:
        """Find a place for a newcomer among those that are not logged in; they make room if anything is short.

        They have at most half of the descriptors that connections have: the rest is for those that do log in.
        Returns: the connection that loses its place, and is to be closed. Raises: NoPlace.
        """
        places = options.half_open_max
        if options.descriptor_max is not None:
            places = min(places, max(options.descriptor_max // 2, 1))
        if is_short:
            places = min(places, len(self.half_open))
        return self.half_open.make_room(peer.origin, is_trusted=is_trusted, now_ns=now_ns, places=places)


def is_beyond(descriptor: int, options: FrontendOptions) -> bool:
    """Whether a descriptor is one of those that are reserved for files."""
    return options.descriptor_max is not None and descriptor >= options.descriptor_max
