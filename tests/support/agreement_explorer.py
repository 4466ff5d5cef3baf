"""All interleavings of a small cluster: depth first to count its worlds, breadth first for the shortest way to a fault.

There is no time: whatever comes by time may come at any moment. So a world covers all speeds of processes, networks and
clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from time import monotonic

from agreement_reduction import Reduction
from agreement_world import JOURNAL_ID, Broken, Interned, Model, Place, Rules, World, name_of, named, node_id

from leveret.cluster.agreement import events as e
from leveret.cluster.agreement.view import InSync, View
from leveret.journal.format.terms import FIRST_LSN

Step = Callable[[], World | None]


@dataclass(frozen=True, slots=True)
class Scope:
    """How much may happen in a world."""

    nodes: int = 3
    terms: int = 2
    writes: int = 2  # blocks of two records
    tails: bool = False  # a follower may have written what it has not fsynced
    refusals: bool = False  # followers may find out that the leader's process is gone, before its lease ends
    crashes: int = 2
    breaks: int = 1  # a node loses all its links: a partition
    losses: int = 0  # answers of etcd that do not come
    changes: int = 2  # of the in-sync set
    outside: int = 0  # the last nodes are not in the set at the beginning
    settled: bool = False  # at the beginning the leader has all its links, and has sent nothing
    deletes: bool = True  # segments are deleted


class Explorer:
    """The worlds of a scope. `seconds`: give up after that; `is_whole` tells whether everything was seen."""

    def __init__(self, scope: Scope, rules: Rules = Rules(), seconds: float = 1e9) -> None:  # noqa: B008
        self.scope, self.seconds = scope, seconds
        self.machines = Interned([named(index, scope.nodes) for index in range(scope.nodes)])
        self.model = Model(self.machines, rules, scope.terms, block=2)
        self.reduction = Reduction(self.machines, scope.nodes)
        self.states = self.steps = 0
        self.is_whole = False
        self.doing = ""  # the words of the step that was tried last

    def first(self) -> World:
        """The first node can be made leader of term 1; nothing is written yet."""
        scope = self.scope
        members = frozenset(node_id(index) for index in range(scope.nodes - scope.outside))
        view = View(2, JOURNAL_ID, InSync(0, members, 0, revision=2))
        world = World((Place(),) * scope.nodes, self.model.known(view))
        for index in range(scope.nodes):
            world = self.model.restart(world, index) or world
        return self._lead_first(world)

    def _lead_first(self, world: World) -> World:
        model = self.model
        for step in (model.read, model.apply, model.answer):
            world = step(world, 0) or world
        if self.scope.settled:  # links may open while the broker is restored
            for index in range(1, self.scope.nodes):
                world = model.tell(world, 0, e.LinkOpened(node_id(index), FIRST_LSN))
        world = model.take_over(world, 0) or world
        for index in range(1, self.scope.nodes):
            for step in (model.read, model.join, model.deliver):
                world = step(world, index) or world
        assert world.places[0].leads == 1
        scope = self.scope
        return world._replace(
            writes=scope.writes, crashes=scope.crashes, breaks=scope.breaks, losses=scope.losses, changes=scope.changes
        )

    def after(self, world: World) -> Iterator[tuple[str, World]]:
        """All that can happen next. A way to a world is told by these words.

        A broker that is to be closed, is; a node that died starts at once, and may read etcd late: nobody can tell.
        """
        for words, step in self._steps(world):
            self.doing = words
            after = step()
            if after is not None and after != world:
                yield words, after

    def _steps(self, world: World) -> Iterator[tuple[str, Step]]:
        """What may happen next, if it is possible."""
        model = self.model
        for index, place in enumerate(world.places):
            if place.closing:
                yield f"{name_of(index)} has closed its broker", partial(model.reopen, world, index)
                return
        for transaction in world.late:
            yield f"etcd does the late {transaction.purpose.value}", partial(model.apply_late, world, transaction)
        yield "the lease of the leader ends", partial(model.expire, world)
        for index, place in enumerate(world.places):
            name = name_of(index)
            yield f"an acknowledgement of {name} comes", partial(model.deliver, world, index)
            if world.breaks:
                for is_backwards in (False, True) if place.leads else (False,):
                    yield f"all links of {name} break", partial(self._cut_off, world, index, is_backwards)
            context = self.machines.of(place.machine).context
            if context.view is None or context.view.revision < world.etcd.revision or context.is_in_doubt:
                yield f"{name} reads etcd", partial(model.read, world, index)
            if place.sent is not None:
                purpose = place.sent[0].purpose.value
                yield f"etcd answers the {purpose} of {name}", partial(self._answer, world, index)
                if world.losses:
                    yield f"no answer comes to the {purpose} of {name}", partial(model.lose, world, index)
            if place.leads and world.writes:
                yield f"{name} writes a block", partial(model.write, world, index)
            if place.wins:
                yield f"{name} takes over", partial(model.take_over, world, index)
            if place.synced < len(place.journal):
                yield f"{name} fsyncs", partial(model.sync, world, index)
            if self.scope.deletes:
                yield f"{name} deletes a segment", partial(model.delete, world, index)
                yield f"{name} deletes a segment as its leader did", partial(model.unlink, world, index)
            yield f"{name} joins", partial(model.join, world, index)
            yield f"{name} gets what its leader has", partial(self._copy, world, index)
            if self.scope.refusals:
                yield f"{name} finds its leader gone", partial(model.refuse, world, index)
            if world.crashes:
                for kept in {0, len(place.journal) - place.synced}:
                    words = f", {kept} records that it had not fsynced stay" if kept else ""
                    yield f"{name} dies and starts{words}", partial(self._crash, world, index, kept)

    def _cut_off(self, world: World, index: int, is_backwards: bool) -> World | None:
        after = self.model.cut_off(world, index, is_backwards=is_backwards)
        return None if after is None or after == world else after._replace(breaks=after.breaks - 1)

    def _answer(self, world: World, index: int) -> World | None:
        after = self.model.apply(world, index)
        return None if after is None else self.model.answer(after, index)

    def _copy(self, world: World, index: int) -> World | None:
        after = self.model.copy(world, index)
        return after if after is None or self.scope.tails else self.model.sync(after, index)

    def _crash(self, world: World, index: int, kept: int) -> World | None:
        after = self.model.crash(world, index, kept)
        return None if after is None else self.model.restart(after, index)

    def run(self) -> int:
        """Every world that can be reached, up to what `Reduction` forgets. Returns: how many. Raises: Broken."""
        first, reduction = self.first(), self.reduction
        reduction.is_new(first)
        stacks: list[list[World]] = [[] for _ in range(_left(first) + 1)]  # by how much may still happen
        stacks[-1].append(first)
        end = monotonic() + self.seconds
        while any(stacks):
            world = next(stack for stack in reversed(stacks) if stack).pop()
            self.states += 1
            for _, after in self.after(world):
                self.steps += 1
                if reduction.is_new(after):
                    stacks[_left(after)].append(after)
            if not self.states % 256 and monotonic() > end:
                return self.states
        self.is_whole = True
        return self.states

    def run_in_full(self) -> Iterator[World]:
        """Every world that can be reached, each once, depth first. Raises: Broken."""
        first = self.first()
        seen, stack = {first}, [first]
        while stack:
            world = stack.pop()
            yield world
            for _, after in self.after(world):
                if after not in seen:
                    seen.add(after)
                    stack.append(after)

    def shortest(self) -> tuple[list[str], str] | None:
        """The shortest way to a broken invariant, and which; None: there is none within the time."""
        first = self.first()
        came: dict[World, tuple[World, str] | None] = {first: None}
        waiting = deque([first])
        end = monotonic() + self.seconds
        while waiting and monotonic() < end:
            world = waiting.popleft()
            self.states += 1
            try:
                for words, after in self.after(world):
                    if after not in came:
                        came[after] = (world, words)
                        waiting.append(after)
            except Broken as broken:
                return [*way(came, world), self.doing], str(broken)
        self.is_whole = not waiting
        return None


def _left(world: World) -> int:
    return world.writes + world.crashes + world.breaks + world.losses + world.changes


def way(came: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    """What happened until this world."""
    words: list[str] = []
    while (step := came[world]) is not None:
        world, one = step
        words.append(one)
    return words[::-1]
