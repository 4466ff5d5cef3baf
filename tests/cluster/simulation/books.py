"""What clients were told and saw, and what must follow: confirmed is there, acknowledged is gone, ids mean one thing.

A body is `PUBLISHER.NUMBER/ATTEMPT`; without the attempt, it is the key of a message that is to be there once.
"""

from __future__ import annotations

from collections import defaultdict

from .queues import RING, kind_of


def key_of(body: str) -> str:
    """What two attempts to publish one message have in common."""
    return body.partition("/")[0]


def number_of(body: str) -> tuple[str, int]:
    """The publisher, and the number of its message."""
    publisher, _, number = key_of(body).partition(".")
    return publisher, int(number)


class Books:
    """Of one world. `queue_of`: where each key was published to. `settled`: keys that are gone for good."""

    def __init__(self) -> None:
        self.queue_of: dict[str, str] = {}
        self.confirmed: set[str] = set()
        self.settled: set[str] = set()
        self.transactions: list[list[str]] = []
        self.meanings: dict[int, str] = {}  # of ids, also of what was never agreed: bookmarks have them
        self._offsets: dict[int, str] = {}  # of what a stream delivered
        self._behind: dict[str, int] = {}  # body -> LSN behind its record
        self._delivered: set[tuple[str, str]] = set()
        self._acknowledged: set[str] = set()
        self._gone: set[tuple[str, str]] = set()

    # -- what happens -----------------------------------------------------------------------------------------------

    def published(self, body: str, queue: str, lsn: int) -> None:
        """A message was sent; `lsn`: behind its record."""
        self.queue_of[key_of(body)] = queue
        self._behind[body] = lsn

    def met(self, id_: int, body: str) -> None:
        """A broker gave a message this id. A client may not have seen it."""
        before = self.meanings.setdefault(id_, body)
        assert before == body, f"the id {id_} means {before} and {body}"

    def seen(self, queue: str, body: str, agreed_lsn: int) -> None:
        """A client reads a message."""
        if kind_of(queue).is_agreed and body in self._behind and self.queue_of[key_of(body)] == queue:
            assert self._behind[body] <= agreed_lsn, f"{body} of {queue} is seen before it is agreed"

    def handed_out(self, queue: str, body: str, *, is_redelivered: bool) -> None:
        """A broker has a message for a client."""
        assert (queue, key_of(body)) not in self._gone, f"{body} of {queue} was acknowledged, and is back"
        is_again = (queue, body) in self._delivered
        assert is_redelivered or not is_again, f"{body} of {queue} comes again without a flag"
        self._delivered.add((queue, body))

    def read(self, offset: int, body: str) -> None:
        """A client read a stream."""
        before = self._offsets.setdefault(offset, body)
        assert before == body, f"the offset {offset} means {before} and {body}"
        self.settled.add(key_of(body))

    def acknowledged(self, body: str) -> None:
        """An acknowledgement was sent: perhaps it is lost with its leader, and perhaps its message is."""
        self._acknowledged.add(key_of(body))

    def gone(self, queue: str, body: str) -> None:
        """An acknowledgement is agreed."""
        self._gone.add((queue, key_of(body)))
        self.settled.add(key_of(body))

    # -- the end ----------------------------------------------------------------------------------------------------

    def check(self, left: dict[str, list[str]]) -> None:
        """`left`: bodies in the queues at the end, when consumers have taken all that they get."""
        there = {key_of(body) for bodies in left.values() for body in bodies}
        for name, bodies in left.items():
            assert kind_of(name).kept or name == "stream" or not bodies, f"{name} does not deliver {bodies[:5]}"
        consumed = {key for key in self.confirmed if not kind_of(self.queue_of[key]).kept}
        lost = consumed - self.settled - self._acknowledged
        assert not lost, f"confirmed, and lost: {sorted((self.queue_of[key], key) for key in lost)[:5]}"
        for group in self.transactions:
            known = [key for key in group if key in self.settled or key in there]
            missing = [key for key in group if key not in known and key not in self._acknowledged]
            assert not known or not missing, f"of a transaction {known[:5]} are there, {missing[:5]} are not"
        for name in ("ring", "circle"):
            if name in left:
                self._check_ring(name, [key_of(body) for body in left[name]])
        if "newest" in left:
            self._check_newest([key_of(body) for body in left["newest"]])

    def _confirmed_in(self, queue: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for key in self.confirmed:
            if self.queue_of[key] == queue:
                publisher, number = number_of(key)
                found[publisher].append(number)
        return found

    def _check_ring(self, name: str, there: list[str]) -> None:
        """A ring has what came last."""
        assert len(there) <= RING
        oldest: dict[str, int] = {}
        for publisher, number in map(number_of, there):
            assert number > oldest.setdefault(publisher, number - 1), f"the ring is out of order: {there}"
        for publisher, numbers in self._confirmed_in(name).items():
            known = [number for one, number in map(number_of, there) if one == publisher]
            wanted = [number for number in numbers if len(there) < RING or (known and number > min(known))]
            assert set(wanted) <= set(known), f"the ring has {there}, and not {sorted(wanted)[-RING:]} of {publisher}"

    def _check_newest(self, there: list[str]) -> None:
        """A last-value queue has of each key what came last."""
        newest = dict(map(number_of, there))
        for publisher, numbers in self._confirmed_in("newest").items():
            assert newest.get(publisher, 0) >= max(numbers), f"{max(numbers)} of {publisher} is confirmed: {there}"
