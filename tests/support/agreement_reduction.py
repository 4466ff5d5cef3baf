"""Which worlds of the exploration show the same, so that one of them is enough.

Worlds have one key when they differ in nothing that an action or an invariant looks at. Three things are forgotten:

- **Which node is which.** All nodes are configured alike, and no rule prefers a name: whatever can happen in a world
  can happen under other names in the world with other names. The key is the least of those of all permutations. (Names
  decide who begins a cluster, and stand in texts; neither is explored.)
- **How high etcd's revisions are.** They are only compared with each other, and with 0 for a key that is absent. So the
  revisions that a world has anywhere are numbered in their order.
- **How much may still happen** (the budgets), and which transactions may still arrive late. No action is possible only
  because something is not: what can happen in a world can happen in one with the same key that has at least as much of
  each. So a world is passed over if such a one was seen. Worlds that have used up less come first, as those cover more.

`test_exploration.py` explores small scopes without this, and finds each of their worlds covered by one that was seen.
A machine is in the key as `print_of` has it: without times, since none goes by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import permutations
from typing import Any, NamedTuple

from agreement_world import Interned, Place, World, name_of, node_id, print_of

from leveret.cluster.agreement.timers import Timers
from leveret.cluster.agreement.view import InSync, Leader, Transaction, View

Key = tuple[int, ...]


class Rest(NamedTuple):
    """What a world allows beside its key: more of each allows more."""

    budgets: tuple[int, ...]
    late: frozenset[int]

    def covers(self, other: Rest) -> bool:
        """Whether whatever the other allows is allowed."""
        return self.late >= other.late and all(mine >= its for mine, its in zip(self.budgets, other.budgets))


class Renaming:
    """Settled values with other names of the nodes, and other numbers of revisions."""

    def __init__(self, order: tuple[int, ...], ranks: dict[int, int]) -> None:
        self.order, self.ranks = order, ranks
        self.names: dict[bytes | str, bytes | str] = {}
        for index, to in enumerate(order):
            self.names |= {node_id(index): node_id(to), name_of(index): name_of(to)}
            self.names[f"{name_of(index)}:1"] = f"{name_of(to)}:1"

    def of(self, value: Any) -> Any:
        """Hashable, and equal for equal values."""
        if value is None or isinstance(value, int | Enum | Timers):
            return value
        if isinstance(value, bytes | str):
            return self.names.get(value, value)
        if isinstance(value, tuple | frozenset):
            return type(value)(map(self.of, value)) if type(value) is not Place else self.of_place(value)
        if isinstance(value, Transaction):
            guards = tuple((key, self.ranks[revision]) for key, revision in value.guards)
            return (value.purpose, guards, self.of(value.puts), value.deletes)
        if isinstance(value, View | InSync | Leader):
            named = (self.of(getattr(value, one.name)) for one in fields(value) if one.name != "revision")
            return (self.ranks[value.revision], *named)
        assert is_dataclass(value), value
        return tuple(self.of(getattr(value, one.name)) for one in fields(value))

    def of_place(self, place: Place) -> tuple[Any, ...]:
        """All but the machine, which is asked for beside."""
        wants, ack = (None if one is None else (self.order[one[0]], *one[1:]) for one in (place.wants, place.ack))
        return tuple(place._replace(machine=None, wants=wants, ack=ack, sent=self.of(place.sent)))


def revisions_in(value: Any) -> Iterator[int]:
    """All revisions of a settled value, or of what `print_of` made."""
    if isinstance(value, tuple | frozenset):
        for one in value:
            yield from revisions_in(one)
    elif isinstance(value, Transaction):
        yield from (revision for _, revision in value.guards)
        yield from revisions_in(value.puts)
    elif isinstance(value, View | InSync | Leader):
        yield value.revision
        if isinstance(value, View):
            yield from revisions_in((value.insync, value.leader))


class Reduction:
    """The keys of worlds, and which were seen."""

    def __init__(self, machines: Interned, count: int) -> None:
        self.machines = machines
        self.seen: dict[int, list[Rest]] = {}
        self._orders = list(permutations(range(count)))
        self._inverse = [tuple(map(order.index, range(count))) for order in self._orders]
        self._numbers: dict[Any, int] = {}
        self._revisions: dict[Any, tuple[int, ...]] = {}  # of places and transactions, and of etcd with what it decided
        self._named: dict[Any, int] = {}  # the number of the name of one of these, given order and ranks

    def is_new(self, world: World) -> bool:
        """Whether nothing that was seen covers this world; then it is seen."""
        key, rest = self.key(world)
        known = self.seen.setdefault(hash(key), [])
        if any(other.covers(rest) for other in known):
            return False
        known[:] = [other for other in known if not rest.covers(other)]
        known.append(rest)
        return True

    def covers(self, world: World) -> bool:
        """Whether something that was seen covers this world."""
        key, rest = self.key(world)
        return any(other.covers(rest) for other in self.seen.get(hash(key), ()))

    def key(self, world: World) -> tuple[Key, Rest]:
        """The least key of all orders of the nodes."""
        shared = (world.etcd, world.agreed, world.top)
        parts = (*world.places, shared, *world.late)
        revisions = [self._revisions_of(part) for part in parts]
        ranks = {revision: rank for rank, revision in enumerate(sorted({0}.union(*revisions)))}
        ranked = [tuple([ranks[one] for one in some]) for some in revisions]
        count = len(world.places)
        best: tuple[Key, list[int]] | None = None
        for number, inverse in enumerate(self._inverse):
            names = [self._name(parts[at], number, ranked[at], ranks) for at in (*inverse, count)]
            late = sorted(self._name(parts[at], number, ranked[at], ranks) for at in range(count + 1, len(parts)))
            if best is None or (tuple(names), late) < best:
                best = (tuple(names), late)
        assert best is not None
        budgets = (world.writes, world.crashes, world.breaks, world.losses, world.changes)
        return best[0], Rest(budgets, frozenset(best[1]))

    def _revisions_of(self, part: Any) -> tuple[int, ...]:
        found = self._revisions.get(part)
        if found is None:
            whole = (part.sent, self.machines.prints[part.machine]) if type(part) is Place else part
            found = self._revisions[part] = tuple(sorted(set(revisions_in(whole))))
        return found

    def _name(self, part: Any, order: int, ranked: tuple[int, ...], ranks: dict[int, int]) -> int:
        found = self._named.get((part, order, ranked))
        if found is None:
            name = Renaming(self._orders[order], ranks).of(part)
            if type(part) is Place:
                name = (name, self._machine_name(part.machine, order, ranks))
            found = self._named[part, order, ranked] = self._numbers.setdefault(name, len(self._numbers))
        return found

    def _machine_name(self, machine: int, order: int, ranks: dict[int, int]) -> int:
        revisions = self._revisions.get(machine)
        if revisions is None:
            revisions = self._revisions[machine] = tuple(set(revisions_in(self.machines.prints[machine])))
        key = (~machine, order, tuple([ranks[one] for one in revisions]))
        found = self._named.get(key)
        if found is None:
            name = print_of(self.machines.of(machine), Renaming(self._orders[order], ranks).of)
            found = self._named[key] = self._numbers.setdefault(name, len(self._numbers))
        return found
