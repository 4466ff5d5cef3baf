"""Declaring, purging and deleting the queues of a virtual host.

Source: behaviour page 2.6; address-settings page 3.5.
"""

from itertools import islice
from typing import NamedTuple

from ..settings import ArgumentFault
from . import errors
from .bulk_delete import BulkDelete
from .clients.authorization import may, may_make_targets, require, require_for_arguments
from .clients.client import Client
from .context import HostContext
from .events import EventKind
from .exchanges.exchange import NO_ARGUMENTS
from .messages.field_table import FieldTable
from .messages.message import Message
from .object_events import QueueEvent
from .publishing.publish import publish_own, replay_retained
from .queues import consumers as queue_consumers
from .queues.kinds import REPLY, REPLY_PREFIX, REPLY_TO, kind_by_rules, kind_of_type
from .queues.parts import Kind, RulesRequest
from .queues.queue import Queue
from .queues.refusals import check_delete, check_purge
from .rules.arguments import (
    CLASSIC,
    NAME_OCTETS_MAX,
    Reason,
    check_queue_arguments,
    check_same_arguments,
    check_same_fields,
    plain_arguments,
    queue_type_of,
    unknown_arguments,
    with_default_type,
)
from .rules.queue_rules import own_settings
from .users.permissions import CONFIGURE, QUEUE, READ


class _Fields(NamedTuple):
    """The fields of a declaration."""

    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: FieldTable


