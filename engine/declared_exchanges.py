"""Declaring and deleting the exchanges of a virtual host. Source: behaviour page 2.1, 2.5."""

from collections.abc import Iterator

from . import errors
from .clients.authorization import require
from .clients.client import Client
from .context import HostContext
from .events import EventKind
from .exchanges import hash_exchange, random_exchange  # noqa: F401 - exchanges enter their types into EXCHANGE_TYPES
from .exchanges.exchange import EXCHANGE_TYPES, PREDECLARED, Exchange
from .messages.field_table import FieldTable
from .object_events import ExchangeEvent
from .publishing.service import Handler, ServiceExchange
from .rules.arguments import EXCHANGE_ARGUMENTS, check_same_alternate, check_same_fields, unknown_arguments
from .users.permissions import CONFIGURE, EXCHANGE, READ, WRITE

#: Exchanges that follow changed policies in one step, and the cost of matching their policies in it (2 to 4 ms).
EXCHANGES_SLICE, POLICIES_SLICE = 1_000, 3_000


class DeclaredExchanges(dict[str, Exchange]):
    """The exchanges of one virtual host, by name. `client`: the caller, whose permissions apply; None: the broker."""

    def __init__(self, context: HostContext) -> None:
        super().__init__()
        self._context = context
        self._by_alternate: dict[str, dict[Exchange, None]] = {}  # by the name of their alternate exchange

    def named(self, name: str) -> Exchange:
        """The exchange `name`. Raises: ExchangeNotFound."""
        try:
            return self[name]
        except KeyError:
            raise errors.ExchangeNotFound(name=name, vhost=self._context.name) from None

    def add_predeclared(self, services: dict[str, Handler]) -> None:
        """Add the exchanges that every virtual host has, including those of services."""
        for name, kind, internal in PREDECLARED:
            self[name] = EXCHANGE_TYPES[kind](name, durable=True, internal=internal)
        for name, handler in services.items():
            self[name] = ServiceExchange(name, handler)
        for _ in self.policies_changed():
            pass

    def declare_passive(self, name: str) -> None:
        """Check that an exchange exists. Raises: DefaultExchangeRefused, ExchangeNotFound."""
        if not name:
            raise errors.DefaultExchangeRefused
        self.named(name)

    def declare(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: FieldTable | None = None,
        client: Client | None = None,
    ) -> Exchange:
        """Create an exchange, or check that the existing one is equivalent.

        Raises: UnknownExchangeType, DefaultExchangeRefused, InequivalentField, InequivalentArgument, ReservedName,
            InvalidDeadLetterExchange, PermissionRefused; by its type InvalidDelayedType, HashesContradict,
            UnsupportedHashProperty.
        """
        exchange_type = EXCHANGE_TYPES.get(kind)
        if exchange_type is None:
            raise errors.UnknownExchangeType(type=kind)
        if not name:
            raise errors.DefaultExchangeRefused
        require(client, CONFIGURE, EXCHANGE, name)
        arguments = arguments or {}
        host, broker = self._context, self._context.broker
        current = self.get(name)
        if current is not None:
            fields = {"type": kind, "durable": durable, "auto_delete": auto_delete, "internal": internal}
            check_same_fields("exchange", current, fields, name=name, vhost=host.name)
            check_same_alternate(current.arguments, arguments, name=name, vhost=host.name)
            return current
        if name.startswith("amq."):
            raise errors.ReservedName(kind="exchange", name=name)
        alternate = arguments.get("alternate-exchange")
        if alternate is not None and alternate.tag != "S":
            raise errors.InvalidDeadLetterExchange(
                type=alternate.type_name, key="alternate-exchange", kind="exchange", name=name, vhost=host.name
            )
        if alternate is not None:
            require(client, READ, EXCHANGE, name)
            require(client, WRITE, EXCHANGE, alternate.text)
        exchange = exchange_type(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        spent = broker.policies.spent
        exchange.set_policy(broker.policies.of_exchange(name, host.name))
        broker.turn.effort += broker.policies.spent - spent
        self[name] = exchange
        self._note_alternate(exchange)
        for sending in self._by_alternate.get(name, ()):  # they name it as their alternate
            sending.routes.forget_all()
        if arguments and (unknown := unknown_arguments(arguments, EXCHANGE_ARGUMENTS)):
            broker.on_unknown_arguments("exchange", name, host.name, unknown)
        if broker.listeners:
            broker.emit(ExchangeEvent(EventKind.DECLARED, host.name, name, exchange))
        return exchange

    def delete(self, name: str, *, if_unused: bool = False, client: Client | None = None) -> None:
        """Delete an exchange and its bindings. A missing exchange is no error.

        Raises: DefaultExchangeRefused, SystemExchangeRefused, PermissionRefused, InUse (it is the source of a binding).
        """
        exchange = self.get(name)
        if not name:
            raise errors.DefaultExchangeRefused
        if name.startswith("amq.") or isinstance(exchange, ServiceExchange):
            raise errors.SystemExchangeRefused(name=name, vhost=self._context.name)
        require(client, CONFIGURE, EXCHANGE, name)
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise errors.InUse(kind="exchange", name=name, vhost=self._context.name)
        self._remove(exchange)

    def remove_all(self) -> None:
        """Delete all but the predeclared exchanges of a deleted virtual host."""
        predeclared = {name for name, _, _ in PREDECLARED}
        for exchange in list(self.values()):
            is_own = exchange.name not in predeclared and not isinstance(exchange, ServiceExchange)
            if is_own and self.get(exchange.name) is exchange:  # not deleted with an earlier one
                self._remove(exchange)

    def policies_changed(self) -> Iterator[None]:
        """Apply changed policies to all exchanges, in steps. O(exchanges x policies)."""
        broker = self._context.broker
        until = broker.policies.spent + POLICIES_SLICE
        for number, exchange in enumerate(list(self.values()), 1):
            if exchange.name and not isinstance(exchange, ServiceExchange) and self.get(exchange.name) is exchange:
                self._forget_alternate(exchange)
                exchange.set_policy(broker.policies.of_exchange(exchange.name, self._context.name))
                self._note_alternate(exchange)
            if number % EXCHANGES_SLICE == 0 or broker.policies.spent >= until:
                yield
                until = broker.policies.spent + POLICIES_SLICE

    def _note_alternate(self, exchange: Exchange) -> None:
        if exchange.alternate is not None:
            self._by_alternate.setdefault(exchange.alternate, {})[exchange] = None

    def _forget_alternate(self, exchange: Exchange) -> None:
        if exchange.alternate is not None:
            sending = self._by_alternate[exchange.alternate]
            del sending[exchange]
            if not sending:
                del self._by_alternate[exchange.alternate]

    def _remove(self, exchange: Exchange) -> None:
        self.drop(exchange)
        self._context.bindings.unbind(exchange)

    def drop(self, exchange: Exchange) -> None:
        """Remove an exchange with its outgoing bindings; the caller removes the incoming ones."""
        host = self._context
        del self[exchange.name]
        self._forget_alternate(exchange)
        host.bindings.forget_all_of(exchange)
        if host.broker.listeners:
            host.broker.emit(ExchangeEvent(EventKind.UNDECLARED, host.name, exchange.name, exchange))
