"""Leased queues on a journal against the model of tests/model, through restarts, and kills at any file operation.

Each operation of a program shows clients the same as the model. A restart loses nothing. After a kill, or a power cut,
what was safe before is there, once, or a dead letter, and what was under way may be. Source: queues page A.4 to A.9.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from effort import examples
from simulated_files import SimulatedFiles

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
sys.path.insert(0, str(Path(__file__).parent))
import lease_programs
from lease_model import LeaseMessage
from lease_sides import LeaseEngineSide, LeaseModelSide
from model_side import Observation, Operation
from object_rounds import Struck

from leveret.engine.leases.state import leases_of
from leveret.engine.messages.message import Message
from leveret.interop.differential.choices import Seeded

#: Octets of messages in memory. Without a limit all are there.
MEMORY = (None, 300)
#: Operations of a history, and once in how many of them the broker is restarted, or killed under way.
OPERATIONS, RESTARTED, KILLED = 120, 60, 30
#: File operations until a kill, and operations of clients until then.
STRUCK_MAX, UNDER_WAY_MAX = 40, 10


class JournalSide(LeaseEngineSide):
    """The engine with a journal on simulated files."""

    def __init__(self, memory: int | None) -> None:
        self.options = {"journal": SimulatedFiles(), "memory": memory}
        super().__init__()

    def _checkpoint(self, operation: Operation, number: int) -> None:
        self.engine.checkpoint()

    def _restart(self, operation: Operation, number: int) -> None:
        self.engine.finish_turns()
        self.engine.kill(power_cut=True)
        self.attach()

    def attach(self) -> None:
        """The broker is another one."""
        super().attach()
        self.engine.properties = {"delivery_mode": 2}  # type: ignore[misc]
        self.publisher = self.client(9).open_session()
        self.queue = self.vhost.queues.get("q")
        self.engine.end_turn()

    def strike(self, left: SimulatedFiles, now_ms: int) -> tuple[list[int], list[str]]:
        """Begin again with what is left. Returns what is in the queue, by id, and the bodies of dead letters."""
        self.engine.journal.contents.close()
        self.engine.files = left
        self.clock.advance_ns((now_ms + self.began_ms - self.clock.wall_ms()) * 1_000_000)
        self.engine.begin()
        self.attach()
        found = [message.id for message in self.queue.messages()]
        for part in self.queue.store.paged_parts():
            found += [part.id] if isinstance(part, Message) else part.ids
        return found, [body for body, _ in self.seen()["dead"]]


class SafeSide(LeaseModelSide):
    """The model, told what a restart leaves."""

    def _checkpoint(self, operation: Operation, number: int) -> None:
        pass

    def _restart(self, operation: Operation, number: int) -> None:
        if self.queue is not None:
            self.adopt([*self.alive().values()])

    def alive(self) -> dict[str, LeaseMessage]:
        """What is ready or leased, by body."""
        if self.queue is None:
            return {}
        leased = [out.message for out in self.queue.outs if out.message is not None and not out.is_slot]
        return {message.body: message for message in (*self.queue.ready, *leased)}

    def adopt(self, there: list[LeaseMessage]) -> None:
        """Another broker has these. It counts anew."""
        assert self.queue is not None
        self.sessions.clear()
        self.queue.begin_again(there)


def performed(side: Any, operation: Operation, number: int) -> Observation:
    """What clients and operators see of an operation."""
    steps: Iterator[None] = side.perform(operation, number)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class History:
    """A program on both sides."""

    def __init__(self, seed: int) -> None:
        self.chance, choose = Random(seed), Seeded(seed)
        memory = self.chance.choice(MEMORY)
        self.model, self.engine = SafeSide(), JournalSide(memory)
        self.operations = self._operations(choose, has_filters=memory is None)
        self.done: list[Operation] = []
        self.read: set[str] = set()  # dead letters that were read: they come back where that was not safe

    def _operations(self, choose: Seeded, *, has_filters: bool) -> Iterator[Operation]:
        """Without filters, consumers are served in an order that does not depend on what is in memory."""
        while True:
            declared, *operations = lease_programs.program(choose)
            if "depth" not in declared:
                break
        yield declared
        while True:
            for operation in operations:
                is_filtered = operation["op"] in ("consume", "replace") and "filter" in operation
                if has_filters or not is_filtered:
                    yield operation
            operations = lease_programs.program(choose)[1:]

    def both(self, operation: Operation) -> None:
        number = len(self.done)
        self.done.append(operation)
        expected = performed(self.model, operation, number)
        seen = performed(self.engine, operation, number)
        assert seen == expected
        self.read |= {body for body, _ in expected["dead"]}

    def tell(self) -> None:
        self.both(next(self.operations))
        while len(self.done) < OPERATIONS:
            draw = self.chance.randrange(2 * RESTARTED)
            if draw < 2:
                self.both({"op": ("restart", "checkpoint")[draw]})
                self.model.number = self.engine.broker.context.next_id - 1  # a broker begins with ids of its own
            elif self.chance.randrange(KILLED) == 0:
                self.kill()
            else:
                self.both(next(self.operations))
        self.engine.engine.close()

    def kill(self) -> None:
        """At some file operation, while clients go on. At most once, whatever was ready may have been on its way."""
        model, engine, queue = self.model, self.engine, self.model.queue
        assert queue is not None
        files, left, died = engine.engine.files, self.chance.randrange(1, STRUCK_MAX), set()
        before, number, deferred = model.alive(), model.number, queue.deferred
        engine.engine.settle()
        self.read.clear()

        def fault(operation: str, path: str) -> None:
            nonlocal left
            left -= operation != "read"
            if left < 0:
                raise Struck

        files.fault = fault
        try:
            for _ in range(UNDER_WAY_MAX):
                operation = next(self.operations)
                if operation["op"] == "discard" and not operation["how"]:
                    continue  # an acknowledgement in advance: it may be there or not
                self.done.append(operation)
                expected = performed(model, operation, len(self.done) - 1)
                died = {body for body, _ in expected["dead"]} & before.keys()
                assert performed(engine, operation, len(self.done) - 1) == expected
                before, number, deferred = model.alive(), model.number, queue.deferred
                self.read |= {body for body, _ in expected["dead"]}
                died = set()
        except Struck:
            pass
        files.fault = lambda operation, path: None
        there = before | {message.body: message for at, message in model.made.items() if at > number}
        surely = set() if queue.rules["semantics"] == "at-most-once" else before.keys() & model.alive().keys()
        crashed = files.crash() if self.chance.random() < 0.5 else files.power_cut(self.chance)
        ids, dead = engine.strike(crashed, model.now)
        found = [model.made[id_] for id_ in ids]
        self.done.append({"op": "kill", "found": ids, "dead": dead})
        self._judge([message.body for message in found], dead, there, surely, died)
        model.number = engine.broker.context.next_id - 1
        model.made = {at: message for at, message in model.made.items() if at <= model.number}
        queue.deferred = {at: until for at, until in deferred.items() if at > model.number}
        model.adopt(found)
        queue.newest = leases_of(engine.queue).last_id
        queue.counters = {name: engine.queue.counters.as_dict()[name] for name in queue.counters}
        self.both({"op": "checkpoint"})

    def _judge(
        self,
        found: Sequence[str],
        dead: Sequence[str],
        there: dict[str, LeaseMessage],
        surely: set[str],
        died: set[str],
    ) -> None:
        assert len(found) == len(set(found)) and set(found) <= there.keys()
        assert len(dead) == len(set(dead)) and not set(dead) & set(found)
        assert died - set(found) <= set(dead) <= there.keys() | self.read
        expires = {one: there[one].expires for one in dead if one in there}
        over = {one for one, at in expires.items() if at is not None and at <= self.model.now}
        assert surely <= set(found) | over


@pytest.mark.contradicts  # brokers that are struck do; each operation looks at the others
@pytest.mark.parametrize("seed", range(examples(36)))
def test_a_leased_queue_does_as_the_model(seed: int) -> None:
    history = History(seed)
    try:
        history.tell()
    except Exception as error:
        error.add_note(f"{history.done[0]}: {history.done[-25:]}")
        raise
