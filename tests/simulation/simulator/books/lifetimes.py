"""What an address says of the time to live of messages that come to it holds of dead letters, too.

Which settings an address has the engine's settings say. Source: address-settings page 3.2.
"""

from __future__ import annotations

from leveret.engine import Broker, PublishedEvent

from ..ledger import Broken
from .book import Book, Handlers

#: Why the broker publishes a message to an address as anybody would: it died elsewhere.
DIED = frozenset({"expired", "rejected", "maxlen", "delivery_limit"})


class Lifetimes(Book):
    """Looks at each message that died as it comes to its next address."""

    def __init__(self) -> None:
        self._broker: Broker | None = None

    def handlers(self) -> Handlers:
        return {PublishedEvent: self._published}

    def attach(self, broker: Broker) -> None:
        self._broker = broker

    def _published(self, event: PublishedEvent) -> None:
        assert self._broker is not None
        if event.cause not in DIED:
            return
        run = event.run
        address = run.exchange or run.routing_key
        settings = self._broker.context.settings.resolve(address, event.vhost)
        if settings.expiry_delay_ms < 0 or settings.no_expiry:
            return
        own_ms = None if run.summary.expiration is None else int(run.summary.expiration)
        lives_ms = settings.expiry_delay_ms if own_ms is None else own_ms
        if run.expiration_ms != lives_ms:
            raise Broken(
                f"{list(event.messages)} died and came to {address} for {run.expiration_ms} ms, not {lives_ms}"
            )
