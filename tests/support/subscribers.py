"""Subscribers of topics in virtual time: a broker, its publisher, and clients with queues of their own."""

from __future__ import annotations

from leveret.engine import (
    Broker,
    BrokerOptions,
    Client,
    Envelope,
    Event,
    ManualClock,
    PropertySummary,
    Queue,
    Session,
    User,
)
from leveret.engine.delivery.effects import Delivered
from leveret.engine.messages.content import PLAIN, encode_header
from leveret.engine.messages.field_table import Field
from leveret.settings import (
    NO_DESTINATIONS,
    NO_WHOLE_LIMITS,
    DestinationPolicies,
    SettingsRepository,
    SystemUsage,
    WholeLimits,
    layer_of,
    parse_destination,
)
from leveret.settings.addresses.entries import Entry

USER = User("guest")


def topics(**policies: dict[str, object]) -> DestinationPolicies:
    """Entries `topic="..."` (a `_` is a point, and a last one `.>`)."""
    names = {name: name.replace("_", ".") + (">" if name.endswith("_") else "") for name in policies}
    return DestinationPolicies(
        topics=[
            Entry(parse_destination(names[name]), layer_of(**fields))  # type: ignore[arg-type]
            for name, fields in policies.items()
        ]
    )


class Subscriber:
    """A client with a queue of its own, and a consumer that acknowledges when it is asked to."""

    def __init__(self, bench: Bench, name: str, *, prefetch: int = 0, consumes: bool = True, no_ack: bool = False):
        self.bench = bench
        self.client: Client = bench.broker.connections.open("/", USER, name=name, flush=self.read)
        self.session: Session = self.client.open_session()
        self.queue: Queue = bench.vhost.queues.declare(name, client=self.client, exclusive=True)
        self.session.limit(prefetch, total=False)
        self.got: list[str] = []
        self.reads = True
        if consumes:
            self.consume(no_ack=no_ack)

    def consume(self, *, no_ack: bool = False) -> None:
        self.session.consume(self.queue, "c", no_ack=no_ack, exclusive=False, arguments={})

    def bind(self, key: str, exchange: str = "amq.topic") -> Subscriber:
        self.bench.vhost.bindings.add("queue", self.queue.name, exchange, key, {})
        return self

    def read(self) -> None:
        if not self.reads:
            return
        for effect in self.client.take_outbox():
            assert isinstance(effect, Delivered)
            envelope = effect.envelopes if isinstance(effect.envelopes, Envelope) else effect.envelopes[0]
            self.got += [envelope.framing.split(content)[1].decode() for content in effect.contents]
        self.client.drained()

    @property
    def waiting(self) -> list[str]:
        return [message.body.decode() for message in self.queue.store]

    def ack_all(self) -> None:
        self.session.ack(0, multiple=True)
        self.bench.end_turn()


class Bench:
    """A broker with these settings."""

    def __init__(
        self,
        *entries: Entry,
        destinations: DestinationPolicies = NO_DESTINATIONS,
        system: SystemUsage | None = None,
        whole: WholeLimits = NO_WHOLE_LIMITS,
        unsent_max: int = 1 << 20,
    ) -> None:
        repository = SettingsRepository(entries, usage=system, destinations=destinations)
        self.clock = ManualClock()
        options = BrokerOptions(system_usage=system, whole_limits=whole)
        self.broker = Broker(self.clock, settings=repository, options=options, unsent_max=unsent_max)
        self.vhost = self.broker.virtual_hosts["/"]
        self.publisher = self.broker.connections.open("/", USER, name="publisher", flush=lambda: None).open_session()
        self.events: list[Event] = []

    def listen(self) -> None:
        self.broker.context.listeners.append(self.events.append)

    def publish(
        self, *bodies: str, key: str = "PRICES.X", exchange: str = "amq.topic", at_once: bool = False, **properties: int
    ) -> None:
        """One message a turn, or all of them in one run. Headers: whatever is no property."""
        known = {name: value for name, value in properties.items() if name in ("priority", "timestamp")}
        headers = {name: Field("l", value) for name, value in properties.items() if name not in known}
        summary = PropertySummary(priority=known.get("priority"), has_headers=bool(headers))
        ttl = headers.pop("ttl", None)
        if ttl is not None:
            summary = summary._replace(expiration=str(ttl.value).encode())
        contents = [
            PLAIN.join(encode_header(len(body), {**known, **({"headers": headers} if headers else {})}), body.encode())
            for body in bodies
        ]
        for run in [contents] if at_once else [[content] for content in contents]:
            route = self.vhost.router.route(exchange, key, USER)
            envelope = Envelope(exchange, key, summary)
            offer = self.publisher.offer(route, envelope, run, mandatory=False)
            assert (offer.taken, offer.full) == (len(run), None)
            self.end_turn()

    def end_turn(self) -> None:
        while self.broker.end_turn():
            pass

    def advance(self, ms: int) -> None:
        self.clock.advance_ns(ms * 1_000_000)
        self.broker.advance()
        self.end_turn()

    def replace(self, *entries: Entry, destinations: DestinationPolicies = NO_DESTINATIONS) -> None:
        self.broker.reloading.replace_settings(
            SettingsRepository(entries, destinations=destinations), self.broker.context.options
        )
        self.end_turn()


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]
