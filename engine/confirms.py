"""Publisher confirms: which publishes of a session the broker has taken care of. Source: behaviour page 2.14."""

from collections.abc import Sequence


class Confirms:
    """Publisher confirms of one session: which publishes the broker has taken care of.

    Sequence numbers start at 1 with the first publish after the mode was chosen. Source: behaviour page 2.14.
    """

    __slots__ = ("confirmed", "published", "refused")

    def __init__(self) -> None:
        self.published = 0
        self.confirmed = 0
        self.refused: list[int] = []  # sequence numbers, rising

    def add(self, count: int, refused: Sequence[int]) -> None:
        """`count` more were published; those at the offsets `refused` were not taken."""
        if refused:
            self.refused += [self.published + 1 + offset for offset in refused]
        self.published += count

    def take(self) -> list[tuple[int, bool, bool]]:
        """The confirms to send now, as (tag, multiple, is_ack) in rising order; a multiple covers only its like."""
        taken: list[tuple[int, bool, bool]] = []
        for tag in self.refused:
            self._take_up_to(tag - 1, taken)
            taken.append((tag, False, False))
            self.confirmed = tag
        self.refused = []
        self._take_up_to(self.published, taken)
        return taken

    def _take_up_to(self, tag: int, taken: list[tuple[int, bool, bool]]) -> None:
        pending = tag - self.confirmed
        if pending:
            taken.append((tag, pending > 1, True))
            self.confirmed = tag
