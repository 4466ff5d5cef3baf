"""Subscribers of topics in virtual time: a broker, its publisher, and clients with queues of their own."""

from __future__ import annotations

from typing import Any

from leveret.engine import BrokerOptions, Client, Envelope, Event, Session
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
from leveret.testing.harness import Harness, messages


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
    """A client with a queue of its own, and a consumer that acknowledges nothing."""

    def __init__(self, bench: Bench, name: str, *, prefetch: int = 0, consumes: bool = True):
        self.bench = bench
        self.got: list[str] = []
        self.reads = True
        self.session: Session = bench.connect(name, flush=self.read)
        self.client: Client = self.session.client
        self.queue = bench.queue(name, client=self.client, durable=False, exclusive=True)
        self.session.set_prefetch(prefetch, total=False)
        if consumes:
            self.consume()

    def consume(self) -> None:
        self.bench.consume(self.queue, by=self.session)

    def bind(self, key: str, exchange: str = "amq.topic") -> Subscriber:
        self.bench.bind(self.queue.name, exchange, key)
        return self

    def read(self) -> None:
        if self.reads:
            self.bench.read(self.client)
            assert not self.bench.effects
            self.got += [one.body.decode() for one in self.bench.deliveries]
            self.bench.deliveries.clear()

    @property
    def waiting(self) -> list[str]:
        return [message.body.decode() for message in self.queue.store]


class Bench(Harness):
    """A broker with these settings. `publish` does not end the turn before a run is whole."""

    ends_turns = False

    def __init__(
        self,
        *entries: Entry,
        destinations: DestinationPolicies = NO_DESTINATIONS,
        system: SystemUsage | None = None,
        whole: WholeLimits = NO_WHOLE_LIMITS,
        unsent_max: int = 1 << 20,
    ) -> None:
        repository = SettingsRepository(entries, usage=system, destinations=destinations)
        options = BrokerOptions(system_usage=system, whole_limits=whole)
        super().__init__(repository, options=options, unsent_max=unsent_max)
        self.events: list[Event] = []

    def listen(self) -> None:
        self.broker.context.listeners.append(self.events.append)

    def publish(
        self, *bodies: str, key: str = "PRICES.X", exchange: str = "amq.topic", at_once: bool = False, **properties: int
    ) -> None:
        """One message a turn, or all of them in one run. Headers: whatever is no property."""
        known: dict[str, Any] = {name: value for name, value in properties.items() if name in ("priority", "timestamp")}
        headers = {name: value for name, value in properties.items() if name not in (*known, "ttl")}
        if headers:
            known["headers"] = headers
        if "ttl" in properties:
            known["expiration"] = str(properties["ttl"])
        for run in [bodies] if at_once else [[body] for body in bodies]:
            summary, contents = messages(run, known)
            envelope = Envelope(exchange, key, summary)
            offer = self.session.publish_with_room(self.route(key, exchange), envelope, contents, mandatory=False)
            assert (offer.taken, offer.full) == (len(contents), None)
            self.end_turn()

    def replace(self, *entries: Entry, destinations: DestinationPolicies = NO_DESTINATIONS) -> None:
        self.reload(SettingsRepository(entries, destinations=destinations))
        self.end_turn()


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]
