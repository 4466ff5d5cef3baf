"""The model as a peer of the differential mode: queues, two clients, and time that an operation moves."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from model_queue import ModelConsumer, ModelMessage, ModelQueue, ModelSession

Operation = Mapping[str, Any]
Observation = dict[str, Any]


def chosen(out: Sequence[int], operation: Operation) -> list[int]:
    """The delivery tags that a settlement means: `delivery_tag` counts within what is out; with `multiple` up to it."""
    if not out:
        return []
    at = operation["delivery_tag"] % len(out)
    return list(out[: at + 1]) if operation.get("multiple") else [out[at]]


class Side:
    """A peer of the differential mode, see `Peer`: operations by their names."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.clean_up()

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        """Nothing is declared."""
        raise NotImplementedError

    def perform(
        self, operation: Operation, number: int, *, patient: bool = False
    ) -> Generator[None, None, Observation]:
        """One operation; returns what a client and an operator see."""
        self.sent.clear()
        self.sent[operation["op"]] += operation.get("count", 1)
        seen: Observation = {}
        result = getattr(self, "_" + operation["op"].replace(".", "_"))(operation, number)
        if result is not None:
            seen["result"] = result
        seen.update(self.seen())
        return seen
        yield

    def seen(self) -> Observation:
        """Since the last look."""
        raise NotImplementedError


class ModelSide(Side):
    """The model."""

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        self.now = 0
        self.number = 0
        self.queues: dict[str, ModelQueue] = {}
        self.sessions: dict[tuple[int, str], ModelSession] = {}
        self.letters: deque[tuple[str, ModelMessage]] = deque()

    def seen(self) -> Observation:
        self._bury()
        seen: Observation = {}
        for (client, name), session in sorted(self.sessions.items()):
            if session.deliveries:
                seen[f"{client} {name}"] = session.deliveries
                session.deliveries = []
        seen["queues"] = {
            name: [len(queue.ready), queue.unacked, len(queue.scheduled), queue.counters.copy()]
            for name, queue in sorted(self.queues.items())
        }
        return seen

    def _bury(self) -> None:
        """What has come to a head and is over goes; dead letters arrive, and may cause others."""
        for queue in self.queues.values():
            queue.expire()
        while self.letters:
            name, message = self.letters.popleft()
            self._make(name, {})  # a dead letter is not lost where nothing is bound (DEVIATIONS.md)
            self._put(name, message, None)
            for queue in self.queues.values():
                queue.expire()

    def _make(self, name: str, rules: dict[str, Any]) -> None:
        if name not in self.queues:
            self.queues[name] = ModelQueue(name, rules, lambda *letter: self.letters.append(letter), lambda: self.now)

    def _put(self, name: str, message: ModelMessage, expiration: int | None) -> None:
        if name in self.queues:
            self.number += 1
            message.number = self.number
            message.age = message.age or self.number
            self.queues[name].publish(message, expiration)

    def _session(self, operation: Operation) -> ModelSession | None:
        queue = self.queues.get(operation["queue"])
        if queue is None:
            return None
        return self.sessions.setdefault((operation["c"], queue.name), ModelSession(queue))

    # -- operations -------------------------------------------------------------------------------------------------

    def _declare(self, operation: Operation, number: int) -> None:
        self._make(operation["queue"], rules_of(operation))

    def _settings(self, operation: Operation, number: int) -> None:
        if operation["queue"] in self.queues:
            self.queues[operation["queue"]].say(rules_of(operation))

    def _publish(self, operation: Operation, number: int) -> None:
        for index in range(operation.get("count", 1)):
            message = ModelMessage(0, f"{number}-{index}", operation.get("key"), None)
            self._put(operation["queue"], message, operation.get("expiration"))

    def _consume(self, operation: Operation, number: int) -> None:
        session, tag = self._session(operation), operation["consumer_tag"]
        if session is not None and tag not in session.consumers:
            consumer = ModelConsumer(session, tag, operation.get("prefetch", 0), operation.get("no_ack", False))
            session.consumers[tag] = consumer
            session.queue.consumer_list.append(consumer)
            session.queue.dispatch()

    def _cancel(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        consumer = session and session.consumers.pop(operation["consumer_tag"], None)
        if session is not None and consumer is not None:
            session.queue.consumer_list.remove(consumer)

    def _get(self, operation: Operation, number: int) -> Any:
        session = self._session(operation)
        if session is None:
            return None
        return session.queue.get(session, no_ack=operation.get("no_ack", False)) or "empty"

    def _ack(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if session is not None:
            session.queue.ack(session, chosen(list(session.out), operation))

    def _nack(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if session is not None and (tags := chosen(list(session.out), operation)):
            if operation.get("requeue", False):
                session.queue.requeue(session, tags, counted=True)
            else:
                session.queue.refuse(session, tags)

    def _recover(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if session is not None:
            session.queue.requeue(session, list(session.out), counted=False)

    def _close(self, operation: Operation, number: int) -> None:
        """Of the channel: nothing failed, nothing waits (5.2)."""
        session = self._session(operation)
        if session is not None:
            self._end([(operation["c"], operation["queue"])], counted=False)

    def _drop(self, operation: Operation, number: int) -> None:
        """Of the connection: what was out has failed, and does not wait (5.2)."""
        self._end([key for key in self.sessions if key[0] == operation["c"]], counted=True)

    def _end(self, keys: list[tuple[int, str]], *, counted: bool) -> None:
        for key in keys:
            session = self.sessions[key]
            for consumer in session.consumers.values():
                session.queue.consumer_list.remove(consumer)
        for key in keys:
            session = self.sessions.pop(key)
            session.queue.give_back(session, list(session.out), counted=counted, delayed=False)

    def _advance(self, operation: Operation, number: int) -> None:
        until = self.now + operation.get("ms", 0)
        while dues := [due for queue in self.queues.values() for due in queue.next_due() if due <= until]:
            self.now = max(self.now, min(dues))
            for queue in sorted(self.queues.values(), key=lambda one: min(one.next_due(), default=until)):
                queue.pass_time()
            self._bury()
        self.now = until

    def _purge(self, operation: Operation, number: int) -> Any:
        queue = self.queues.get(operation["queue"])
        return None if queue is None else queue.purge()


def rules_of(operation: Operation) -> dict[str, Any]:
    """What an operation says of a queue's rules."""
    return {name: value for name, value in operation.items() if name not in ("op", "queue")}