class DeclaredQueues(dict[str, Queue]):
    """The queues of one virtual host, by full name. `client`: the caller, whose permissions apply; None: the broker."""

    def __init__(self, context: HostContext) -> None:
        super().__init__()
        self._context = context

    def seen(self, name: str, client: Client | None) -> Queue | None:
        """The queue that the client's site sees under this name; None: no queue. Without a client, `name` is full."""
        scopes = self._context.scopes
        if scopes is None:
            return self.get(name)
        return scopes.seen(name, None if client is None else client.site)

    def named(self, name: str, client: Client | None = None) -> Queue:
        """The queue that `seen` finds. Raises: QueueNotFound, QueueNotHosted."""
        queue = self.seen(name, client)
        if queue is None:
            why = self._refusal(name, client)
            if why:
                raise errors.QueueNotHosted(name=name, vhost=self._context.name, why=why)
            raise errors.QueueNotFound(name=name, vhost=self._context.name)
        return queue

    def _refusal(self, name: str, client: Client | None) -> str:
        """Why the client's site sees no queue of this name (`Scopes.refusal`); empty: there is none."""
        scopes = self._context.scopes
        return "" if scopes is None else scopes.refusal(name, None if client is None else client.site)

    # -- declaring ----------------------------------------------------------------------------------------------------

    def declare_passive(self, name: str, client: Client) -> Queue:
        """Return the queue `name`, which counts as used. Raises: QueueNotFound, QueueNotHosted, ResourceLocked."""
        return self._used(self._context.bindings.accessible(name, client))

    def declare(
        self,
        name: str,
        *,
        client: Client | None,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: FieldTable | None = None,
        server_named: bool = False,
        site: str | None = None,
    ) -> Queue:
        """Create a queue, or check that the existing one is equivalent.

        `server_named`: the frontend generated the name, so the reserved prefix is allowed. `site`: the site for which
        the broker declares it; then perhaps only some sites see the queue (`Kind.scoped`).
        Raises: QueueNotHosted, ReservedName, ResourceLocked, InequivalentField, InequivalentArgument,
            InvalidArgument, UnsupportedArgument, UnsupportedProperty, ServerNamedRefused, InvalidDeadLetterExchange,
            SegmentSizeTooLarge, PermissionRefused, TopicRefused, QueuesMaxReached, AllQueuesMaxReached,
            TransientQueueRefused.
        """
        host, arguments = self._context, arguments or {}
        if client is not None:
            site = client.site
            arguments = with_default_type(
                arguments, host.limits.default_queue_type, durable=durable, exclusive=exclusive, auto_delete=auto_delete
            )
        durable = durable and not exclusive  # an exclusive queue does not survive its connection
        called, current, kind = name, self.seen(name, client), kind_of_type(queue_type_of(arguments))
        if site or (client is not None and host.broker.sites.own):
            name, arguments = kind.scoped(host, called, arguments, site or "")
            if name != called:
                current = self.get(name)
        if current is None and name in self:
            why = self._refusal(called, client) or "this is the full name of a queue of other sites"
            raise errors.QueueNotHosted(name=called, vhost=host.name, why=why)
        if name.startswith("amq.") and not server_named and (current is None or client is not None):
            raise errors.ReservedName(kind="queue", name=name)  # clients may declare an existing one passively
        require(client, CONFIGURE, QUEUE, called)
        fields = _Fields(durable, exclusive, auto_delete, arguments)
        if current is None:
            self._check_new(called, name, client, fields, kind, server_named)
            current = self._make_declared(name, client, fields)
            if site:
                kind.host(current, site, arguments)
        elif site and client is None:
            kind.host(current, site, arguments)  # first: notes a site whose arguments differ
            self._check_same(current, client, fields)
        else:
            self._check_same(current, client, fields)
            if site:
                kind.host(current, site, arguments)
        return self._used(current)

    def _used(self, queue: Queue) -> Queue:
        """Note the use of a queue that was just declared."""
        queue.note_use()
        self._context.broker.activity.queues_declared += 1
        return queue

    def create(self, name: str, *, address: str | None = None, is_auto_created: bool) -> Queue:
        """Create a durable queue without arguments, or return the existing one."""
        queue = self.get(name)
        if queue is None:
            queue = self._make(name, address=address, is_auto_created=is_auto_created)
            if is_auto_created:
                self._context.broker.reaper.watch()
        return queue

    def create_missing(self, name: str, *, address: str | None = None) -> bool:
        """Create a durable queue for messages that would reach none, if it does not exist.

        Returns False if its name, a limit on queues, a failed journal or the end of its virtual host forbids that.
        """
        if name in self:
            return True
        if self._context.is_being_deleted:
            return False
        durability = self._context.broker.storage.durability
        has_failed = durability is not None and durability.has_failed
        if has_failed or not _may_be_created(name):
            return False
        try:
            self._check_max(name)
        except (errors.QueuesMaxReached, errors.AllQueuesMaxReached):
            return False
        self.create(name, address=address, is_auto_created=True)
        return True

    def restore(
        self,
        name: str,
        *,
        auto_delete: bool,
        arguments: FieldTable,
        address: str | None,
        is_auto_created: bool,
        may_make_queues: bool = True,
    ) -> Queue:
        """Restore a durable queue after a restart."""
        queue = self._make(
            name,
            auto_delete=auto_delete,
            arguments=arguments,
            address=address,
            is_auto_created=is_auto_created,
            may_make_queues=may_make_queues,
            is_restored=True,
        )
        if is_auto_created or self._context.broker.settings.deletes_declared_queues:
            self._context.broker.reaper.watch()
        return queue

    def for_consumer(self, name: str, client: Client | None = None) -> Queue:
        """The queue to consume or get from. It may be auto-created by settings (address-settings page 3.5), if the user
        may declare it.

        Raises: QueueNotFound, QueueNotHosted, PermissionRefused, QueuesMaxReached, AllQueuesMaxReached.
        """
        require(client, READ, QUEUE, name)
        is_missing = bool(name) and self.seen(name, client) is None and name not in self
        is_missing = is_missing and _may_be_created(name) and not self._context.is_being_deleted
        if is_missing and self._context.router.auto_creates(name) and may(client, CONFIGURE, QUEUE, name):
            if client is not None:
                self._check_max(name)
            return self.create(name, is_auto_created=True)
        return self.named(name, client)

    def _check_new(
        self, called: str, name: str, client: Client | None, fields: _Fields, kind: Kind, server_named: bool
    ) -> None:
        """Check the declaration of a queue that does not exist. `called`: its name at the client's site."""
        host, arguments, is_client = self._context, fields.arguments, client is not None
        if is_client and not (fields.durable or fields.exclusive or host.broker.options.has_transient_queues):
            raise errors.TransientQueueRefused
        queue_type = queue_type_of(arguments)
        if server_named and queue_type != CLASSIC:
            raise errors.ServerNamedRefused(queue_type=queue_type)
        if arguments:
            self._check_arguments(called, name, client, arguments, kind)
        if is_client:
            kind.check(host, name, arguments)
        if queue_type != CLASSIC:
            for unwanted, word in (
                (fields.auto_delete, "auto-delete"),
                (fields.exclusive, "exclusive-owner"),
                (not fields.durable, "non-durable"),
            ):
                if unwanted:
                    raise errors.UnsupportedProperty(property=word, name=name, vhost=host.name)
        if is_client:
            self._check_max(name)

    def _check_arguments(
        self, called: str, name: str, client: Client | None, arguments: FieldTable, kind: Kind
    ) -> None:
        vhost = self._context.name
        require_for_arguments(client, called, arguments)
        if client is not None:
            kind.require(client, called, arguments)
        check_queue_arguments(arguments, name=name, vhost=vhost)
        try:
            own_settings(arguments)
        except ArgumentFault as fault:
            raise errors.InvalidArgument(
                key=fault.key, name=name, vhost=vhost, reason=Reason("text", fault.problem)
            ) from None

    def _check_max(self, name: str) -> None:
        """Check the limits on queues. Raises: QueuesMaxReached, AllQueuesMaxReached."""
        host = self._context
        limit = host.limits.max_queues
        if limit is not None and len(self) >= limit:
            raise errors.QueuesMaxReached(name=name, vhost=host.name, limit=limit)
        limit = host.broker.options.queues_max
        if limit and sum(len(vhost.queues) for vhost in host.broker.virtual_hosts.values()) >= limit:
            raise errors.AllQueuesMaxReached(name=name, limit=limit)

    def _check_same(self, current: Queue, client: Client | None, fields: _Fields) -> None:
        name, vhost = current.name, self._context.name
        if fields.exclusive != current.exclusive or (current.owner is not None and current.owner is not client):
            raise errors.ResourceLocked(name=name, vhost=vhost)
        compared = {"durable": fields.durable, "auto_delete": fields.auto_delete}
        check_same_fields("queue", current, compared, name=name, vhost=vhost)
        check_same_arguments(current.arguments, fields.arguments, name=name, vhost=vhost)

    def _make_declared(self, name: str, client: Client | None, fields: _Fields) -> Queue:
        host, broker, arguments = self._context, self._context.broker, fields.arguments
        queue = self._make(
            name,
            durable=fields.durable,
            owner=client if fields.exclusive else None,
            auto_delete=fields.auto_delete,
            arguments=arguments,
            may_make_queues=may_make_targets(client, arguments),
        )
        if broker.settings.deletes_declared_queues:
            broker.reaper.watch()
        if queue.owner is not None:
            queue.owner.exclusive_queues[queue] = None
        if arguments and (unknown := unknown_arguments(arguments)):
            broker.on_unknown_arguments("queue", name, host.name, unknown)
        return queue

    def _make(
        self,
        name: str,
        *,
        durable: bool = True,
        owner: Client | None = None,
        auto_delete: bool = False,
        arguments: FieldTable = NO_ARGUMENTS,
        address: str | None = None,
        is_auto_created: bool = False,
        may_make_queues: bool = True,
        is_restored: bool = False,
    ) -> Queue:
        assert name not in self
        host, broker = self._context, self._context.broker
        if address is None:
            field = arguments.get("x-address")
            address = field.text if field is not None and field.value else name
        queue_type = queue_type_of(arguments)
        policies = broker.policies
        spent = policies.spent
        policy = policies.of_queue(name, queue_type, host.name)
        broker.turn.effort += policies.spent - spent
        layer = policy.layer(plain_arguments(arguments))
        resolved = broker.settings.resolve_queue(address, host.name, own_settings(arguments), layer.settings, name)
        kind = kind_of_type(queue_type)
        rules = kind.make_rules(RulesRequest(name, arguments, layer, resolved, broker.options, None))
        kind = kind_by_rules(queue_type, kind, rules)
        queue = Queue(
            host,
            name,
            kind=kind,
            durable=durable,
            owner=owner,
            auto_delete=auto_delete,
            arguments=arguments,
            rules=rules,
            address=address,
            policy=policy,
            layer=layer,
            is_auto_created=is_auto_created,
            may_make_queues=may_make_queues,
        )
        self[name] = queue
        self._context.router.add_queue(queue)
        broker.activity.queues_created += 1
        if not is_restored:
            kind.declared(queue)
        queue.note_use()
        if broker.listeners:
            broker.emit(QueueEvent(EventKind.DECLARED, host.name, name, queue))
        if host.retained:
            replay_retained(host, queue, queue.address)
        return queue

    # -- the end of a queue -------------------------------------------------------------------------------------------

    def purge(self, name: str, client: Client) -> int:
        """Drop the ready and scheduled messages. Returns their number.

        Raises: PermissionRefused, QueueNotFound, QueueNotHosted, ResourceLocked, StreamOperationNotSupported.
        """
        return self._purgeable(name, client).purge()

    def _purgeable(self, name: str, client: Client) -> Queue:
        require(client, READ, QUEUE, name)
        queue = self._context.bindings.accessible(name, client)
        check_purge(queue)
        self._context.broker.scheduler.dispatch_now(queue)
        return queue

    def begin_purge(self, name: str, client: Client) -> BulkDelete:
        """Begin to make a large queue (`is_large`) small, before `purge`. Raises as `purge` does."""
        return self._begin_bulk_delete(self._purgeable(name, client), client, deletes=False)

    def _begin_bulk_delete(self, queue: Queue, client: Client, *, deletes: bool) -> BulkDelete:
        host = self._context
        bulk_delete = BulkDelete(
            queue, client, unbind=host.bindings.unbind if deletes else None, end=self.remove if deletes else Queue.purge
        )
        steps = bulk_delete.steps()
        next(steps)  # the first slice, which also makes the queue busy
        host.broker.background.run(steps)
        return bulk_delete

    def delete(self, name: str, client: Client, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue. Returns the number of its ready and scheduled messages. A missing queue is no error.

        Raises: PermissionRefused, ResourceLocked, NotEmpty, InUse, ConditionalDeleteNotSupported.
        """
        require(client, CONFIGURE, QUEUE, name)
        if self.seen(name, client) is None:
            return 0
        return self.remove(self._deletable(name, client, if_unused, if_empty))

    def begin_delete(self, name: str, client: Client, *, if_unused: bool = False, if_empty: bool = False) -> BulkDelete:
        """Begin to make a large queue (`is_large`) small, before `delete`. It must exist. Raises as `delete` does."""
        require(client, CONFIGURE, QUEUE, name)
        return self._begin_bulk_delete(self._deletable(name, client, if_unused, if_empty), client, deletes=True)

    def _deletable(self, name: str, client: Client, if_unused: bool, if_empty: bool) -> Queue:
        queue = self._context.bindings.accessible(name, client)
        check_delete(queue, if_unused=if_unused, if_empty=if_empty)
        self._context.broker.scheduler.dispatch_now(queue)
        if if_empty and (queue.ready_count or queue.scheduled):
            raise errors.NotEmpty(name=name, vhost=self._context.name)
        if if_unused and queue.consumers:
            raise errors.InUse(kind="queue", name=name, vhost=self._context.name)
        return queue

    def remove(self, queue: Queue) -> int:
        """Remove a queue and cancel its consumers. Returns the number of its ready and scheduled messages."""
        if queue.kind is REPLY:
            return self._context.reply_queues.remove(queue)
        broker = self._context.broker
        queue.begin_delete()
        del self[queue.name]
        self._context.router.remove_queue(queue)
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue, None)
        if queue.consumers:
            queue_consumers.cancel(queue, sorted(queue.consumers, key=lambda one: one.tag))  # RabbitMQ's order
        self._context.bindings.unbind(queue)
        count = queue.end()
        broker.counters.add(queue.counters)
        broker.activity.queue_deleted(queue.type, queue.counters)
        if broker.listeners:
            broker.emit(QueueEvent(EventKind.UNDECLARED, self._context.name, queue.name, queue))
        return count

    def publish_again(self, queue: Queue, message: Message, cause: str) -> None:
        """Publish a message into a queue, as a new one. `cause`: the reason for events."""
        publish_own(self._context, (queue,), message.envelope, message.content, cause)

    def remove_some(self, count: int) -> bool:
        """Delete up to `count` queues of a deleted virtual host. Returns whether none is left."""
        for queue in list(islice(self.values(), count)):
            self.remove(queue)
        return not self


def _may_be_created(name: str) -> bool:
    """Whether the broker may create a queue of this name that nobody declared."""
    return 0 < len(name.encode()) <= NAME_OCTETS_MAX and not name.startswith("amq.") and name.isprintable()


class ReplyQueues(dict[str, Queue]):
    """The reply queues by address. Every client may publish to them; they are in no list of queues."""

    def __init__(self, context: HostContext) -> None:
        super().__init__()
        self._context = context

    def add(self, address: str, owner: Client) -> Queue:
        """Make the queue of direct replies to `address`, which exists as long as its consumer.

        Only `owner` can consume from it.
        """
        queue = self[address] = Queue(self._context, address, kind=REPLY, owner=owner)
        return queue

    def has(self, name: str) -> bool:
        """Whether `name` is that of a reply queue, or `REPLY_TO`. Raises: QueueNotFound: the reply queue is gone."""
        if name in self or name == REPLY_TO:
            return True
        if name.startswith(REPLY_PREFIX):
            raise errors.QueueNotFound(name=name, vhost=self._context.name)
        return False

    def remove(self, queue: Queue) -> int:
        """Remove the queue of a consumer that ended, with its replies. Returns the number of ready messages."""
        queue.begin_delete()
        del self[queue.name]
        count = queue.end()
        self._context.broker.counters.add(queue.counters)
        return count
