"""Groups of consumers with equal filters: the filter is evaluated once for a message.

A group has its position in the queue, and the messages that it found and that are not delivered yet. The search itself
and the choice of consumers are in `queues/searching.py` and `queues/selection.py`.
Source: queues page A.4 (a consumer gets the oldest message that it takes), B.5, F.1, F.2 (FilterGroup), F.6.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ...expressions.language import Expression
from ..messages.message import Message
from .consumer import Consumer
from .filters import MessageSubject
from .groups import GroupedMessage

if TYPE_CHECKING:
    from ..context import BrokerContext

#: Units of effort to ask a filter about a message (2 to 3 us), and octets of a JSON body read per further unit.
ASKING, READ_OCTETS = 2, 64
#: Cost units of the filter language (10 ns) per unit of effort.
COSTS = 120
#: Messages, and octets of them, whose answers are cached.
LATELY_MAX, LATELY_OCTETS = 500, 1024 * 1024
#: Maximum returned messages that wait to be tested; with more, groups search the queue again from the first of them.
AGAIN_MAX = 100_000


class Match(NamedTuple):
    """A message that a group takes. `octets`: of its content; `member`: the message, if it is in a message group."""

    position: int
    octets: int
    member: GroupedMessage | None = None


_position_of = attrgetter("position")


class FilterGroup:
    """Consumers of one queue with equal filters. `expression`: the filter; None takes all.

    `position`: the group has tested all messages up to it. `is_at_end`: there are no messages after it. `found`:
    matches up to `position`, positions rising; other consumers may have got some of them already.
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
        """Move back to a position, to test all messages after it again."""
        if position < self.position:
            self.position = position
            del self.found[bisect_right(self.found, position, key=_position_of) :]
        self.is_at_end = False


class Asked:
    """A message to be tested by filters. Its parts are read once for all filters."""

    __slots__ = ("_broker", "_subject", "message")

    def __init__(self, message: Message, broker: "BrokerContext") -> None:
        self.message = message
        self._broker = broker
        self._subject: MessageSubject | None = None

    def is_taken_by(self, expression: Expression | None) -> bool:
        """Whether a filter takes the message; None takes all."""
        turn = self._broker.turn
        if expression is None:
            turn.effort += 1
            return True
        subject = self._subject
        if subject is None:
            subject = self._subject = MessageSubject(self.message)
        was_read = subject.is_read
        takes = expression.matches(subject)
        turn.effort += ASKING + subject.spent // COSTS
        if subject.is_read and not was_read:
            turn.effort += len(self.message.content) // READ_OCTETS
        return takes


class LatelyAsked:
    """A cache of filters' results, for consumers with positions in a queue that mostly read the same messages."""

    __slots__ = ("_answers", "_asked", "_broker", "_octets")

    def __init__(self, broker: "BrokerContext") -> None:
        self._broker = broker
        self._asked: dict[int, Asked] = {}
        self._answers: dict[tuple[int, Expression], bool] = {}
        self._octets = 0

    def takes(self, expression: Expression, message: Message) -> bool:
        """Whether a filter takes a message, whose content must not change."""
        key = (message.id, expression)
        answer = self._answers.get(key)
        if answer is None:
            asked = self._asked.get(message.id)
            if asked is None:
                self._octets += len(message.content)
                if len(self._asked) >= LATELY_MAX or self._octets > LATELY_OCTETS:
                    self._asked.clear()
                    self._answers.clear()
                    self._octets = len(message.content)
                asked = self._asked[message.id] = Asked(message, self._broker)
            answer = self._answers[key] = asked.is_taken_by(expression)
        else:
            self._broker.turn.effort += 1
        return answer


class Returned:
    """Messages that returned to positions that groups had tested already. `next`: index of the first to test."""

    __slots__ = ("groups", "next", "positions")

    def __init__(self, positions: Sequence[int], groups: list[FilterGroup]) -> None:
        self.positions = positions
        self.groups = groups
        self.next = 0


class FilterGroups:
    """The groups of one queue. `again`: returned messages that they test before they continue."""

    __slots__ = ("_again_count", "_by_key", "_broker", "_of", "again")

    def __init__(self, broker: "BrokerContext") -> None:
        self._broker = broker
        self._by_key: dict[object, FilterGroup] = {}
        self._of: dict[Consumer, FilterGroup] = {}
        self.again: deque[Returned] = deque()
        self._again_count = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[FilterGroup]:
        return iter(self._by_key.values())

    @property
    def has_filters(self) -> bool:
        return any(group.expression is not None for group in self)

    def of(self, consumer: Consumer) -> FilterGroup:
        """`consumer`: one that has joined."""
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
                for returned in self.again:
                    if group in returned.groups:
                        returned.groups.remove(group)

    # -- looking ------------------------------------------------------------------------------------------------------

    def asked(self, message: Message) -> Asked:
        """A message for tests by groups."""
        return Asked(message, self._broker)

    def note_returned(self, positions: Sequence[int]) -> None:
        """Note messages that returned to these positions (rising); groups that have tested later ones test them
        again.
        """
        if not positions:
            return
        first, last = positions[0], positions[-1]
        groups = [group for group in self if group.position >= first]
        for group in self:
            if group.position < last:
                group.is_at_end = False
        if groups:
            self.again.append(Returned(positions, groups))
            self._again_count += len(positions)
            if self._again_count > AGAIN_MAX:
                for returned in self.again:
                    for group in returned.groups:
                        group.rewind(returned.positions[returned.next] - 1)
                self.again.clear()
                self._again_count = 0

    def first_again_done(self) -> None:
        """Remove the first of `again`: all its messages were tested."""
        self._again_count -= len(self.again.popleft().positions)

    def start_over(self) -> None:
        """Begin all groups at the head, because positions changed their meaning."""
        self.again.clear()
        self._again_count = 0
        for group in self:
            group.rewind(0)
            group.found.clear()
            group.position = 0
