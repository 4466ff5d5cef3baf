"""The site that owns each message of a leased queue. Consumers at that site get the message first.

A message is owned by the site of its publisher, or by the queue's initial owner, until it is transferred. If the broker
forgets owners, messages are delivered in another order, but all are. Source: cluster page 12.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain, islice, pairwise
from struct import Struct

from ..sites import Sites

#: Number of arrivals that a queue notes one by one. Further ones within 1/`TOGETHER` of `Sites.transfer_after_ns` are
#: noted together, with the time of the last.
ALONE, TOGETHER = 64, 50
#: Maximum owners of a queue. The messages of further ones belong to the broker's own site.
OWNERS_MAX = 30
#: Encoding of a change. One octet: 5 bits for the number, then 2 bits for the distance in ids to the change before,
#: minus 1. If the high bit is set, these 2 bits and the next octet are the distance minus 5. If all 10 bits are set,
#: the distance beyond `_FAR` follows: 7 bits an octet, the lowest first; each octet but the last has its high bit set.
_NUMBER_BITS, _NUMBER, _LONG, _NEAR, _FAR = 5, 31, 128, 4, 1028
#: Octets of changes in a block, which is searched from its begin.
BLOCK = 128
#: Maximum octets of a queue's changes in a checkpoint. It has the newest ones.
KEPT_OCTETS = 256 * 1024
_HEAD, _MOVED = Struct(">qH"), Struct(">qB")
#: Maximum ids that are inserted into a sorted list, or removed, one by one.
_FEW = 16
#: Higher than any message id.
_END = 1 << 62


class OwnerRuns:
    """Numbers of owners by message id, as changes from one id to the next.

    A change takes one octet; from a distance of 5 on it takes two, from 1,028 on three or more. Blocks and room to grow
    take a fifth more. `newest`: for each number the highest id that it may have. `last_id`: the id of the last change;
    lower ids cannot be appended. 0: there is none.
    """

    def __init__(self) -> None:
        self._firsts = array("q")  # id of the first change of each block
        self._starts = array("Q")  # where each block begins in ...
        self._octets = array("B")  # ... all of them
        self.last_id = 0
        self._number = -1  # of the last change
        self.newest: dict[int, int] = {}
        self._at = -1  # the block that was read last, ...
        self._ids: list[int] = []  # ... and its changes
        self._numbers: list[int] = []

    def __len__(self) -> int:
        """Octets in blocks."""
        return len(self._octets)

    def append(self, first_id: int, last_id: int, number: int) -> None:
        """Set the owner of messages whose ids are above all others."""
        if number != self._number:
            octets, starts = self._octets, self._starts
            if not starts or len(octets) - starts[-1] >= BLOCK:
                self._firsts.append(first_id)
                starts.append(len(octets))
                octets.append(number)
            else:
                distance = first_id - self.last_id
                if distance <= _NEAR:
                    octets.append((distance - 1) << _NUMBER_BITS | number)
                else:
                    more = min(distance, _FAR) - _NEAR - 1
                    octets.extend((_LONG | more >> 8 << _NUMBER_BITS | number, more & 255))
                    rest = distance - _FAR
                    while rest > 127:
                        octets.append(rest & 127 | 128)
                        rest >>= 7
                    if rest >= 0:
                        octets.append(rest)
                if self._at == len(starts) - 1:
                    self._ids.append(first_id)
                    self._numbers.append(number)
            self.last_id, self._number = first_id, number
        self.newest[number] = last_id

    def number_of(self, id_: int) -> int:
        """The number of a message's owner; 0: not known."""
        if id_ >= self.last_id:
            return max(self._number, 0)
        at = self._at
        if at < 0 or id_ < self._firsts[at] or (at + 1 < len(self._firsts) and id_ >= self._firsts[at + 1]):
            at = bisect_right(self._firsts, id_) - 1
            if at < 0:
                return 0
            self._read(at)
        return self._numbers[bisect_right(self._ids, id_) - 1]

    def _block(self, at: int) -> "array[int]":
        end = self._starts[at + 1] if at + 1 < len(self._starts) else len(self._octets)
        return self._octets[self._starts[at] : end]

    def _read(self, at: int) -> None:
        """Read the changes of a block: first ids, and numbers."""
        id_ = self._firsts[at] - 1
        ids: list[int] = []
        numbers: list[int] = []
        octets = iter(self._block(at))
        for octet in octets:
            distance = (octet >> _NUMBER_BITS & 3) + 1
            if octet & _LONG:
                distance = ((distance - 1) << 8 | next(octets, 0)) + _NEAR + 1
                if distance == _FAR:
                    for shift, more in enumerate(octets):
                        distance += (more & 127) << 7 * shift
                        if more < 128:
                            break
            id_ += distance
            ids.append(id_)
            numbers.append(octet & _NUMBER)
        self._at, self._ids, self._numbers = at, ids, numbers

    def have_one_owner(self, first_id: int, last_id: int) -> bool:
        """Whether all messages from one id to another have one owner. False also if they are in two blocks."""
        if first_id >= self.last_id:
            return True
        self.number_of(first_id)
        if not self._ids or not self._ids[0] <= first_id:
            return False
        at = bisect_right(self._ids, first_id)
        return at < len(self._ids) and last_id < self._ids[at]

    def next_of(self, number: int, after: int) -> int | None:
        """The lowest id above `after` that this owner may have; None: there is none."""
        if after >= self.newest.get(number, -1):
            return None
        if self.number_of(after + 1) == number:
            return after + 1
        for at in range(max(bisect_right(self._firsts, after + 1) - 1, 0), len(self._firsts)):
            if at != self._at:
                self._read(at)
            for change, other in zip(self._ids, self._numbers):
                if other == number and change > after:
                    return change
        self.newest[number] = after
        return None

    def next_unknown(self, after: int) -> int | None:
        """The lowest id above `after` whose owner may be unknown; None: there is none."""
        if not self._firsts or after + 1 < self._firsts[0]:
            return after + 1
        return self.next_of(0, after)

    def add(self, id_: int) -> int:
        """Add a message with an id among known ones. Returns the number of its owner; 0: not known."""
        number = self.number_of(id_)
        self.newest[number] = max(self.newest.get(number, -1), id_)
        return number

    def of(self, ids: Iterable[int]) -> "OwnerRuns":
        """A copy with the owners of these messages only. `ids`: rising."""
        runs = OwnerRuns()
        for id_ in ids:
            runs.append(id_, id_, self.number_of(id_))
        return runs

    def trim(self, below_id: int) -> None:
        """Forget whole blocks of messages below an id."""
        count = max(bisect_right(self._firsts, below_id) - 1, 0)
        if count:
            gone = self._starts[count]
            del self._firsts[:count], self._octets[:gone]
            self._starts = array("Q", (start - gone for start in self._starts[count:]))
            self._at = -1

    def to_octets(self) -> bytes:
        """The newest changes in `KEPT_OCTETS`, for `restore`."""
        parts: list[bytes] = []
        size = 0
        for at in reversed(range(len(self._firsts))):
            block = self._block(at)
            size += _HEAD.size + len(block)
            if size > KEPT_OCTETS:
                break
            parts.append(_HEAD.pack(self._firsts[at], len(block)) + block.tobytes())
        return b"".join(reversed(parts))

    def restore(self, octets: bytes) -> None:
        """Add the changes of `to_octets` to an empty object."""
        at = 0
        while at + _HEAD.size <= len(octets):
            first, count = _HEAD.unpack_from(octets, at)
            at += _HEAD.size
            self._firsts.append(first)
            self._starts.append(len(self._octets))
            self._octets.frombytes(octets[at : at + count])
            at += count
        for block in range(len(self._firsts)):
            self._read(block)
            self.newest.update(dict.fromkeys(self._numbers, _END))  # an upper limit: the ends of runs are not known
            self.last_id, self._number = self._ids[-1], self._numbers[-1]


