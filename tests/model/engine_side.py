"""The engine as a peer of the differential mode, without sockets and on virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from model_side import Observation, Operation, chosen, rules_of

from leveret.engine import Broker, Client, Delivered, Envelope, ManualClock, Queue, Session, User
from leveret.engine.clients.session import NACKED
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
from leveret.engine.messages.field_table import Field
from leveret.settings import SettingsRepository, entry

MS = 1_000_000
USER = User("guest")
CLIENTS = 3
KEY = "k"
COUNTERS = ("acknowledged", "expired", "killed", "replaced")
#: Rules -> address-settings.
NAMES = {
    "ring": "default_ring_size",
    "delay": "redelivery_delay_ms",
    "multiplier": "redelivery_delay_multiplier",
    "cap": "max_redelivery_delay_ms",
    "attempts": "max_delivery_attempts",
    "dead": "dead_letter_address",
    "expired": "expiry_address",
    "expiry_delay": "expiry_delay_ms",
    "expiry_min": "min_expiry_delay_ms",
    "expiry_max": "max_expiry_delay_ms",
    "no_expiry": "no_expiry",
}


def _said(rules: dict[str, Any]) -> dict[str, Any]:
    said = {NAMES[name]: value for name, value in rules.items() if name in NAMES}
    if rules.get("last_value"):
        said["default_last_value_key"] = KEY
    return said


class EngineSide:
    """See `Peer` of the differential mode. Each client has a session for each queue, so that tags do not depend on the
    order in which queues have their turns."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.clean_up()

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        """A new broker."""
        self.clock = ManualClock()
        self.clock.advance_ns(MS)  # no clock stands at 0, which means never
        self.rules: dict[str, dict[str, Any]] = {}
        self.broker = Broker(self.clock, settings=SettingsRepository([]))
        self.clients: dict[int, Client] = {}
        self.sessions: dict[tuple[int, str], Session] = {}
        self.deliveries: dict[str, list[list[Any]]] = {}
        self.vhost = self._client(0).vhost

    def _client(self, number: int) -> Client:
        if number not in self.clients:
            client = self.broker.connections.open("/", USER, name=f"c{number}", flush=lambda: self._flush(client))
            self.clients[number] = client
        return self.clients[number]

    def _flush(self, client: Client) -> None:
        for effect in client.take_outbox():
            if isinstance(effect, Delivered):
                for first, envelope, contents in effect.runs():
                    for tag, content in enumerate(contents, first):
                        place, name = effect.consumer.tag.split("/")
                        seen = [name, tag, *_told(envelope, content, effect.redelivered)]
                        self.deliveries.setdefault(place, []).append(seen)
        client.drained()

    def _end_turn(self) -> None:
        while self.broker.end_turn():
            pass

    def perform(self, operation: Operation, number: int, *, patient: bool = False) -> Iterator[None]:
        """One operation; returns what a client and an operator see."""
        self.sent.clear()
        self.sent[operation["op"]] += operation.get("count", 1)
        seen: Observation = {}
        result = getattr(self, "_" + operation["op"].replace(".", "_"))(operation, number)
        if result is not None:
            seen["result"] = result
        self._end_turn()
        seen.update(sorted(self.deliveries.items()))
        self.deliveries = {}
        seen["queues"] = {
            name: [queue.ready_count, queue.events.unacked, len(queue.scheduled), _counters(queue)]
            for name, queue in sorted(self.vhost.queues.items())
        }
        return seen
        yield

    def _queue(self, operation: Operation) -> Queue | None:
        return self.vhost.queues.get(operation["queue"])

    def _session(self, operation: Operation) -> Session | None:
        if self._queue(operation) is None:
            return None
        key = operation["c"], operation["queue"]
        if key not in self.sessions:
            self.sessions[key] = self._client(operation["c"]).open_session()
        return self.sessions[key]

    # -- operations -------------------------------------------------------------------------------------------------

    def _declare(self, operation: Operation, number: int) -> None:
        if self._queue(operation) is None:
            self._say(operation)
            self.vhost.queues.declare(operation["queue"], client=self._client(0), durable=True, arguments={})

    def _settings(self, operation: Operation, number: int) -> None:
        if self._queue(operation) is not None:
            self._say(operation)

    def _say(self, operation: Operation) -> None:
        self.rules.pop(operation["queue"], None)
        if rules := rules_of(operation):
            self.rules[operation["queue"]] = rules
        entries = [entry(name, **_said(rules)) for name, rules in self.rules.items()]
        self.broker.reloading.replace_settings(SettingsRepository(entries))
        self._end_turn()

    def _publish(self, operation: Operation, number: int) -> None:
        expiration, key = operation.get("expiration"), operation.get("key")
        properties: dict[str, Any] = {
            "headers": {} if key is None else {KEY: Field("S", key.encode())},
            "expiration": None if expiration is None else str(expiration).encode(),
        }
        contents = []
        for index in range(operation.get("count", 1)):
            body = f"{number}-{index}".encode()
            contents.append(PLAIN.join(encode_header(len(body), properties), body))
        summary = scan_properties(PLAIN.split(contents[0])[0][12:])
        name, publisher = operation["queue"], self._client(CLIENTS)
        session = next(iter(publisher.sessions), None) or publisher.open_session()
        session.publish(self.vhost.router.route("", name, USER), Envelope("", name, summary), contents, mandatory=False)

    def _consume(self, operation: Operation, number: int) -> None:
        session, queue = self._session(operation), self._queue(operation)
        if session is not None and queue is not None:
            tag = f"{operation['c']} {queue.name}/{operation['consumer_tag']}"
            if tag not in session.consumers:
                session.limit(operation.get("prefetch", 0), total=False)
                session.consume(queue, tag, no_ack=operation.get("no_ack", False), exclusive=False, arguments={})

    def _cancel(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if session is not None:
            session.cancel(f"{operation['c']} {operation['queue']}/{operation['consumer_tag']}")

    def _get(self, operation: Operation, number: int) -> Any:
        session, queue = self._session(operation), self._queue(operation)
        if session is None or queue is None:
            return None
        got = session.get(queue, no_ack=operation.get("no_ack", False))
        if got is None:
            return "empty"
        tag, message, redelivered, _ = got
        return [tag, *_told(message.envelope, message.content, redelivered)]

    def _ack(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if session is not None and (tags := chosen(list(session.unacked), operation)):
            session.ack(tags[-1], multiple=operation.get("multiple", False))

    def _nack(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if session is not None and (tags := chosen(list(session.unacked), operation)):
            multiple, requeue = operation.get("multiple", False), operation.get("requeue", False)
            session.reject(tags[-1], multiple=multiple, requeue=requeue, why=NACKED)

    def _recover(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if session is not None:
            session.recover()

    def _close(self, operation: Operation, number: int) -> None:
        session = self._session(operation)
        if session is not None:
            del self.sessions[operation["c"], operation["queue"]]
            session.close()
            session.client.sessions.pop(session, None)

    def _drop(self, operation: Operation, number: int) -> None:
        if operation["c"] in self.clients:
            self.clients.pop(operation["c"]).close(failed=True)
            for key in [key for key in self.sessions if key[0] == operation["c"]]:
                del self.sessions[key]

    def _advance(self, operation: Operation, number: int) -> None:
        until = self.clock.monotonic_ns() + operation.get("ms", 0) * MS
        while (due := self.broker.next_deadline_ns()) is not None and due <= until:
            self.clock.advance_ns(max(0, due - self.clock.monotonic_ns()))
            self.broker.advance()
            self._end_turn()
        self.clock.advance_ns(until - self.clock.monotonic_ns())

    def _purge(self, operation: Operation, number: int) -> Any:
        queue = self._queue(operation)
        return None if queue is None else queue.purge()


def _counters(queue: Queue) -> dict[str, int]:
    counters = queue.counters.as_dict()
    return {name: counters[name] for name in COUNTERS}


def _told(envelope: Envelope, content: bytes, redelivered: bool) -> list[Any]:
    headers = envelope.headers(content)
    origin = headers["_AMQ_ORIG_QUEUE"].text if "_AMQ_ORIG_QUEUE" in headers else None
    failed = headers["x-delivery-count"].value if "x-delivery-count" in headers else 0
    deaths: list[Any] = []
    if "x-death" in headers:
        for one in headers["x-death"].value:
            table = one.value
            deaths.append([table["reason"].text, table["queue"].text, table["count"].value])
    return [PLAIN.split(content)[1].decode(), redelivered, failed, origin, deaths]
