"""Publisher confirms: counts the publishes of a session, and tells which confirms are due. A frontend sends them."""

from collections import deque
from collections.abc import Sequence


class Confirms:
    """The confirms of one session. Sequence numbers start at 1 with the first publish after confirm.select.

    `waiting`: publishes that wait for the journal. Source: behaviour page 2.14.
    """

    __slots__ = ("confirmed", "published", "refused", "refused_count", "waiting")

    def __init__(self) -> None:
        self.published = 0
        self.confirmed = 0
        self.refused_count = 0  # nacks among the answered publishes
        self.refused: list[int] = []  # sequence numbers, rising
        self.waiting: deque[tuple[int, int]] = deque()  # (first sequence number, LSN), both rising

    @property
    def acknowledged(self) -> int:
        """The number of publishes answered with an ack."""
        return self.confirmed - self.refused_count

    def add(self, count: int, refused: Sequence[int], sync_lsn: int = 0) -> None:
        """Count publishes. `refused`: offsets of the refused ones among them.

        `sync_lsn`: the LSN that must be safe before these and later publishes are confirmed; 0: none.
        """
        if refused:
            self.refused += [self.published + 1 + offset for offset in refused]
        if sync_lsn and count:
            self.waiting.append((self.published + 1, sync_lsn))
        self.published += count

    def refuse_waiting(self, safe_lsn: int = 0) -> None:
        """Refuse the publishes that wait for the journal, because it failed. `safe_lsn`: the last safe LSN."""
        self._drop_safe(safe_lsn)
        if self.waiting:
            first = self.waiting[0][0]
            self.refused = [tag for tag in self.refused if tag < first] + list(range(first, self.published + 1))
            self.waiting.clear()

    def take(self, safe_lsn: int = 0) -> list[tuple[int, bool, bool]]:
        """Take the confirms to send now, as (tag, multiple, is_ack), tags rising. A multiple covers acks only.

        `safe_lsn`: the last safe LSN of the journal.
        """
        waiting = self.waiting
        if not waiting and not self.refused:  # as below, at a tenth of the cost
            tag, pending = self.published, self.published - self.confirmed
            self.confirmed = tag
            return [(tag, pending > 1, True)] if pending else []
        self._drop_safe(safe_lsn)
        last = waiting[0][0] - 1 if waiting else self.published
        taken: list[tuple[int, bool, bool]] = []
        if self.refused:
            for tag in self.refused:
                if tag > last:
                    break
                self._take_up_to(tag - 1, taken)
                taken.append((tag, False, False))
                self.confirmed = tag
                self.refused_count += 1
            self.refused = [tag for tag in self.refused if tag > last]
        self._take_up_to(last, taken)
        return taken

    def _drop_safe(self, safe_lsn: int) -> None:
        waiting = self.waiting
        while waiting and waiting[0][1] <= safe_lsn:
            waiting.popleft()

    def _take_up_to(self, tag: int, taken: list[tuple[int, bool, bool]]) -> None:
        pending = tag - self.confirmed
        if pending:
            taken.append((tag, pending > 1, True))
            self.confirmed = tag
