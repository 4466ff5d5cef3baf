"""What frontends hold of publishers that wait: of one client, and in memory of all together.

Source: queues page E.5, "Hold area".
"""

from typing import Protocol

#: The share of the broker's memory, in percent, that what is held of all clients may take.
WHOLE_PERCENT = 5


class Parked(Protocol):
    """Of one client. `publishes`: messages, wherever they are. `octets`: of what is in memory; `spooled`: in the temp
    store. `is_unread`: that is so much that the client is not read.
    """

    publishes: int
    octets: int
    spooled: int
    is_unread: bool


class ParkedTotal:
    """`octets`: of what is held in memory of all clients; `spooled`: in the temp store.

    `limit`: how many octets may be held in memory; 0: any number.
    """

    __slots__ = ("limit", "octets", "spooled")

    def __init__(self) -> None:
        self.octets = self.spooled = 0
        self.limit = 0

    def share(self, memory: int) -> None:
        """The broker may use so much memory; 0: that is not limited."""
        self.limit = max(1, memory * WHOLE_PERCENT // 100) if memory else 0

    def has_room(self, octets: int) -> bool:
        """Whether so much more may be held in memory."""
        return not self.limit or self.octets + octets <= self.limit
