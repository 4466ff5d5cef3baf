"""Objects that the configuration declares, created in a broker: virtual hosts, exchanges, queues, diverts.

`ConfiguredObjects.apply` runs at the start and after each reload. It neither waits nor reads files. It also puts the
settings, users, policies and logged topics in force. Exchanges and queues that it created, or found as declared, are
configuration-managed: such a queue follows the configuration's changes, and is deleted with its messages if the
configuration no longer declares it, config-delete-queues is FORCE, and no other node of a cluster declares it. A queue
of the same name that a client declared differently is not changed.
Source: address-settings page 1.3, 3.5, 3.7, 3.8, 6.1, 6.7.
"""

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from ..amqp_frontend.wire.replies import reply_for
from ..engine import (
    ARGUMENTS,
    PREDECLARED,
    QUEUE_TYPES,
    Broker,
    EngineError,
    Exchange,
    Field,
    FieldTable,
    ManualClock,
    Queue,
    VirtualHost,
    errors,
    kind_of_type,
    own_settings,
    plain_arguments,
    reconfigure,
    unknown_arguments,
)
from ..settings import ArgumentFault, Configuration, Divert, ExchangeDeclaration, Origin, QueueDeclaration
from ..settings.addresses.queue_arguments import apply_changes, check_arguments, live_arguments
from ..settings.frozen import frozen
from ..settings.lifetime import RESTART
from ..settings.queue_types import ADDED_TYPES, CLASSIC
from ..settings.slotted import slotted
from ..settings.values import shown, value_text
from .configured_policies import ConfiguredPolicies
from .configured_users import ConfiguredUsers, faults_of_users
from .options import broker_options
from .typed_arguments import fields_of

RING = "x-ring-size"
LATER = "takes effect when the queue is created anew"
#: Arguments whose changes act when the broker starts, and the remark about them while it runs.
AT_START = frozenset(
    argument for own in ADDED_TYPES.values() for argument, row in own.rows.items() if row.acts is RESTART
)
AFTER_RESTART = "takes effect when the broker starts anew"

#: Virtual host and name.
Key = tuple[str, str]


@frozen
class Report:
    """The results of applying a configuration, one line each.

    `faults`: why nothing was done. `done`: changes. `warnings`: differences from the configuration, and losses; after a
    reload also new warnings about its files, and changed keys that act after a restart. A difference that persists at
    the next reload is not repeated.
    """

    faults: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@slotted
class _ManagedQueue:
    """A managed queue. `exchange`: the exchange that it is bound to because of its routing type; "": none."""

    queue: Queue
    declaration: QueueDeclaration
    exchange: str = ""


