"""The search through a queue for messages that groups of consumers take, in steps, in memory and in the journal.

All groups at one position examine a message together, so that it is read once. Groups at different positions get steps
alternately. Paged-out messages are read in windows between turns, and stay paged out. Source: queues page F.2, F.6
("new group", "starvation rule").
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..delivery.filter_groups import FilterGroup, FilterGroups, Match
from ..delivery.groups import GroupedMessage
from ..messages.message import Message
from ..stores.store import Scannable
from ..stores.tailed_store import TailedStore

if TYPE_CHECKING:
    from ..context import BrokerContext
    from .queue import Queue

#: Messages that one step scans at most.
STEP = 250
#: Steps in one dispatch for groups that are behind a found message, so that they examine it before it is handed out.
CATCH_UP_STEPS = 4
#: Effort that a step may spend beyond its limit, so that all groups examine the message just read.
OVERRUN_EFFORT = 1000
#: Paged-out messages that one window reads back.
WINDOW = 1000


class Search:
    """The search of one queue. `is_waiting`: it cannot continue before `load`."""

    def __init__(self, groups: FilterGroups, broker: "BrokerContext") -> None:
        self._groups = groups
        self._broker = broker
        self._reader: FilterGroup | None = None  # the group that has or awaits the window
        self._returned_is_paged_out = False  # the next returned message has to be loaded
        self.is_waiting = False

    def examine_returned(self, store: Scannable, until: int) -> bool:
        """Examine `FilterGroups.returned` until the effort reaches `until`. Returns whether all are examined."""
        groups, turn = self._groups, self._broker.turn
        while groups.returned:
            returned = groups.returned[0]
            positions = returned.positions
            while returned.next < len(positions) and returned.groups:
                if turn.effort >= until:
                    return False
                position = positions[returned.next]
                turn.effort += 1
                seen = store.scan(position - 1, 1)
                if seen.missing:
                    self._returned_is_paged_out = self.is_waiting = True
                    return False
                if seen.found and seen.found[0][0] == position:
                    message = seen.found[0][1]
                    test = groups.test_of(message)
                    for group in returned.groups:
                        if group.position >= position and test.is_taken_by(group.expression):
                            group.add(match_of(position, message))
                returned.next += 1
            groups.drop_first_returned()
        return True

    def advance(self, store: Scannable, wanted: Sequence[FilterGroup], found_max: int, until: int) -> bool:
        """Make a step for the first of these groups that can continue. Groups further on join where it reaches them.

        `found_max`: a group that has found this many messages pauses. Returns whether the step examined a message.
        """
        reader = self._reader
        if reader in wanted:  # the group that had the last window comes last
            at = wanted.index(reader) + 1
            wanted = [*wanted[at:], *wanted[:at]]
        next_reader: FilterGroup | None = None
        for group in wanted:
            if group.is_at_end or len(group.found) >= found_max:
                continue
            before = group.position
            is_missing = self._step(store, group, found_max, until)
            if group.position > before:
                return True
            if is_missing and next_reader is None:
                next_reader = group
        if next_reader is not None:
            self._reader = next_reader
            self.is_waiting = True
        return False

    def _step(self, store: Scannable, leader: FilterGroup, found_max: int, until: int) -> bool:
        """Examine the messages after a group's position. Returns whether the next one is paged out."""
        groups, turn = self._groups, self._broker.turn
        start = last = leader.position
        seen = store.scan(start, STEP)
        along = [one for one in groups if one.position >= start and not one.is_at_end and len(one.found) < found_max]
        turn.effort += 1
        for position, message in seen.found:
            if turn.effort >= until:
                return False
            test = groups.test_of(message)
            for group in along:
                if group.position < position and len(group.found) < found_max:
                    if turn.effort >= until + OVERRUN_EFFORT:
                        return False  # the other groups examine it in their own steps
                    if test.is_taken_by(group.expression):
                        group.add(match_of(position, message))
                    group.position = position
            if leader.position < position:
                return False  # the leader has found enough
            last = position
        if seen.missing:
            return True
        if len(seen.found) < STEP:
            for group in along:
                group.is_at_end = group.position >= last
        return False

    def load(self, store: TailedStore) -> None:
        """Read the messages of the next step. Raises: Unreadable."""
        self.is_waiting = False
        returned = self._groups.returned
        if self._returned_is_paged_out:
            self._returned_is_paged_out = False
            if returned and returned[0].next < len(returned[0].positions):
                store.load_at(returned[0].positions[returned[0].next] - 1, WINDOW)
            return
        reader = self._reader
        if reader is None:
            return
        if reader.expression is None and not store.in_memory:
            store.load()  # a group without a filter takes all messages
        else:
            store.load_at(reader.position, WINDOW)

    def continue_later(self, queue: "Queue", until: int) -> None:
        """Ask for the load that the search waits for, or for another dispatch if the effort reached `until`."""
        if self.is_waiting:
            self._broker.scheduler.load_later(queue)
        elif self._broker.turn.effort >= until:
            queue.mark()


def groups_behind(groups: Iterable[FilterGroup]) -> list[FilterGroup]:
    """The groups that have not reached the first message that any of these groups has found."""
    position = min((group.found[0].position for group in groups if group.found), default=0)
    return [group for group in groups if group.position < position and not group.is_at_end]


def match_of(position: int, message: Message) -> Match:
    """The match of a message at its position."""
    return Match(position, message.octets, message if isinstance(message, GroupedMessage) else None)
