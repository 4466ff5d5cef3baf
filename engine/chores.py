"""Work that is too much for one turn: commits, messages to free, queues to trim and to review, deep tails to load."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint
from typing import Any, Protocol

from ..settings import Policies, Policy
from .agenda import Agenda
from .dead_letters import DeadLetters
from .peers.commit import Commit
from .queues.queue import Queue
from .queues.reconfigure import policy_changed, settings_changed
from .stores.store import Ready
from .stores.surroundings import Storage

#: Messages given back to the allocator in one slice of a purge or delete (about 2 ms).
FREE_SLICE = 20_000
#: Messages times queues that a commit publishes in one slice (2 to 5 ms); one with less is applied at once.
COMMIT_SLICE = 2_000
#: Queues that are asked whether a changed policy concerns them, and those that it concerns, in one slice (about 5 ms).
REVIEW_SLICE, CONCERNED_SLICE = 500, 50
#: Queues that follow reloaded settings in one slice (about 5 ms).
SETTINGS_SLICE = 150


class CommittingBroker(Protocol):
    """The broker, as far as commits look at it."""

    storage: Storage
    touched: dict[Any, None]


class Commits:
    """Transactions that are too much for one turn. Of those `waiting` only the first is under way."""

    __slots__ = ("_broker", "_dead_letters", "waiting")

    def __init__(self, broker: CommittingBroker, dead_letters: DeadLetters) -> None:
        self._broker = broker
        self._dead_letters = dead_letters
        self.waiting: deque[Commit] = deque()

    @property
    def pending(self) -> bool:
        """Whether one is to go on. None begins while the journal takes nothing."""
        waiting = self.waiting
        if not waiting:
            return False
        durability = self._broker.storage.durability
        return waiting[0].has_begun or durability is None or not durability.has_failed

    @property
    def is_under_way(self) -> bool:
        """Whether one has begun, and is not done."""
        return bool(self.waiting) and self.waiting[0].has_begun

    def apply(self, commit: Commit) -> None:
        """Apply a transaction: at once, or in slices if it is large."""
        if commit.cost <= COMMIT_SLICE:
            commit.work()
        else:
            self.waiting.append(commit)

    def work(self) -> None:
        """A slice of the first; none begins before what was recorded before is written."""
        commit = self.waiting[0]
        if not commit.has_begun and (self._dead_letters.waiting or not self.pending):
            return
        commit.work(COMMIT_SLICE)
        if commit.is_done:
            self.waiting.popleft()
            commit.session.committed()
            if not commit.session.client.closed:
                self._broker.touched[commit.session.client] = None


class Errands:
    """Long work of others, in steps that are some milliseconds each: one at the end of each turn, of each in turn."""

    __slots__ = ("_agenda", "_waiting", "pending")

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        agenda.add(self)
        self._waiting: deque[Iterator[None]] = deque()
        self.pending = False

    def run_errand(self, steps: Iterator[None]) -> None:
        """Take these steps."""
        self._waiting.append(steps)
        self.pending = self._agenda.pending = True

    def work(self) -> None:
        """A step."""
        steps = self._waiting.popleft()
        try:
            if next(steps, True) is None:
                self._waiting.append(steps)
        finally:
            self.pending = bool(self._waiting)


class Freeing:
    """Messages that go back to the allocator."""

    __slots__ = ("_agenda", "_waiting", "pending")

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        agenda.add(self)
        self._waiting: deque[Ready] = deque()
        self.pending = False

    def free(self, messages: Ready) -> None:
        """Give messages back, in slices if there are many."""
        if len(messages) > FREE_SLICE:
            self._waiting.append(messages)
            self.pending = self._agenda.pending = True

    def work(self) -> None:
        """One slice."""
        messages = self._waiting[0]
        pop = messages.pop
        for _ in range(min(FREE_SLICE, len(messages))):
            pop()
        if not messages:
            self._waiting.popleft()
            self.pending = bool(self._waiting)


class Trimming:
    """Queues that hold more than they may."""

    __slots__ = ("_agenda", "_dead_letters", "_queues", "pending")

    def __init__(self, agenda: Agenda, dead_letters: DeadLetters) -> None:
        self._agenda = agenda
        agenda.add(self)
        self._dead_letters = dead_letters
        self._queues: dict[Queue, None] = {}
        self.pending = False

    def trim_later(self, queue: Queue) -> None:
        """Another slice of a queue goes at the end of each turn."""
        self._queues[queue] = None
        self.pending = self._agenda.pending = True

    def work(self) -> None:
        """A slice of one queue, unless there were dead letters: between two slices the journal has its chance."""
        if self._dead_letters.were_waiting:
            return
        queue = next(iter(self._queues))
        del self._queues[queue]
        if not queue.deleted:
            queue.trim()  # which may ask for more
        self.pending = bool(self._queues)


class Reviewing:
    """Queues that have not heard of changed policies, or of reloaded settings."""

    __slots__ = ("_agenda", "_waiting", "pending", "policies")

    def __init__(self, agenda: Agenda, policies: Policies) -> None:
        self._agenda = agenda
        agenda.add(self)
        self.policies = policies  # as they are now
        self._waiting: deque[tuple[Iterator[Queue], list[Policy] | None]] = deque()
        self.pending = False

    def review(self, queues: Iterable[Queue], changed: list[Policy]) -> None:
        """These policies changed; they may concern some of these queues."""
        self._waiting.append((iter(list(queues)), changed))
        self.pending = self._agenda.pending = True

    def follow_settings(self, queues: list[Queue]) -> None:
        """The settings were reloaded; they concern all of these queues. The list is not to be changed."""
        self._waiting.append((iter(queues), None))
        self.pending = self._agenda.pending = True

    def work(self) -> None:
        """Some of the queues."""
        queues, changed = self._waiting[0]
        if changed is None:
            for queue in islice(queues, SETTINGS_SLICE):
                if not queue.deleted:
                    settings_changed(queue)
        else:
            self._review(queues, changed)
        if not length_hint(queues):
            self._waiting.popleft()
            self.pending = bool(self._waiting)

    def _review(self, queues: Iterator[Queue], changed: list[Policy]) -> None:
        policies = self.policies
        concerned, until = 0, policies.spent + REVIEW_SLICE
        for queue in islice(queues, max(1, REVIEW_SLICE // len(changed))):
            if not queue.deleted and policies.may_concern(queue.name, queue.type, queue.policy, changed):
                policy_changed(queue)
                concerned += 1
                if concerned >= CONCERNED_SLICE:
                    break
            if policies.spent >= until:
                break


class Feeding:
    """Deep queues that want more of their tails in memory: between turns, not at their ends."""

    __slots__ = ("_mark", "hungry")

    def __init__(self, mark: Callable[[Queue], None]) -> None:
        self._mark = mark
        self.hungry: dict[Queue, None] = {}

    def feed(self) -> bool:
        """Bring a slice of some queue's tail into memory. True: there is more to do now."""
        hungry = self.hungry
        if not hungry:
            return False
        queue = next(iter(hungry))  # the one that has waited longest
        del hungry[queue]
        if queue.deleted:
            return bool(hungry)
        if queue.is_hungry():  # else something else loaded it meanwhile, such as a get, and its consumers still wait
            queue.load()
        self._mark(queue)
        if queue.is_hungry():
            hungry[queue] = None
        return True
