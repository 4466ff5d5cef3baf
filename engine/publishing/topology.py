"""What is in a virtual host, by name: its exchanges and queues, and what names and addresses stand for."""

from ..errors import ExchangeNotFound, QueueNotFound
from ..exchanges.delayed_exchange import DelayedExchange
from ..exchanges.exchange import Exchange
from ..queues.queue import Queue


class Topology:
    """The exchanges and queues of one virtual host."""

    __slots__ = ("_by_alternate", "exchanges", "name", "queues", "reply_queues")

    def __init__(self, name: str) -> None:
        self.name = name
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.reply_queues: dict[str, Queue] = {}  # behind consumers of direct replies, by address
        self._by_alternate: dict[str, dict[Exchange, None]] = {}  # exchanges by the name of their alternate exchange

    def queue(self, name: str) -> Queue:
        """Raises: QueueNotFound."""
        try:
            return self.queues[name]
        except KeyError:
            raise QueueNotFound(name=name, vhost=self.name) from None

    def exchange(self, name: str) -> Exchange:
        """Raises: ExchangeNotFound."""
        try:
            return self.exchanges[name]
        except KeyError:
            raise ExchangeNotFound(name=name, vhost=self.name) from None

    def queue_named(self, name: str) -> Queue | None:
        """Where the default exchange sends a routing key."""
        return self.queues.get(name) or self.reply_queues.get(name)

    def is_delaying(self, exchange_name: str) -> bool:
        """Whether an exchange of that name delays messages."""
        return isinstance(self.exchanges.get(exchange_name), DelayedExchange)

    def resolve_address(self, address: str, queue_name: str) -> tuple[str, str]:
        """Exchange and routing key that a dead-letter or expiry address stands for (address-settings page 1.3).

        `exchange:NAME/KEY`, `exchange:NAME`, `queue:NAME`; else an exchange of that name, else the queue of that name.
        """
        if address.startswith("exchange:"):
            name, slash, key = address.removeprefix("exchange:").partition("/")
            return name, key if slash else queue_name
        if address.startswith("queue:"):
            return "", address.removeprefix("queue:")
        return (address, queue_name) if address in self.exchanges else ("", address)

    # -- alternate exchanges ------------------------------------------------------------------------------------------

    def add_exchange(self, exchange: Exchange) -> None:
        """A new exchange: others may have waited for it as their alternate."""
        self.exchanges[exchange.name] = exchange
        self._note_alternate(exchange)
        for sending in self._by_alternate.get(exchange.name, ()):
            sending.routes.forget_all()

    def remove_exchange(self, exchange: Exchange) -> None:
        """Forget an exchange; what leads through it is the caller's."""
        del self.exchanges[exchange.name]
        if exchange.alternate is not None:
            sending = self._by_alternate[exchange.alternate]
            del sending[exchange]
            if not sending:
                del self._by_alternate[exchange.alternate]

    def alternates_changed(self) -> None:
        """Policies gave exchanges other alternate exchanges. O(exchanges)."""
        self._by_alternate = {}
        for exchange in self.exchanges.values():
            self._note_alternate(exchange)

    def _note_alternate(self, exchange: Exchange) -> None:
        if exchange.alternate is not None:
            self._by_alternate.setdefault(exchange.alternate, {})[exchange] = None
