"""Leased queues as peers of the differential mode: the model, and the engine on virtual time.

There is one leased queue, `q`, its dead letters, and three clients with two channels each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lease_model import FILTERS, UNSAID, LeaseConsumer, LeaseMessage, LeaseQueue, LeaseSession, Out
from model_side import Observation, Operation, chosen

from leveret.engine import Broker, Client, Delivered, Envelope, ManualClock, Session, User, discarding, renew_leases
from leveret.engine.clients.session import NACKED
from leveret.engine.delivery.effects import ConsumerCancelled
from leveret.engine.invariants import check_broker
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, FieldTable

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


class Side:
    """What both have: operations by their names."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.clean_up()

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        """Nothing is declared."""
        raise NotImplementedError

    def perform(self, operation: Operation, number: int, *, patient: bool = False) -> Iterator[None]:
        """One operation; returns what clients and an operator see."""
        self.sent.clear()
        self.sent[operation["op"]] += operation.get("count", 1)
        seen: Observation = {}
        result = getattr(self, "_" + operation["op"])(operation, number)
        if result is not None:
            seen["result"] = result
        seen.update(self.seen())
        return seen
        yield

    def seen(self) -> Observation:
        """Since the last look."""
        raise NotImplementedError


class LeaseModelSide(Side):
    """The model."""

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        self.now = self.number = 0
        self.queue: LeaseQueue | None = None
        self.sessions: dict[tuple[int, int], LeaseSession] = {}
        self.dead: list[list[str]] = []

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
            messages.append(LeaseMessage(self.number, body, p, bool(operation.get("s"))))
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


