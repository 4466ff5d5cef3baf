"""The publishes that frontends park for blocked clients. `control.py` blocks and releases the clients.

Source: queues page E.5, "Hold area".
"""

from typing import Protocol

#: Percentage of the broker's memory for the parked publishes of all clients.
WHOLE_PERCENT = 5


class Parked(Protocol):
    """The parked publishes of one client. `publishes`: number of messages; `octets`: their size in memory; `spooled`:
    their size in the temp store. `is_reading_paused`: nothing is read from its socket, because too much is parked.
    """

    publishes: int
    octets: int
    spooled: int
    is_reading_paused: bool


class ParkedTotal:
    """The parked publishes of all clients. `octets`: their size in memory; `spooled`: their size in the temp store.

    `limit`: maximum of `octets`; 0: no limit.
    """

    def __init__(self) -> None:
        self.octets = self.spooled = 0
        self.limit = 0

    def set_limit(self, memory: int) -> None:
        """Set the limit to a share of `memory`, the broker's memory limit in octets; 0: no limit."""
        self.limit = max(1, memory * WHOLE_PERCENT // 100) if memory else 0

    def has_room(self, octets: int) -> bool:
        """Whether these octets may be parked in memory in addition."""
        return not self.limit or self.octets + octets <= self.limit
