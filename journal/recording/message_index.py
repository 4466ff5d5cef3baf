"""Where messages are: the LSNs of their contents, and the durable queues that hold them.

Ids and LSNs rise by one within a run of messages that were published together, so a run costs 24 octets however long it
is.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator, Sequence

from ...engine import Broker
from ...engine.state import picture_of, stretches
from .object_recorder import ObjectRecorder

#: Ids that `keep_only` copies between two pauses (about 5 ms).
KEEP_SLICE = 5_000


class ContentIndex:
    """Message id -> LSN of its content. Runs are added in the order of ids; `keep_only` drops unused ones."""

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lsns = array("q")
        self._counts = array("q")
        self._moved: dict[int, int] = {}  # id -> LSN of the copy, of contents that the journal copied forward
        self._recalled: set[int] = set()  # ids of messages that came back from the log since `begin_forgetting`

    def __len__(self) -> int:
        return len(self._firsts)

    @property
    def last_id(self) -> int:
        """The highest id in the index; 0: it is empty."""
        return self._firsts[-1] + self._counts[-1] - 1 if self._firsts else 0

    def add(self, first_id: int, count: int, lsn: int) -> None:
        """Add a run; `first_id` is above all ids that were added before."""
        if self._firsts:
            length = self._counts[-1]
            if first_id == self._firsts[-1] + length and lsn == self._lsns[-1] + length:
                self._counts[-1] = length + count
                return
        self._firsts.append(first_id)
        self._lsns.append(lsn)
        self._counts.append(count)

    def move(self, id_: int, lsn: int) -> None:
        self._moved[id_] = lsn

    def recall(self, id_: int, location: int) -> int:
        """Index a message that comes back from the log, where its content is at `location`. Returns its LSN."""
        lsn = self.lsn_of(id_)
        if lsn is None:
            lsn = location
        self._moved[id_] = lsn
        self._recalled.add(id_)
        return lsn

    def lsn_of(self, id_: int) -> int | None:
        """LSN of the message's content; None: it is not indexed."""
        if self._moved and id_ in self._moved:
            return self._moved[id_]
        at = bisect_right(self._firsts, id_) - 1
        if at < 0 or id_ >= self._firsts[at] + self._counts[at]:
            return None
        return self._lsns[at] + id_ - self._firsts[at]

    def runs(self, ids: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """(first id, its LSN, length) of runs that cover these rising ids. Raises: KeyError: an id is not indexed."""
        if not isinstance(ids, range):
            for stretch in stretches(ids):
                yield from self.runs(stretch)
            return
        has_moved = bool(self._moved) and not self._moved.keys().isdisjoint(ids)
        at = bisect_right(self._firsts, ids.start) - 1
        id_ = ids.start
        while id_ < ids.stop:
            if has_moved:
                lsn = self.lsn_of(id_)
                if lsn is None:
                    raise KeyError(id_)
                yield id_, lsn, 1
                id_ += 1
                continue
            if at < 0 or at == len(self._firsts) or not 0 <= (offset := id_ - self._firsts[at]) < self._counts[at]:
                raise KeyError(id_)
            count = min(self._counts[at] - offset, ids.stop - id_)
            yield id_, self._lsns[at] + offset, count
            id_ += count
            at += 1

    def begin_forgetting(self) -> None:
        """Call this before looking up the ids to keep: messages recalled from now on are kept in any case."""
        self._recalled.clear()

    def forget_before(self, id_: int) -> None:
        """Drop runs below this id, when there are enough of them to be worth the work."""
        at = bisect_right(self._firsts, id_) - 1
        if at > 1000 or at * 2 > len(self._firsts):
            del self._firsts[:at], self._lsns[:at], self._counts[:at]
            recalled = self._recalled
            self._moved = {one: lsn for one, lsn in self._moved.items() if one >= id_ or one in recalled}

    def keep_only(self, ids: Sequence[int], next_id: int) -> Iterator[None]:
        """Drop all ids below `next_id` except these (rising). Pauses after each slice; `add` may be called then."""
        kept = ContentIndex()
        moved_before = self._moved.copy()
        for start in range(0, len(ids), KEEP_SLICE):
            if start:
                yield
            for id_ in ids[start : start + KEEP_SLICE]:
                lsn = self.lsn_of(id_)
                if lsn is not None:
                    kept.add(id_, 1, lsn)
        for at in range(max(0, bisect_right(self._firsts, next_id) - 1), len(self._firsts)):
            first, stop = max(self._firsts[at], next_id), self._firsts[at] + self._counts[at]
            if first < stop:
                kept.add(first, stop - first, self._lsns[at] + first - self._firsts[at])
        recalled = self._recalled
        moved = {one: lsn for one, lsn in self._moved.items() if moved_before.get(one) != lsn or one in recalled}
        self._firsts, self._lsns, self._counts, self._moved = kept._firsts, kept._lsns, kept._counts, moved


def message_index(
    broker: Broker, objects: ObjectRecorder, left: Container[tuple[int, int]] = ()
) -> Callable[[int], tuple[int, ...]]:
    """A function from a message id to the ids of the durable queues that hold the message now, for moving contents.

    O(messages in memory + runs); each call of the function is O(queues log runs). `left`: (id of a queue, message id)
    of messages that have left since: see `ConcurrentChanges.departures`.
    """
    in_memory: dict[int, tuple[int, ...]] = {}  # message id -> ids of queues
    paged: list[tuple[int, list[Sequence[int]]]] = []
    for vhost in broker.virtual_hosts.values():
        for queue in vhost.queues.values():
            if not queue.durable:
                continue
            id_, picture = objects.queue_id(queue), picture_of(queue)
            levels: dict[int, list[Sequence[int]]] = {}  # within each, runs do not overlap
            for part in picture.parts:
                levels.setdefault(part.level, []).append(part.ids)
            paged.extend((id_, sorted(runs, key=_first)) for runs in levels.values())
            for message in picture.messages:
                if message.envelope.summary.persistent:
                    in_memory[message.id] = (*in_memory.get(message.id, ()), id_)

    def queues_of(id_: int) -> tuple[int, ...]:
        found = in_memory.get(id_, ())
        for queue_id, runs in paged:
            at = bisect_right(runs, id_, key=_first) - 1
            if at >= 0 and _has(runs[at], id_):
                found = (*found, queue_id)
        return tuple(queue_id for queue_id in found if (queue_id, id_) not in left)

    return queues_of


def _first(ids: Sequence[int]) -> int:
    return ids[0]


def _has(ids: Sequence[int], id_: int) -> bool:
    """Whether `id_` is one of the rising ids."""
    if isinstance(ids, range):
        return id_ in ids
    at = bisect_left(ids, id_)
    return at < len(ids) and ids[at] == id_
