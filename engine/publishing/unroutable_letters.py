"""Dead letters that no queue took, counted by queue and reported early; and queues that were created for them.

Source: address-settings page 5.5; behaviour page 3.4 (RabbitMQ drops them in silence).
"""

from collections.abc import Callable
from dataclasses import dataclass

#: Maximum pairs of a queue and an address that are counted separately; further ones count in the sum alone.
PLACES_MAX = 1000


@dataclass(slots=True, frozen=True, order=True)
class Unroutable:
    """`queue`: the queue in which the messages died; empty: they reached none. `address`: their dead-letter address."""

    vhost: str
    queue: str
    address: str
    count: int


class UnroutableLetters:
    """Unroutable dead letters of one broker since its start. `count`: their number.

    `on_unroutable`: called with the first, the tenth, the hundredth ... of one queue and address. `on_made`: called
    with a virtual host, a queue that was created there, and its address, to which nothing else was bound.
    """

    __slots__ = ("_by_place", "count", "on_made", "on_unroutable")

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, str, str], int] = {}
        self.count = 0
        self.on_unroutable: Callable[[Unroutable], object] = lambda found: None
        self.on_made: Callable[[str, str, str], object] = lambda vhost, queue, address: None

    def note(self, vhost: str, queue: str, address: str) -> None:
        """Count one more dead letter of a queue that no queue at `address` took."""
        self.count += 1
        place = (vhost, queue, address)
        count = self._by_place.get(place, 0) + 1
        if count == 1 and len(self._by_place) >= PLACES_MAX:
            return
        self._by_place[place] = count
        if str(count).strip("0") == "1":
            self.on_unroutable(Unroutable(vhost, queue, address, count))

    def places(self) -> list[Unroutable]:
        """All counts by queue and address, the largest first."""
        found = [Unroutable(*place, count) for place, count in self._by_place.items()]
        return sorted(found, key=lambda one: (-one.count, one))