class ConfiguredObjects:
    """The configuration-managed objects of one broker. `configuration`: the one in force."""

    def __init__(self, broker: Broker, configuration: Configuration) -> None:
        self.broker = broker
        self.configuration = configuration
        self._queues: dict[Key, _ManagedQueue] = {}
        self._exchanges: dict[Key, Exchange] = {}
        self._diverts: dict[Key, Divert] = {}
        self._vhosts: set[str] = set()
        self._users = ConfiguredUsers(broker)
        self.policies = ConfiguredPolicies(broker)
        self._is_starting = True  # existing queues are from before the restart
        self._done: list[str] = []
        self._lost: list[str] = []
        self._remarks: dict[str, None] = {}  # of the last `apply`; the next one does not report them again

    def is_managed(self, queue: Queue) -> bool:
        """Whether the configuration manages this queue."""
        managed = self._queues.get((queue.vhost_name, queue.name))
        return managed is not None and managed.queue is queue

    def apply(self, configuration: Configuration) -> Report:
        """Put a configuration in force: settings, then the declared objects. O(queues).

        The caller ends the broker's turn. `faults_of` must have found no fault.
        """
        broker = self.broker
        before, self._remarks = self._remarks, {}
        self._done, self._lost = [], []
        self.configuration = configuration
        self._vhosts.intersection_update(broker.virtual_hosts)  # an operator may have deleted one
        broker.reloading.replace_settings(configuration.repository, broker_options(configuration))
        created = [self._create_vhost(name) for name in configuration.vhosts]
        self._done += self._users.apply(configuration)
        self._done += self.policies.apply(configuration)
        broker.reloading.replace_logged_topics(configuration.logged_topics)
        exchanges_made = [self._declare_exchange(exchange) for exchange in configuration.exchanges]
        queues_made = [self._declare_queue(queue) for queue in configuration.queues]
        self._report_created(sum(created), sum(exchanges_made), sum(queues_made))
        queues = [at_own_site(broker, queue) for queue in configuration.queues]
        self._drop_queues({(queue.vhost, queue.name) for queue in queues})
        self._drop_exchanges({(exchange.vhost, exchange.name) for exchange in configuration.exchanges})
        for name in sorted(self._vhosts - set(configuration.vhosts)):
            self._remark(
                f"virtual host {shown(name)} is no longer declared; it stays, `leveret ctl delete_vhost` deletes it"
            )
        self._replace_diverts(configuration)
        self._is_starting = False
        new_remarks = [remark for remark in self._remarks if remark not in before]
        return Report((), tuple(self._done), (*self._lost, *new_remarks))

    def _remark(self, text: str) -> None:
        self._remarks[text] = None

    def _report_created(self, vhosts: int, exchanges: int, queues: int) -> None:
        counts = ((vhosts, "virtual host"), (exchanges, "exchange"), (queues, "queue"))
        parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
        if parts:
            self._done.append(f"created {', '.join(parts)} of the configuration")

    # -- creating -----------------------------------------------------------------------------------------------------

    def _create_vhost(self, name: str) -> bool:
        """Returns whether it is new."""
        is_new = name not in self.broker.virtual_hosts
        self.broker.virtual_hosts.create(name)
        self._vhosts.add(name)
        return is_new

    def _declare_exchange(self, declared: ExchangeDeclaration) -> bool:
        """Returns whether it is new."""
        vhost = self.broker.virtual_hosts.create(declared.vhost)
        is_new = declared.name not in vhost.exchanges
        try:
            exchange = vhost.exchanges.declare(declared.name, declared.type, durable=True)
        except EngineError as error:
            self._remark(f"{declared.origin}: exchange {_shown_in(declared.vhost, declared.name)} {_refusal(error)}")
            self._exchanges.pop((declared.vhost, declared.name), None)
            return False
        self._exchanges[declared.vhost, declared.name] = exchange
        return is_new

    def _declare_queue(self, declared: QueueDeclaration) -> bool:
        """Returns whether it is new."""
        vhost = self.broker.virtual_hosts.create(declared.vhost)
        short_name, declared = declared.name, at_own_site(self.broker, declared)
        self._remark_older(vhost, short_name, declared)
        current, site = vhost.queues.get(declared.name), self.broker.sites.own
        if current is not None and site:
            try:
                current.kind.host(current, site, fields_of(declared.arguments))
            except EngineError as error:
                self._remark(f"{_queue_at(declared)} is not hosted by this node: {text_of(error)}")
                self._queues.pop((declared.vhost, declared.name), None)
                return False
        managed = self._queues.get((declared.vhost, declared.name))
        if current is not None and self._is_starting and _follows(current, declared):
            reconfigure.mark_declared(current)
            bound_to = self._bound_before(current)
            managed = self._queues[declared.vhost, declared.name] = _ManagedQueue(current, declared, bound_to)
        if managed is not None and managed.queue is current:
            self._update(managed, declared)
        else:
            try:
                queue = vhost.queues.declare(
                    declared.name,
                    client=None,
                    durable=declared.durable,
                    arguments=fields_of(declared.arguments),
                    site=site,
                )
            except EngineError as error:
                self._remark(f"{_queue_at(declared)} {_refusal(error)}")
                self._queues.pop((declared.vhost, declared.name), None)
                return False
            reconfigure.mark_declared(queue)
            managed = self._queues[declared.vhost, declared.name] = _ManagedQueue(queue, declared)
        self._bind(vhost, managed, declared)
        self._switch(managed.queue, declared)
        return current is None

    def _remark_older(self, vhost: VirtualHost, short_name: str, declared: QueueDeclaration) -> None:
        """Warn of a queue with messages from before the broker joined a cluster, now hidden by a node's own queue."""
        older = vhost.queues.get(short_name) if short_name != declared.name else None
        if older is not None and older.kind.view(older) is None and (older.ready_count or older.unacked):
            self._remark(
                f"{_queue_at(declared)} hides the queue {shown(short_name)} from clients, but that has messages: get"
                f" them by `leveret ctl get {short_name}`, or at a node without this declaration"
            )

    def _bound_before(self, queue: Queue) -> str:
        """The declared fanout exchange of a restored queue's address, if the queue is bound to it as a multicast one.

        Without a declaration of the exchange, the binding may as well be a client's, and stays.
        """
        exchange = self._exchanges.get((queue.vhost_name, queue.address))
        if exchange is None or exchange.type != "fanout":
            return ""
        bindings = (one for one in queue.incoming if one.source is exchange)
        is_bound = any(not (one.routing_key or one.arguments) for one in bindings)
        return queue.address if is_bound else ""

    def _bind(self, vhost: VirtualHost, managed: _ManagedQueue, declared: QueueDeclaration) -> None:
        """Bind a multicast queue to the exchange of its address; unbind a queue that is no longer multicast."""
        if declared.address != managed.queue.address:
            return
        name = managed.queue.name
        if managed.exchange and managed.exchange != declared.exchange:
            vhost.bindings.remove("queue", name, managed.exchange, "", {})
            managed.exchange = ""
            self._done.append(f"{_queue_at(declared)} is unbound from its address, it is no longer multicast")
        if declared.exchange and (declared.vhost, declared.exchange) in self._exchanges:
            vhost.bindings.add("queue", name, declared.exchange, "", {})
            managed.exchange = declared.exchange

    def _switch(self, queue: Queue, declared: QueueDeclaration) -> None:
        if queue.enabled == declared.is_enabled:
            return
        reconfigure.enable(queue, declared.is_enabled)
        if not declared.is_enabled:
            self._done.append(f"{_queue_at(declared)} takes no new messages (enabled = false)")

    # -- previews of a reload -----------------------------------------------------------------------------------------

    def arguments_after(self, configuration: Configuration) -> dict[Queue, FieldTable]:
        """The new arguments of the queues that another configuration would change. Changes nothing."""
        found: dict[Queue, FieldTable] = {}
        for declared in (at_own_site(self.broker, one) for one in configuration.queues):
            managed = self._queues.get((declared.vhost, declared.name))
            if managed is not None and not managed.queue.deleted:
                arguments, changed, *_ = self._argument_changes(managed.queue, declared)
                if changed:
                    found[managed.queue] = arguments
        return found

    def queues_deleted_by(self, configuration: Configuration) -> list[Queue]:
        """The queues that another configuration would delete: config-delete-queues is FORCE, no other node has them."""
        kept = {(one.vhost, one.name) for one in (at_own_site(self.broker, each) for each in configuration.queues)}
        return [
            managed.queue
            for key, managed in self._queues.items()
            if key not in kept
            and not managed.queue.deleted
            and not _is_declared_elsewhere(managed.queue)
            and configuration.repository.resolve(managed.declaration.address, key[0]).config_delete_queues == "FORCE"
        ]

    # -- updating -----------------------------------------------------------------------------------------------------

    def _update(self, managed: _ManagedQueue, declared: QueueDeclaration) -> None:
        """Change a managed queue to its new declaration as far as possible; remark on the rest."""
        queue, managed.declaration = managed.queue, declared
        if queue.durable != declared.durable:
            self._remark_later(declared, "durable", queue.durable, declared.durable)
        if queue.address != declared.address:
            self._remark_later(declared, "address", queue.address, declared.address)
        arguments, changed, later, refused = self._argument_changes(queue, declared)
        for key in later:
            wanted = fields_of(declared.arguments).get(key)
            self._remark_later(declared, key, _shown_field(queue.arguments.get(key)), _shown_field(wanted))
        for key, fault in refused.items():
            self._remark(f"{declared.origin_of(key)}: queue {shown(queue.name)}: {key} {LATER}: {fault}")
        if changed:
            self._change_arguments(queue, declared, arguments, changed)

    def _argument_changes(
        self, queue: Queue, declared: QueueDeclaration
    ) -> tuple[FieldTable, list[str], list[str], dict[str, ArgumentFault]]:
        """A queue's arguments after the changes that act at once; the names of these changes, and of later ones.

        Last come those that would act at once, but contradict an argument that cannot be changed, with the reason.
        """
        wanted = fields_of(declared.arguments)
        changed = [
            key
            for key in sorted(queue.arguments.keys() | wanted.keys())
            if key != "x-address" and _is_different(key, queue.arguments.get(key), wanted.get(key))
        ]
        live = frozenset() if "x-queue-type" in changed else live_arguments(declared.arguments)
        if self._is_starting and live:
            live |= AT_START
        arguments, refused = apply_changes(
            queue.arguments,
            wanted,
            [key for key in changed if key in live],
            lambda found: check_arguments(queue.name, plain_arguments({**found})),
        )
        made = [key for key in changed if key in live and key not in refused]
        return arguments, made, [key for key in changed if key not in live], refused

    def _change_arguments(
        self, queue: Queue, declared: QueueDeclaration, arguments: FieldTable, changed: list[str]
    ) -> None:
        """Change arguments of a queue that act at once. `arguments`: all of the queue's; `changed`: names."""
        for key in changed:
            before, after = _shown_field(queue.arguments.get(key)), _shown_field(arguments.get(key))
            self._done.append(f"{declared.origin_of(key)}: queue {shown(queue.name)}: {key}: {before} -> {after}")
        reconfigure.redeclare(queue, arguments, own_settings(arguments))
        if RING in changed:  # if it was removed, the address settings apply
            set_ring_size(queue, reconfigure.resolved(queue).default_ring_size)

    def _remark_later(self, declared: QueueDeclaration, key: str, before: object, after: object) -> None:
        origin = declared.origin_of(key)
        later = AFTER_RESTART if key in AT_START else LATER
        self._remark(f"{origin}: queue {shown(declared.name)}: {key}: {before} -> {after} {later}")

    def _replace_diverts(self, configuration: Configuration) -> None:
        """Replace all diverts. An undeclared one stays, unless its address has config-delete-diverts = FORCE."""
        declared = {(divert.vhost, divert.name): divert for divert in configuration.diverts}
        kept: dict[Key, Divert] = {}
        for key in [key for key in self._diverts if key not in declared and key[0] in self.broker.virtual_hosts]:
            divert, what = self._diverts[key], f"divert {_shown_in(*key)}"
            if self.broker.context.settings.resolve(divert.address, divert.vhost).config_delete_diverts == "FORCE":
                self._done.append(f"{what} is no longer declared: deleted, as config-delete-diverts is FORCE")
            else:
                kept[key] = divert
                self._remark(f"{what} is no longer declared; it stays, as config-delete-diverts is OFF")
        self._diverts = {**declared, **kept}
        self.broker.reloading.replace_diverts(self._diverts.values())

    # -- deleting -----------------------------------------------------------------------------------------------------

    def _drop_queues(self, declared: set[Key]) -> None:
        for key in [key for key in self._queues if key not in declared]:
            managed = self._queues[key]
            queue = managed.queue
            what = f"queue {_shown_in(*key)}"
            if queue.deleted:
                del self._queues[key]
                continue
            settings = self.broker.context.settings.resolve(managed.declaration.address, key[0])
            if settings.config_delete_queues != "FORCE":
                self._remark(f"{what} is no longer declared; it stays, as config-delete-queues is OFF")
                continue
            del self._queues[key]
            if not queue.kind.unhost(queue, self.broker.sites.own):
                self._remark(f"{what} is no longer declared; it stays, as other nodes declare it")
                continue
            count, text = delete_undeclared(queue)
            (self._lost if count else self._done).append(f"{what} {text}")

    def _drop_exchanges(self, declared: set[Key]) -> None:
        predeclared = {name for name, _, _ in PREDECLARED}
        for key in [key for key in self._exchanges if key not in declared]:
            exchange = self._exchanges[key]
            vhost = self.broker.virtual_hosts.get(key[0])
            what = f"exchange {_shown_in(*key)}"
            current = None if vhost is None else vhost.exchanges.get(exchange.name)
            if vhost is None or current is not exchange or exchange.name in predeclared:
                del self._exchanges[key]
            elif self.broker.context.settings.resolve(exchange.name, vhost.name).config_delete_addresses != "FORCE":
                self._remark(f"{what} is no longer declared; it stays, as config-delete-addresses is OFF")
            else:
                del self._exchanges[key]
                vhost.exchanges.delete(exchange.name)
                self._done.append(f"{what} is no longer declared: deleted, as config-delete-addresses is FORCE")


