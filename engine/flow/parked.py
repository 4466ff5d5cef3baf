"""The publishes that frontends park for blocked clients: of one client, and of all together.

`control.py` decides which publishers wait, and when they continue. Source: queues page E.5, "Hold area".
"""

from typing import Protocol

#: Percentage of the broker's memory that the parked publishes of all clients may take.
WHOLE_PERCENT = 5


class Parked(Protocol):
    """The parked publishes of one client. `publishes`: number of messages; `octets`: their size in memory; `spooled`:
    their size in the temp store. `is_unread`: too much is parked, so that the client's socket is not read.
    """

    publishes: int
    octets: int
    spooled: int
    is_unread: bool


class ParkedTotal:
    """The parked publishes of all clients. `octets`: their size in memory; `spooled`: their size in the temp store.

    `limit`: maximum of `octets`; 0: no limit.
    """

    __slots__ = ("limit", "octets", "spooled")

    def __init__(self) -> None:
        self.octets = self.spooled = 0
        self.limit = 0

    def share(self, memory: int) -> None:
        """Derive the limit from the broker's memory limit in octets; 0: none."""
        self.limit = max(1, memory * WHOLE_PERCENT // 100) if memory else 0

    def has_room(self, octets: int) -> bool:
        """Whether these octets more may be parked in memory."""
        return not self.limit or self.octets + octets <= self.limit