class Waits:
    """The times at which messages arrived or became due, until they have waited long enough for their owner."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._marks: deque[list[int]] = deque()  # [monotonic ns of the first arrival, of the last, its last id]
        self._due: deque[tuple[int, list[int]]] = deque()  # (monotonic ns, ids of delayed messages ready since then)
        self.delayed: set[int] = set()  # all ids in `_due`
        self.waited_id = 0  # messages up to it have waited long enough, but for those in `delayed`

    def has_waited(self, id_: int) -> bool:
        """Whether a message has waited long enough."""
        return id_ <= self.waited_id and id_ not in self.delayed

    def came_due(self, ids: Iterable[int], now_ns: int) -> None:
        """Note delayed messages that have become ready."""
        self._due.append((now_ns, list(ids)))
        self.delayed.update(self._due[-1][1])
        self.forget_waited(now_ns)

    def note(self, last_id: int, now_ns: int) -> None:
        """Note the arrival of messages up to this id."""
        marks = self._marks
        together_ns = self._sites.transfer_after_ns // TOGETHER if len(marks) >= ALONE else 0
        if marks and now_ns - marks[-1][0] <= together_ns:
            marks[-1][1:] = now_ns, last_id
        else:
            marks.append([now_ns, now_ns, last_id])
        self.forget_waited(now_ns)

    def forget_waited(self, now_ns: int) -> None:
        """Forget messages that have waited long enough."""
        marks, due, since_ns = self._marks, self._due, now_ns - self._sites.transfer_after_ns
        while marks and marks[0][1] <= since_ns:
            self.waited_id = marks.popleft()[2]
        while due and due[0][0] <= since_ns:
            self.delayed.difference_update(due.popleft()[1])

    def next_ns(self) -> int:
        """When the next messages have waited long enough (monotonic ns); 0: all have."""
        times = [self._marks[0][1]] if self._marks else []
        times += [self._due[0][0]] if self._due else []
        return min(times) + self._sites.transfer_after_ns if times else 0


class Owners:
    """The owners of one queue's messages. `names`: by number. Number 0: the owner is unknown, so the broker's own site
    owns the message.

    `moved`: id of a transferred message -> number of its owner. `moved_ready`: number -> ids, rising, of the
    transferred messages that are ready. `waits`: how long messages wait. `last_target`: number of the site that got
    the last transfer.
    """

    def __init__(self, sites: Sites, initial: str | None) -> None:
        """`initial`: the owner of all new messages; None: the sites of their publishers."""
        self._sites = sites
        self._initial = initial
        self.names: list[str] = [""]
        self._numbers: dict[str, int] = {}
        self.is_changed = False  # `names` have changed since they were recorded
        self.runs = OwnerRuns()
        self.moved: dict[int, int] = {}
        self.moved_ready: dict[int, list[int]] = {}
        self.waits = Waits(sites)
        self.last_target = 0

    @property
    def own(self) -> str:
        """The broker's own site."""
        return self._sites.own

    def number_of_site(self, site: str) -> int:
        """The number of a site; a new one gets the next number, or, if none is left, that of the broker's own site."""
        number = self._numbers.get(site)
        if number is None:
            if len(self.names) > OWNERS_MAX:
                return 0 if site == self._sites.own else self.own_number()
            number = self._numbers[site] = len(self.names)
            self.names.append(site)
            self.is_changed = True
        return number

    def own_number(self) -> int:
        """The number of the broker's own site; 0 if none was left for it."""
        return self.number_of_site(self._sites.own)

    def numbers(self) -> range:
        """The numbers that `owner_of` may return."""
        return range(1 if self.own_number() else 0, len(self.names))

    def set_names(self, names: Sequence[str]) -> None:
        """Set the names, in the order of their numbers, from 1 on."""
        for name in names:
            self.number_of_site(name)
        self.is_changed = False

    def name_of(self, number: int) -> str:
        return self.names[number] or self._sites.own if number < len(self.names) else self._sites.own

    def moved_octets(self) -> bytes:
        """The transferred messages that fit into `KEPT_OCTETS`, for `restore`."""
        return b"".join(_MOVED.pack(*one) for one in islice(self.moved.items(), KEPT_OCTETS // _MOVED.size))

    def restore(
        self, octets: tuple[bytes, bytes], runs: Iterable[tuple[int, int]], transferred: Mapping[int, int], last_id: int
    ) -> None:
        """Restore the owners up to the message `last_id`. `octets`: from a checkpoint: changes, transferred messages.

        `runs`, `transferred`: from later records.
        """
        self.runs.restore(octets[0])
        if any(number >= len(self.names) for number in self.runs.newest):
            self.runs = OwnerRuns()
        count, append, known_id = len(self.names), self.runs.append, self.runs.last_id
        for (first_id, number), (next_id, _) in pairwise(chain(runs, ((last_id + 1, 0),))):
            if first_id > known_id:
                append(first_id, next_id - 1, number if number < count else 0)
        self.moved.update(_MOVED.iter_unpack(octets[1]))
        self.moved.update(transferred)
        own_number = self.own_number()
        self.moved = {id_: number if 0 < number < count else own_number for id_, number in self.moved.items()}
        self.note_ready(self.moved)
        self.waits.waited_id = last_id

    def add_new(self, first_id: int, count: int, now_ns: int) -> int:
        """Add new messages. Returns: the number of their owner."""
        number = self.number_of_site(self._initial or self._sites.now)
        last_id = first_id + count - 1
        self.set_owner(first_id, last_id, number)
        self.waits.note(last_id, now_ns)
        return number

    def add_from_log(self, id_: int) -> int:
        """Add a message from the log, which need not wait. Returns: the number of its owner."""
        self.waits.waited_id = max(self.waits.waited_id, id_)
        return self.runs.add(id_) or self.own_number()

    def set_owner(self, first_id: int, last_id: int, number: int) -> None:
        """Set the owner of ready messages with these ids."""
        if first_id > self.runs.last_id:
            self.runs.append(first_id, last_id, number)
        elif self.runs.number_of(first_id) != number:
            ids = range(first_id, last_id + 1)
            self.move(ids, number)
            self.note_ready(ids)

    def owner_of(self, id_: int) -> int:
        """The number of a message's owner."""
        moved = self.moved
        if moved and (number := moved.get(id_)) is not None:
            return number
        return self.runs.number_of(id_) or self.own_number()

    def site_of(self, id_: int) -> str:
        """The site that owns a message."""
        return self.name_of(self.owner_of(id_))

    def move(self, ids: Iterable[int], number: int) -> None:
        """Transfer messages, and note that they are no longer ready."""
        ids = list(ids)
        self.note_taken(ids)
        self.moved.update(dict.fromkeys(ids, number))

    def note_ready(self, ids: Iterable[int]) -> None:
        """Note messages that are ready again."""
        for number, some in self._by_number(ids).items():
            ready_ids = self.moved_ready.setdefault(number, [])
            if len(some) > _FEW:
                ready_ids[:] = sorted({*ready_ids, *some})
                some = ()
            for id_ in some:
                at = bisect_left(ready_ids, id_)
                if ready_ids[at : at + 1] != [id_]:
                    ready_ids.insert(at, id_)

    def note_taken(self, ids: Iterable[int]) -> None:
        """Note messages that are no longer ready."""
        for number, some in (self._by_number(ids) if self.moved_ready else {}).items():
            ready_ids = self.moved_ready.get(number, [])
            if len(some) > _FEW:
                ready_ids[:] = sorted({*ready_ids}.difference(some))
                some = ()
            for id_ in some:
                at = bisect_left(ready_ids, id_)
                if ready_ids[at : at + 1] == [id_]:
                    del ready_ids[at]
            if not ready_ids:
                self.moved_ready.pop(number, None)

    def _by_number(self, ids: Iterable[int]) -> Mapping[int, Sequence[int]]:
        """The transferred ones of these messages, by owner."""
        some: dict[int, list[int]] = {}
        for id_ in ids if self.moved else ():
            if (number := self.moved.get(id_)) is not None:
                some.setdefault(number, []).append(id_)
        return some

    def keep(self, ids: Container[int]) -> None:
        """Forget the transfers of all messages but these."""
        self.forget([id_ for id_ in self.moved if id_ not in ids])

    def forget(self, ids: Iterable[int]) -> None:
        """Forget the transfers of messages that are gone."""
        if self.moved:
            ids = list(ids)
            self.note_taken(ids)
            for id_ in ids:
                self.moved.pop(id_, None)

    def next_id_of(self, number: int, after: int) -> int | None:
        """The lowest id above `after` of a message that a site may own; None: there is none."""
        ready_ids = self.moved_ready.get(number, ())
        at = bisect_right(ready_ids, after)
        moved = ready_ids[at] if at < len(ready_ids) else None
        found = self.runs.next_of(number, after) if number else None
        unknown = self.runs.next_unknown(after) if number == self.own_number() else None
        return min((id_ for id_ in (moved, found, unknown) if id_ is not None), default=None)

    def is_stranded(self, number: int) -> bool:
        """Whether the owner was given up, or was never present."""
        return self._sites.is_lost(self.name_of(number))

    def count(self, ids: Iterable[int]) -> Counter[str]:
        """Messages by owner. O(messages)."""
        return Counter(map(self.site_of, ids))
