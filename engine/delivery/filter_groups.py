"""Groups of consumers with equal filters, so that a filter is evaluated once for a message.

A group has its position in the queue, and the matches up to it (`FilterGroup.found`). `queues/searching.py`
searches, and `queues/selection.py` chooses consumers. Source: queues page A.4 (a consumer gets the oldest message that
it takes), B.5, F.1, F.2 (FilterGroup), F.6.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ...expressions.language import Expression
from ...settings.slotted import slotted
from ..messages.message import Message
from .consumer import Consumer
from .filters import MessageSubject
from .groups import GroupedMessage

if TYPE_CHECKING:
    from ..context import BrokerContext

#: Units of effort of a filter's evaluation (2 to 3 us), and octets of a JSON body read per further unit.
EVALUATION_EFFORT, READ_OCTETS = 2, 64
#: Cost units of the filter language (10 ns) per unit of effort.
COST_PER_EFFORT = 120
#: Messages, and their octets, for which results of filters are cached.
CACHED_MAX, CACHED_OCTETS = 500, 1024 * 1024
#: Maximum number of returned messages that wait for filters. Beyond it, groups search again from the first of them.
RETURNED_MAX = 100_000


class Match(NamedTuple):
    """A message that a group takes. `octets`: of its content; `member`: the message, if it is in a message group."""

    position: int
    octets: int
    member: GroupedMessage | None = None


_position_of = attrgetter("position")


class FilterGroup:
    """Consumers of one queue with equal filters. `expression`: the filter; None: all messages match.

    `position`: all messages up to it are tested. `is_at_end`: there are no messages after it. `found`: matches up to
    `position`, positions rising; consumers of other groups may have got some of them.
    """

    __slots__ = ("consumers", "expression", "found", "is_at_end", "position")

    def __init__(self, expression: Expression | None) -> None:
        self.consumers: list[Consumer] = []
        self.expression = expression
        self.found: list[Match] = []
        self.position = 0
        self.is_at_end = False

    def add(self, match: Match) -> None:
        """Add a match at or before `position`."""
        found = self.found
        if found and found[-1].position >= match.position:
            at = bisect_left(found, match.position, key=_position_of)
            if found[at].position != match.position:
                found.insert(at, match)
        else:
            found.append(match)

    def rewind(self, position: int) -> None:
        """Move back to a position, so that messages after it are tested again."""
        if position < self.position:
            self.position = position
            del self.found[bisect_right(self.found, position, key=_position_of) :]
        self.is_at_end = False


class FilterTest:
    """Tests one message with filters. The parts of the message are read once for all filters."""

    __slots__ = ("_broker", "_subject", "message")

    def __init__(self, message: Message, broker: "BrokerContext") -> None:
        self.message = message
        self._broker = broker
        self._subject: MessageSubject | None = None

    def is_taken_by(self, expression: Expression | None) -> bool:
        """Whether a filter (None: no filter) takes the message."""
        turn = self._broker.turn
        if expression is None:
            turn.effort += 1
            return True
        subject = self._subject
        if subject is None:
            subject = self._subject = MessageSubject(self.message)
        was_read = subject.is_read
        takes = expression.matches(subject)
        turn.effort += EVALUATION_EFFORT + subject.spent // COST_PER_EFFORT
        if subject.is_read and not was_read:
            turn.effort += len(self.message.content) // READ_OCTETS
        return takes


class FilterCache:
    """Caches results of filters, for consumers that read the same messages, each from its position."""

    __slots__ = ("_results", "_tests", "_broker", "_octets")

    def __init__(self, broker: "BrokerContext") -> None:
        self._broker = broker
        self._tests: dict[int, FilterTest] = {}
        self._results: dict[tuple[int, Expression], bool] = {}
        self._octets = 0

    def takes(self, expression: Expression, message: Message) -> bool:
        """Whether a filter takes a message, whose content must not change."""
        key = (message.id, expression)
        result = self._results.get(key)
        if result is None:
            test = self._tests.get(message.id)
            if test is None:
                self._octets += len(message.content)
                if len(self._tests) >= CACHED_MAX or self._octets > CACHED_OCTETS:
                    self._tests.clear()
                    self._results.clear()
                    self._octets = len(message.content)
                test = self._tests[message.id] = FilterTest(message, self._broker)
            result = self._results[key] = test.is_taken_by(expression)
        else:
            self._broker.turn.effort += 1
        return result


@slotted
class Returned:
    """Positions of messages that returned after `groups` had tested them. `next`: index of the first to test again."""

    positions: Sequence[int]
    groups: list[FilterGroup]
    next: int = 0


class FilterGroups:
    """The groups of one queue. `returned`: returned messages, which groups test before they continue."""

    def __init__(self, broker: "BrokerContext") -> None:
        self._broker = broker
        self._by_key: dict[object, FilterGroup] = {}
        self._of: dict[Consumer, FilterGroup] = {}
        self.returned: deque[Returned] = deque()
        self._returned_count = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[FilterGroup]:
        return iter(self._by_key.values())

    @property
    def must_search(self) -> bool:
        """Whether messages have to be searched for consumers: one of them has a filter."""
        return any(group.expression is not None for group in self)

    def of(self, consumer: Consumer) -> FilterGroup:
        """The group of a consumer that has joined."""
        return self._of[consumer]

    def join(self, consumer: Consumer) -> FilterGroup:
        """Add a consumer. A new group begins at the head."""
        expression = consumer.filter
        key = None if expression is None else expression.key
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = FilterGroup(expression)
        group.consumers.append(consumer)
        self._of[consumer] = group
        return group

    def leave(self, consumers: Iterable[Consumer]) -> None:
        """Remove consumers; a group goes with its last consumer."""
        for consumer in consumers:
            group = self._of.pop(consumer)
            group.consumers.remove(consumer)
            if not group.consumers:
                del self._by_key[None if group.expression is None else group.expression.key]
                for returned in self.returned:
                    if group in returned.groups:
                        returned.groups.remove(group)

    # -- tests --------------------------------------------------------------------------------------------------------

    def test_of(self, message: Message) -> FilterTest:
        return FilterTest(message, self._broker)

    def note_returned(self, positions: Sequence[int]) -> None:
        """Note messages that returned to these positions (rising). Groups that are beyond them will test them."""
        if not positions:
            return
        first, last = positions[0], positions[-1]
        groups = [group for group in self if group.position >= first]
        for group in self:
            if group.position < last:
                group.is_at_end = False
        if groups:
            self.returned.append(Returned(positions, groups))
            self._returned_count += len(positions)
            if self._returned_count > RETURNED_MAX:
                for returned in self.returned:
                    for group in returned.groups:
                        group.rewind(returned.positions[returned.next] - 1)
                self.returned.clear()
                self._returned_count = 0

    def drop_first_returned(self) -> None:
        """Remove the first of `returned`, whose messages are tested."""
        self._returned_count -= len(self.returned.popleft().positions)

    def start_over(self) -> None:
        """Move all groups to the head, because positions have changed."""
        self.returned.clear()
        self._returned_count = 0
        for group in self:
            group.rewind(0)