def delete_undeclared(queue: Queue) -> tuple[int, str]:
    """Delete a queue that files no longer declare. Returns the number of lost messages, and a text about it."""
    queue.context.broker.scheduler.dispatch_now(queue)
    unacked = queue.unacked
    count = queue.context.queues.remove(queue) + unacked
    lost = f"; {count} message{'s' if count > 1 else ''} lost" if count else ""
    return count, f"is no longer declared: deleted, as config-delete-queues is FORCE{lost}"


def at_own_site(broker: Broker, declared: QueueDeclaration) -> QueueDeclaration:
    """A queue's declaration; for a queue of one node or domain, with the full name that it has on this node.

    Changes nothing: in a virtual host that does not exist, the declaration is returned as it is.
    """
    site, vhost = broker.sites.own, broker.virtual_hosts.get(declared.vhost)
    if not site or vhost is None or "x-replication" not in declared.arguments:
        return declared
    kind = kind_of_type(str(declared.arguments.get("x-queue-type", CLASSIC)))
    name, arguments = kind.scoped(vhost.context, declared.name, fields_of(declared.arguments), site)
    address = name if declared.address == declared.name else declared.address
    return replace(declared, name=name, address=address, arguments=MappingProxyType(plain_arguments(arguments)))


def start_faults(broker: Broker, configuration: Configuration) -> list[str]:
    """Reasons why configured queues cannot be built, e.g. a recovery point that the log lacks; one line each."""
    found: list[str] = []
    for one in configuration.queues:
        queue_type = str(one.arguments.get("x-queue-type", CLASSIC))
        start_fault = kind_of_type(queue_type).start_fault if queue_type in QUEUE_TYPES else None
        if start_fault is not None:
            vhost = broker.virtual_hosts.create(one.vhost)
            declared = at_own_site(broker, one)
            queue = vhost.queues.get(declared.name)
            fault = start_fault(vhost.context, queue, declared.name, declared.arguments)
            if fault is not None:
                found.append(f"{declared.origin_of(fault.key)}: {fault.key.removeprefix('x-')}: {fault.problem}")
    return found


