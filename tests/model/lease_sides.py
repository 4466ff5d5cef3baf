"""Leased queues as peers of the differential mode: the model, and the engine on virtual time.

There is one leased queue, `q`, its dead letters, and three clients with two channels each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine_side import EngineBase
from lease_model import FILTERS, UNSAID, LeaseConsumer, LeaseMessage, LeaseQueue, LeaseSession, Out
from model_side import Observation, Operation, Side, chosen

from leveret.engine import Envelope, Session, User
from leveret.engine.delivery.effects import ConsumerCancelled
from leveret.engine.invariants import check_broker
from leveret.engine.leases import discarding, renew_leases
from leveret.engine.messages.content import NATIVE

MS = 1_000_000
USER = User("guest")
#: What the model says of a queue -> its arguments.
ARGUMENTS = {
    "lease_period": "x-lease-period",
    "semantics": "x-semantics",
    "max_backlog": "x-max-backlog-total",
    "backlog": "x-max-backlog-per-consumer",
    "expiration": "x-message-ttl",
    "expiration_model": "x-expiration-model",
    "expire_leased": "x-expire-leased",
    "fairness": "x-fairness",
    "leasing": "x-leasing",
    "max_deliveries": "x-max-deliveries",
    "max_cancels": "x-cancel-limit",
    "depth": "x-target-depth",
    "deferred": "x-deferred-ack-ttl",
}
EXPRESSIONS = {"priority": ("x-priority-expr", "/p"), "barrier": ("x-barrier-expr", "/s = 1")}


def body_of(operation: Operation, number: int, index: int) -> str:
    """What is published: its p rises within a run."""
    p = (operation.get("p", 0) + index * operation.get("step", 0)) % 4
    barrier = ', "s": 1' if operation.get("s") else ""
    return f'{{"i": "{number}-{index}", "p": {p}{barrier}}}'


class LeaseModelSide(Side):
    """The model."""

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        self.now = self.number = 0
        self.queue: LeaseQueue | None = None
        self.sessions: dict[tuple[int, int], LeaseSession] = {}
        self.dead: list[list[str]] = []
        self.made: dict[int, LeaseMessage] = {}  # by number

    def seen(self) -> Observation:
        seen: Observation = {}
        for (client, channel), session in sorted(self.sessions.items()):
            if session.deliveries:
                seen[f"{client}.{channel}"], session.deliveries = session.deliveries, []
        self.number += len(self.dead)  # they are numbered as all messages are
        seen["dead"], self.dead = sorted(self.dead), []
        if (queue := self.queue) is not None:
            seen["queue"] = [len(queue.visible()), len(queue.outs), dict(queue.counters)]
        return seen

    def _session(self, operation: Operation) -> LeaseSession:
        key = operation["c"], operation["ch"]
        return self.sessions.setdefault(key, LeaseSession(operation["c"]))

    def _declare(self, operation: Operation, number: int) -> None:
        if self.queue is None:
            said = {name: value for name, value in operation.items() if name in UNSAID}
            bury = lambda message, reasons: self.dead.append([message.body, reasons])  # noqa: E731
            self.queue = LeaseQueue(said, bury, lambda: self.now)

    def _publish(self, operation: Operation, number: int) -> None:
        if self.queue is None:
            return
        messages = []
        for index in range(operation.get("count", 1)):
            self.number += 1
            body = body_of(operation, number, index)
            p = (operation.get("p", 0) + index * operation.get("step", 0)) % 4
            self.made[self.number] = message = LeaseMessage(self.number, body, p, bool(operation.get("s")))
            messages.append(message)
        self.queue.publish(messages, operation.get("expiration"))

    def _consume(self, operation: Operation, number: int) -> None:
        session, queue = self._session(operation), self.queue
        if queue is None or operation["consumer_tag"] in session.consumers:
            return
        session.qos = operation.get("qos", session.qos)
        most, asked = queue.rules["backlog"], operation.get("backlog", 1 if session.qos is None else session.qos)
        consumer = LeaseConsumer(
            session,
            operation["consumer_tag"],
            min(most, asked) or most,
            operation.get("no_ack", False),
            operation.get("priority", 0),
            operation.get("filter"),
            operation.get("backlog") == 0,
        )
        session.consumers[consumer.tag] = consumer
        queue.consumers.append(consumer)
        queue.dispatch()

    def _replace(self, operation: Operation, number: int) -> None:
        consumer, queue = self._session(operation).consumers.get(operation["consumer_tag"]), self.queue
        if consumer is None or queue is None:
            return
        most, qos = queue.rules["backlog"], consumer.session.qos
        asked = operation.get("backlog", 1 if qos is None else qos)
        consumer.limit, consumer.is_aside = min(most, asked) or most, operation.get("backlog") == 0
        consumer.filter, consumer.priority = operation.get("filter"), operation.get("priority", 0)
        queue.dispatch()

    def _browse(self, operation: Operation, number: int) -> None:
        if self.queue is not None:
            self.queue.browse(self._session(operation), "look", operation.get("top_n"), operation.get("filter"))

    def _cancel(self, operation: Operation, number: int) -> None:
        consumer = self._session(operation).consumers.pop(operation["consumer_tag"], None)
        if consumer is not None and self.queue is not None:
            self.queue.leave([consumer])
            self.queue.dispatch()

    def _get(self, operation: Operation, number: int) -> Any:
        if self.queue is None:
            return None
        return self.queue.get(self._session(operation), no_ack=operation.get("no_ack", False)) or "empty"

    def _settle(self, operation: Operation, how: str) -> None:
        session = self._session(operation)
        if self.queue is not None:
            self.queue.settle(session, chosen(list(session.out), operation), how)

    def _ack(self, operation: Operation, number: int) -> None:
        self._settle(operation, "ack")

    def _nack(self, operation: Operation, number: int) -> None:
        self._settle(operation, "cancel" if operation.get("requeue") else "expire")

    def _recover(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if self.queue is not None:
            self.queue.settle(session, list(session.out), "cancel")

    def _close(self, operation: Operation, number: int) -> None:
        self._end([(operation["c"], operation["ch"])])

    def _drop(self, operation: Operation, number: int) -> None:
        self._end([key for key in self.sessions if key[0] == operation["c"]])

    def _end(self, keys: list[tuple[int, int]]) -> None:
        queue = self.queue
        found = [session for key in keys if (session := self.sessions.pop(key, None)) is not None]
        if queue is None:
            return
        queue.leave([one for session in found for one in session.consumers.values()])
        held: list[Out] = [out for out in queue.outs if out.session in found]
        queue.break_all(held, keeps_tags=True)
        queue.dispatch()

    def _discard(self, operation: Operation, number: int) -> Any:
        queue, how = self.queue, operation.get("how", "")
        if queue is None:
            return None
        if "filter" in operation:
            return queue.discard(FILTERS[operation["filter"]], None, how)
        numbers = [n for n in (self.number - back for back in operation.get("back", ())) if n > 0]
        return queue.discard(lambda one: one.number in numbers, numbers, how) if numbers else None

    def _renew(self, operation: Operation, number: int) -> Any:
        numbers = [self.number - back for back in operation.get("back", ()) if self.number > back]
        return None if self.queue is None or not numbers else self.queue.renew(numbers)

    def _purge(self, operation: Operation, number: int) -> Any:
        if self.queue is None:
            return None
        count = self.queue.purge()
        self.queue.dispatch()
        return count

    def _advance(self, operation: Operation, number: int) -> None:
        until, queue = self.now + operation.get("ms", 0), self.queue
        while queue is not None and (dues := [due for due in queue.next_due() if due <= until]):
            self.now = max(self.now, min(dues))
            queue.pass_time()
        self.now = until


class LeaseEngineSide(EngineBase):
    """The engine."""

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        self.begin()
        self.began_ms = self.clock.wall_ms()
        self.queue: Any = None
        self.publisher = self.client(9).open_session()
        self.engine.queue("dead")

    def told(self, tag: int, envelope: Envelope, content: bytes, redelivered: bool) -> list[Any]:
        headers, body = envelope.headers(content), NATIVE.split(content)[1].decode()
        if "x-barrier" in headers and "x-lease-until" not in headers or "x-browse" in headers:
            return [tag, body]
        until = headers["x-lease-until"].value - self.began_ms if "x-lease-until" in headers else None
        count = headers["x-delivery-count"].value
        assert redelivered == (count > 1)
        return [tag, body, count, headers["x-cancel-count"].value, until]

    def seen(self) -> Observation:
        seen = self.taken()
        assert all(isinstance(one, ConsumerCancelled) for one in self.engine.effects)
        dead = []
        while (got := self.publisher.get(self.vhost.queues["dead"], no_ack=True)) is not None:
            headers = got[1].envelope.headers(got[1].content)
            dead.append([NATIVE.split(got[1].content)[1].decode(), headers["x-amps-reason"].text])
        seen["dead"] = sorted(dead)
        if (queue := self.queue) is not None:
            counters = queue.counters.as_dict()
            names = ("acknowledged", "expired", "killed", "lease_ended")
            seen["queue"] = [queue.ready_count, queue.events.unacked, {name: counters[name] for name in names}]
        check_broker(self.broker, messages_max=100)
        return seen

    def _session(self, operation: Operation) -> Session:
        key = self._key(operation)
        if key not in self.sessions:
            self.sessions[key] = self.client(operation["c"]).open_session()
        return self.sessions[key]

    def _key(self, operation: Operation) -> tuple[int, Any]:
        return operation["c"], operation["ch"]

    def _declare(self, operation: Operation, number: int) -> None:
        if self.queue is not None:
            return
        said: dict[str, Any] = {
            "x-queue-type": "amps",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
        said |= {ARGUMENTS[name]: value for name, value in operation.items() if name in ARGUMENTS}
        said |= dict(EXPRESSIONS[name] for name in EXPRESSIONS if operation.get(name))
        self.queue = self.engine.queue(client=self.client(9), **said)

    def _publish(self, operation: Operation, number: int) -> None:
        expiration = operation.get("expiration")
        properties = {} if expiration is None else {"expiration": str(expiration)}
        if self.queue is not None:
            bodies = [body_of(operation, number, index) for index in range(operation.get("count", 1))]
            self.engine.publish(*bodies, by=self.publisher, **properties)

    def _subscribe(self, operation: Operation, tag: str, more: dict[str, Any]) -> None:
        said = dict(more)
        for name, argument in (("backlog", "x-max-backlog"), ("priority", "x-priority"), ("filter", "x-filter")):
            if name in operation:
                said[argument] = operation[name]
        self.engine.consume(
            self.queue,
            f"{operation['c']}.{operation['ch']}/{tag}",
            by=self._session(operation),
            prefetch=operation.get("qos"),
            no_ack=operation.get("no_ack", False),
            **said,
        )

    def _tag(self, operation: Operation) -> str:
        return f"{operation['c']}.{operation['ch']}/{operation['consumer_tag']}"

    def _consume(self, operation: Operation, number: int) -> None:
        if self.queue is not None and self._tag(operation) not in self._session(operation).consumers:
            self._subscribe(operation, operation["consumer_tag"], {})

    def _replace(self, operation: Operation, number: int) -> None:
        known = self._session(operation).consumers.get(self._tag(operation))
        if self.queue is not None and known is not None:
            again = {**operation, "no_ack": known.no_ack}
            self._subscribe(again, operation["consumer_tag"], {"x-replace": True})

    def _browse(self, operation: Operation, number: int) -> None:
        if self.queue is not None:
            more = {"x-browse": True} | ({"x-top-n": operation["top_n"]} if "top_n" in operation else {})
            self._subscribe(operation, "look", more)

    def _cancel(self, operation: Operation, number: int) -> None:
        self._session(operation).cancel(self._tag(operation))

    def _get(self, operation: Operation, number: int) -> Any:
        if self.queue is None:
            return None
        got = self._session(operation).get(self.queue, no_ack=operation.get("no_ack", False))
        if got is None:
            return "empty"
        tag, message, redelivered, _ = got
        told = self.told(tag, message.envelope, message.content, redelivered)
        if len(told) == 2:  # a barrier, or what a queue without periods lends
            headers = message.envelope.headers(message.content)
            told += [headers["x-delivery-count"].value, headers["x-cancel-count"].value, None]
        return told

    def _marks(self, operation: Operation) -> str:
        newest = self.broker.context.next_id - 1
        return ",".join(f"1|{newest - back}|" for back in operation.get("back", ()) if newest - back > 0)

    def _renew(self, operation: Operation, number: int) -> Any:
        marks = self._marks(operation)
        return renew_leases(self.queue, marks) if self.queue is not None and marks else None

    def _discard(self, operation: Operation, number: int) -> Any:
        marks = None if "filter" in operation else self._marks(operation)
        if self.queue is None or marks == "":
            return None
        steps = discarding(self.queue, marks, operation.get("filter"), operation.get("how", ""))
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return [stop.value.matches, stop.value.deleted, stop.value.deferred]

    def _purge(self, operation: Operation, number: int) -> Any:
        return None if self.queue is None else self.queue.purge()
