"""The engine as a peer of the differential mode, without sockets and on virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model_side import Observation, Operation, Side, chosen, rules_of

from leveret.engine import Client, Envelope, ManualClock, Queue, Session
from leveret.engine.clients.session import NACKED
from leveret.engine.messages.content import NATIVE
from leveret.settings import NO_SETTINGS, SettingsRepository, entry
from leveret.testing.harness import GUEST, Harness

MS = 1_000_000
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


class Engine(Harness):
    """Its clients come from operations, which also end the turns."""

    has_client = False
    ends_turns = False


class EngineBase(Side):
    """The engine on virtual time. `deliveries`: what clients got, by place; tags of consumers are place/name."""

    options: Mapping[str, Any] = {}  # of the harness

    def begin(self, settings: SettingsRepository = NO_SETTINGS) -> None:
        """A new broker."""
        self.clock = ManualClock()
        self.clock.advance_ns(MS)  # no clock stands at 0, which means never
        self.engine = Engine(settings, clock=self.clock, **self.options)
        self.attach()

    def attach(self) -> None:
        """The broker is a new one, without clients."""
        self.broker, self.vhost = self.engine.broker, self.engine.vhost
        self.clients: dict[int, Client] = {}
        self.sessions: dict[tuple[int, Any], Session] = {}
        self.deliveries: dict[str, list[list[Any]]] = {}

    def client(self, number: int) -> Client:
        """The client of this number."""
        if number not in self.clients:
            client = self.broker.connections.open("/", GUEST, name=f"c{number}", flush=lambda: self._flush(client))
            self.clients[number] = client
        return self.clients[number]

    def _flush(self, client: Client) -> None:
        self.engine.read(client)
        for one in self.engine.deliveries:
            place, name = one.consumer.tag.split("/")
            seen = [name, *self.told(one.tag, one.envelope, one.content, one.redelivered)]
            self.deliveries.setdefault(place, []).append(seen)
        self.engine.deliveries.clear()

    def told(self, tag: int, envelope: Envelope, content: bytes, redelivered: bool) -> list[Any]:
        """What a client is told of a delivery."""
        raise NotImplementedError

    def taken(self) -> Observation:
        """What clients got when the turn has ended, since the last look."""
        self.engine.finish_turns()
        taken, self.deliveries = self.deliveries, {}
        return dict(sorted(taken.items()))

    def _session(self, operation: Operation) -> Session | None:
        raise NotImplementedError

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
        session = self.sessions.pop(self._key(operation), None)
        if session is not None:
            session.close()
            session.client.sessions.pop(session, None)

    def _key(self, operation: Operation) -> tuple[int, Any]:
        raise NotImplementedError

    def _drop(self, operation: Operation, number: int) -> None:
        if operation["c"] in self.clients:
            self.clients.pop(operation["c"]).close(failed=True)
            for key in [key for key in self.sessions if key[0] == operation["c"]]:
                del self.sessions[key]

    def _advance(self, operation: Operation, number: int) -> None:
        self.engine.advance(operation.get("ms", 0))


class EngineSide(EngineBase):
    """Each client has a session for each queue, so that tags do not depend on the order in which queues have their
    turns."""

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        self.rules: dict[str, dict[str, Any]] = {}
        self.begin(SettingsRepository([]))
        self.client(0)

    def seen(self) -> Observation:
        seen = self.taken()
        seen["queues"] = {
            name: [queue.ready_count, queue.events.unacked, len(queue.scheduled), _counters(queue)]
            for name, queue in sorted(self.vhost.queues.items())
        }
        return seen

    def told(self, tag: int, envelope: Envelope, content: bytes, redelivered: bool) -> list[Any]:
        headers: Any = envelope.headers(content)
        origin = headers["_AMQ_ORIG_QUEUE"].text if "_AMQ_ORIG_QUEUE" in headers else None
        failed = headers["x-delivery-count"].value if "x-delivery-count" in headers else 0
        deaths: list[Any] = []
        if "x-death" in headers:
            for one in headers["x-death"].value:
                table = one.value
                deaths.append([table["reason"].text, table["queue"].text, table["count"].value])
        return [tag, NATIVE.split(content)[1].decode(), redelivered, failed, origin, deaths]

    def _key(self, operation: Operation) -> tuple[int, Any]:
        return operation["c"], operation["queue"]

    def _queue(self, operation: Operation) -> Queue | None:
        return self.vhost.queues.get(operation["queue"])

    def _session(self, operation: Operation) -> Session | None:
        if self._queue(operation) is None:
            return None
        key = self._key(operation)
        if key not in self.sessions:
            self.sessions[key] = self.client(operation["c"]).open_session()
        return self.sessions[key]

    # -- operations -------------------------------------------------------------------------------------------------

    def _declare(self, operation: Operation, number: int) -> None:
        if self._queue(operation) is None:
            self._say(operation)
            self.engine.queue(operation["queue"], client=self.client(0))

    def _settings(self, operation: Operation, number: int) -> None:
        if self._queue(operation) is not None:
            self._say(operation)

    def _say(self, operation: Operation) -> None:
        self.rules.pop(operation["queue"], None)
        if rules := rules_of(operation):
            self.rules[operation["queue"]] = rules
        entries = [entry(name, **_said(rules)) for name, rules in self.rules.items()]
        self.broker.reloading.replace_settings(SettingsRepository(entries))
        self.engine.finish_turns()

    def _publish(self, operation: Operation, number: int) -> None:
        expiration, key = operation.get("expiration"), operation.get("key")
        publisher = self.client(CLIENTS)
        self.engine.publish(
            *(f"{number}-{index}" for index in range(operation.get("count", 1))),
            key=operation["queue"],
            by=next(iter(publisher.sessions), None) or publisher.open_session(),
            headers={} if key is None else {KEY: key},
            expiration=None if expiration is None else str(expiration),
        )

    def _consume(self, operation: Operation, number: int) -> None:
        session, queue = self._session(operation), self._queue(operation)
        if session is not None and queue is not None:
            tag = f"{operation['c']} {queue.name}/{operation['consumer_tag']}"
            if tag not in session.consumers:
                self.engine.consume(
                    queue, tag, by=session, prefetch=operation.get("prefetch", 0), no_ack=operation.get("no_ack", False)
                )

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
        return self.told(tag, message.envelope, message.content, redelivered)

    def _purge(self, operation: Operation, number: int) -> Any:
        queue = self._queue(operation)
        return None if queue is None else queue.purge()


def _counters(queue: Queue) -> dict[str, int]:
    counters = queue.counters.as_dict()
    return {name: counters[name] for name in COUNTERS}
