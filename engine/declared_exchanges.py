"""Declaring and deleting the exchanges of a virtual host. Source: behaviour page 2.1, 2.5."""

from collections.abc import Iterator

from .bindings import Bindings
from .declaring import DeclaringHost, check_same_fields
from .errors import (
    DefaultExchangeRefused,
    InUse,
    InvalidDeadLetterExchange,
    ReservedName,
    SystemExchangeRefused,
    UnknownExchangeType,
)
from .events import EventKind
from .exchanges import hash_exchange, random_exchange  # noqa: F401 - exchanges enter their types into EXCHANGE_TYPES
from .exchanges.exchange import EXCHANGE_TYPES, PREDECLARED, Exchange
from .messages.field_table import FieldTable
from .object_events import ExchangeEvent
from .peers.client import Client
from .peers.permission_checks import require
from .publishing.service import Handler, ServiceExchange
from .publishing.topology import Topology
from .rules.arguments import EXCHANGE_ARGUMENTS, check_same_alternate, unknown_arguments
from .users.permissions import CONFIGURE, EXCHANGE, READ, WRITE

#: Exchanges that hear of changed policies in one step, and what looking for theirs may cost in it (2 to 4 ms).
EXCHANGES_SLICE, POLICIES_SLICE = 1_000, 3_000


class DeclaredExchanges:
    """Of one virtual host. `client`: who does it, and may; None: the broker itself."""

    __slots__ = ("_bindings", "_topology", "_vhost")

    def __init__(self, vhost: DeclaringHost, topology: Topology, bindings: Bindings) -> None:
        self._vhost = vhost
        self._topology = topology
        self._bindings = bindings

    def add_predeclared(self, services: dict[str, Handler]) -> None:
        """Those that every virtual host has, services among them."""
        exchanges = self._topology.exchanges
        for name, kind, internal in PREDECLARED:
            exchanges[name] = EXCHANGE_TYPES[kind](name, durable=True, internal=internal)
        for name, handler in services.items():
            exchanges[name] = ServiceExchange(name, handler)
        for _ in self.policies_changed():
            pass

    def declare(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: FieldTable | None = None,
        passive: bool = False,
        client: Client | None = None,
    ) -> Exchange:
        """Create an exchange, or check that the one there is the same (`passive`: is there at all).

        Raises: UnknownExchangeType, DefaultExchangeRefused, ExchangeNotFound, InequivalentField,
            InequivalentArgument, ReservedName, InvalidDeadLetterExchange, PermissionRefused.
        """
        exchange_type = EXCHANGE_TYPES.get(kind)
        if exchange_type is None and not passive:
            raise UnknownExchangeType(type=kind)
        if not name:
            raise DefaultExchangeRefused
        if passive:
            return self._topology.exchange(name)
        require(client, CONFIGURE, EXCHANGE, name)
        assert exchange_type is not None
        arguments = arguments or {}
        vhost = self._vhost
        current = self._topology.exchanges.get(name)
        if current is not None:
            fields = {"type": kind, "durable": durable, "auto_delete": auto_delete, "internal": internal}
            check_same_fields("exchange", current, fields, vhost=vhost.name)
            check_same_alternate(current.arguments, arguments, name=name, vhost=vhost.name)
            return current
        if name.startswith("amq."):
            raise ReservedName(kind="exchange", name=name)
        alternate = arguments.get("alternate-exchange")
        if alternate is not None and alternate.tag != "S":
            raise InvalidDeadLetterExchange(
                type=alternate.type_name, key="alternate-exchange", kind="exchange", name=name, vhost=vhost.name
            )
        if alternate is not None:
            require(client, READ, EXCHANGE, name)
            require(client, WRITE, EXCHANGE, alternate.text)
        exchange = exchange_type(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        spent = vhost.broker.policies.spent
        exchange.set_policy(vhost.broker.policies.of_exchange(name, vhost.name))
        vhost.broker.effort.spent += vhost.broker.policies.spent - spent
        self._topology.add_exchange(exchange)
        if arguments and (unknown := unknown_arguments(arguments, EXCHANGE_ARGUMENTS)):
            vhost.broker.on_unknown_arguments("exchange", name, vhost.name, unknown)
        if vhost.broker.listeners:
            vhost.broker.announce(ExchangeEvent(EventKind.DECLARED, vhost.name, name, exchange))
        return exchange

    def delete(self, name: str, *, if_unused: bool = False, client: Client | None = None) -> None:
        """Delete an exchange and its bindings; a missing one is fine.

        Raises: DefaultExchangeRefused, SystemExchangeRefused, PermissionRefused, InUse (it is the source of a binding).
        """
        exchange = self._topology.exchanges.get(name)
        if not name:
            raise DefaultExchangeRefused
        if name.startswith("amq.") or isinstance(exchange, ServiceExchange):
            raise SystemExchangeRefused(name=name, vhost=self._vhost.name)
        require(client, CONFIGURE, EXCHANGE, name)
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise InUse(kind="exchange", name=name, vhost=self._vhost.name)
        self._remove(exchange)

    def remove_all(self) -> None:
        """The virtual host goes, with all but those that every one has."""
        predeclared = {name for name, _, _ in PREDECLARED}
        for exchange in list(self._topology.exchanges.values()):
            is_own = exchange.name not in predeclared and not isinstance(exchange, ServiceExchange)
            if is_own and self._topology.exchanges.get(exchange.name) is exchange:  # it may have gone with one before
                self._remove(exchange)

    def policies_changed(self) -> Iterator[None]:
        """Other policies hold from now on: steps in which the exchanges hear of it. O(exchanges, times policies)."""
        broker, exchanges = self._vhost.broker, self._topology.exchanges
        until = broker.policies.spent + POLICIES_SLICE
        for number, exchange in enumerate(list(exchanges.values()), 1):
            if exchange.name and not isinstance(exchange, ServiceExchange) and exchanges.get(exchange.name) is exchange:
                exchange.set_policy(broker.policies.of_exchange(exchange.name, self._vhost.name))
            if number % EXCHANGES_SLICE == 0 or broker.policies.spent >= until:
                yield
                until = broker.policies.spent + POLICIES_SLICE
        self._topology.alternates_changed()

    def _remove(self, exchange: Exchange) -> None:
        self._bindings.drop_exchange(exchange)
        self._bindings.unbind_all(exchange)