def faults_of(configuration: Configuration, known: Collection[str] = ()) -> list[str]:
    """Faults that a new broker with this configuration finds, as FILE:LINE: KEY: why.

    `known`: FILE:LINE of faults that were found before; they are not repeated.
    """
    broker = Broker(ManualClock(), settings=configuration.repository)
    found: list[tuple[Origin, str]] = []
    for exchange in configuration.exchanges:
        try:
            broker.virtual_hosts.create(exchange.vhost).exchanges.declare(exchange.name, exchange.type, durable=True)
        except EngineError as error:
            found.append((exchange.origin, f"exchange: {text_of(error)}"))
    for queue in configuration.queues:
        try:
            broker.virtual_hosts.create(queue.vhost).queues.declare(
                queue.name, client=None, durable=queue.durable, arguments=fields_of(queue.arguments)
            )
        except EngineError as error:
            key = vars(error).get("key", "queue")
            found.append((queue.origin_of(key), f"{key}: {text_of(error)}"))
        except ValueError:  # one of the known faults
            continue
    found.sort(key=lambda one: (one[0].file, one[0].line, one[1]))
    placed = [f"{origin}: {text}" for origin, text in found if str(origin) not in known]
    return placed + faults_of_users(configuration)


def suspicious_arguments(configuration: Configuration) -> list[str]:
    """Unknown arguments of queues, as FILE:LINE: KEY: why, with the nearest known argument."""
    return [
        f"{queue.origin_of(name)}: {name}: no queue has this argument" + (f", did you mean {like!r}?" if like else "")
        for queue in configuration.queues
        for name, like in unknown_arguments(queue.arguments).items()
    ]