class LeaseEngineSide(Side):
    """The engine."""

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        self.clock = ManualClock()
        self.clock.advance_ns(MS)  # no clock stands at 0, which means never
        self.began_ms = self.clock.wall_ms()
        self.broker = Broker(self.clock)
        self.clients: dict[int, Client] = {}
        self.sessions: dict[tuple[int, int], Session] = {}
        self.deliveries: dict[str, list[list[Any]]] = {}
        self.queue: Any = None
        self.vhost = self._client(9).vhost
        self.publisher = self._client(9).open_session()
        self.vhost.queues.declare("dead", client=self._client(9), durable=True, arguments={})

    def _client(self, number: int) -> Client:
        if number not in self.clients:
            client = self.broker.connections.open("/", USER, name=f"c{number}", flush=lambda: self._flush(client))
            self.clients[number] = client
        return self.clients[number]

    def _flush(self, client: Client) -> None:
        for effect in client.take_outbox():
            if isinstance(effect, ConsumerCancelled):
                continue
            assert isinstance(effect, Delivered)
            for first, envelope, contents in effect.runs():
                for tag, content in enumerate(contents, first):
                    place, name = effect.consumer.tag.split("/")
                    seen = self._told(envelope, content, tag, redelivered=effect.redelivered)
                    self.deliveries.setdefault(place, []).append([name, *seen])
        client.drained()

    def _told(self, envelope: Envelope, content: bytes, tag: int, *, redelivered: bool) -> list[Any]:
        headers, body = envelope.headers(content), PLAIN.split(content)[1].decode()
        if "x-barrier" in headers and "x-lease-until" not in headers or "x-browse" in headers:
            return [tag, body]
        until = headers["x-lease-until"].value - self.began_ms if "x-lease-until" in headers else None
        count = headers["x-delivery-count"].value
        assert redelivered == (count > 1)
        return [tag, body, count, headers["x-cancel-count"].value, until]

    def _end_turn(self) -> None:
        while self.broker.end_turn() or self.broker.scheduler.load():
            pass

    def seen(self) -> Observation:
        self._end_turn()
        seen: Observation = dict(sorted(self.deliveries.items()))
        self.deliveries = {}
        dead = []
        while (got := self.publisher.get(self.vhost.queues["dead"], no_ack=True)) is not None:
            headers = got[1].envelope.headers(got[1].content)
            dead.append([PLAIN.split(got[1].content)[1].decode(), headers["x-amps-reason"].text])
        seen["dead"] = sorted(dead)
        if (queue := self.queue) is not None:
            counters = queue.counters.as_dict()
            names = ("acknowledged", "expired", "killed", "lease_ended")
            seen["queue"] = [queue.ready_count, queue.events.unacked, {name: counters[name] for name in names}]
        check_broker(self.broker, messages_max=100)
        return seen

    def _session(self, operation: Operation) -> Session:
        key = operation["c"], operation["ch"]
        if key not in self.sessions:
            self.sessions[key] = self._client(operation["c"]).open_session()
        return self.sessions[key]

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
        table = _table(said)
        self.queue = self.vhost.queues.declare("q", client=self._client(9), durable=True, arguments=table)

    def _publish(self, operation: Operation, number: int) -> None:
        expiration = operation.get("expiration")
        properties: dict[str, Any] = {} if expiration is None else {"expiration": str(expiration).encode()}
        contents = []
        for index in range(operation.get("count", 1)):
            body = body_of(operation, number, index).encode()
            contents.append(PLAIN.join(encode_header(len(body), properties), body))
        envelope = Envelope("", "q", scan_properties(PLAIN.split(contents[0])[0][12:]))
        if self.queue is not None:
            self.publisher.publish(self.vhost.router.route("", "q", USER), envelope, contents, mandatory=False)

    def _subscribe(self, operation: Operation, tag: str, more: dict[str, Any]) -> None:
        session = self._session(operation)
        if "qos" in operation:
            session.limit(operation["qos"], total=False)
        said = dict(more)
        for name, argument in (("backlog", "x-max-backlog"), ("priority", "x-priority"), ("filter", "x-filter")):
            if name in operation:
                said[argument] = operation[name]
        no_ack = operation.get("no_ack", False)
        place = f"{operation['c']}.{operation['ch']}"
        session.consume(self.queue, f"{place}/{tag}", no_ack=no_ack, exclusive=False, arguments=_table(said))

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
        told = self._told(message.envelope, message.content, tag, redelivered=redelivered)
        if len(told) == 2:  # a barrier, or what a queue without periods lends
            headers = message.envelope.headers(message.content)
            told += [headers["x-delivery-count"].value, headers["x-cancel-count"].value, None]
        return told

    def _ack(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if tags := chosen(list(session.unacked), operation):
            session.ack(tags[-1], multiple=operation.get("multiple", False))

    def _nack(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if tags := chosen(list(session.unacked), operation):
            multiple, requeue = operation.get("multiple", False), operation.get("requeue", False)
            session.reject(tags[-1], multiple=multiple, requeue=requeue, why=NACKED)

    def _recover(self, operation: Operation, number: int) -> None:
        self._session(operation).recover()

    def _close(self, operation: Operation, number: int) -> None:
        session = self.sessions.pop((operation["c"], operation["ch"]), None)
        if session is not None:
            session.close()
            session.client.sessions.pop(session, None)

    def _drop(self, operation: Operation, number: int) -> None:
        if operation["c"] in self.clients:
            self.clients.pop(operation["c"]).close(failed=True)
            for key in [key for key in self.sessions if key[0] == operation["c"]]:
                del self.sessions[key]

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

    def _advance(self, operation: Operation, number: int) -> None:
        until = self.clock.monotonic_ns() + operation.get("ms", 0) * MS
        while (due := self.broker.next_deadline_ns()) is not None and due <= until:
            self.clock.advance_ns(max(0, due - self.clock.monotonic_ns()))
            self.broker.advance()
            self._end_turn()
        self.clock.advance_ns(until - self.clock.monotonic_ns())


def _table(said: Mapping[str, Any]) -> FieldTable:
    kinds = {bool: "t", int: "l", str: "S"}
    return {
        key: Field(kinds[type(value)], value.encode() if isinstance(value, str) else value)
        for key, value in said.items()
    }