def _follows(queue: Queue, declared: QueueDeclaration) -> bool:
    """Whether a restored queue matches its declaration, except for arguments that can be changed.

    Such a queue follows a configuration that was changed while the broker was stopped, or just before it was killed.
    """
    wanted, live = fields_of(declared.arguments), live_arguments(declared.arguments) | AT_START
    keys = (queue.arguments.keys() | wanted.keys()) - live
    is_same = queue.durable and declared.durable and not queue.auto_delete and queue.address == declared.address
    return is_same and not any(_is_different(key, queue.arguments.get(key), wanted.get(key)) for key in keys)


def set_ring_size(queue: Queue, size: int) -> None:
    """Resize a ring; 0 or below: no ring. Nothing is deleted now (address-settings page 4.3)."""
    reconfigure.set_ring_size(queue, size if size > 0 else None)


def text_of(error: EngineError) -> str:
    """The text of a refusal as clients get it, without the reply's name."""
    return reply_for(error).text.partition(" - ")[2] or str(error)


def _refusal(error: EngineError) -> str:
    """What a warning says of a declaration that the engine refused."""
    if isinstance(error, errors.InequivalentArgument | errors.InequivalentField):
        return f"exists with other arguments and is not changed: {text_of(error)}"
    return f"is not declared: {text_of(error)}"


def _is_declared_elsewhere(queue: Queue) -> bool:
    """Whether other nodes of a cluster declare it, so that it stays when this one no longer does."""
    view = queue.kind.view(queue)
    return view is not None and bool(view.declaring - {queue.context.broker.sites.own})


def _is_different(key: str, current: Field | None, wanted: Field | None) -> bool:
    if current is not None and wanted is not None:
        return current.comparable() != wanted.comparable()
    if key == "x-queue-type":  # classic is the default type
        return any(field is not None and field.value != b"classic" for field in (current, wanted))
    # An existing queue may have unknown arguments, which do not matter.
    return wanted is not None or (current is not None and key in ARGUMENTS)


def _shown_field(field: Field | None) -> str:
    if field is None:
        return "unset"
    plain = plain_arguments({"": field})[""]
    return value_text(plain) if isinstance(plain, str | int | float) else shown(plain)


def _queue_at(declared: QueueDeclaration) -> str:
    return f"{declared.origin}: queue {_shown_in(declared.vhost, declared.name)}"


def _shown_in(vhost: str, name: str) -> str:
    return shown(name) if vhost == "/" else f"{shown(name)} in vhost {shown(vhost)}"
