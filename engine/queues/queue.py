"""A queue: ready messages in order of publishing, consumers in a rota, and the matching of the two.

Everything works on runs. A message's id is its place: a requeued message goes back where its id says. Messages that
a waiting consumer can take at once never enter the ready list.
Source: behaviour page 2.4, 2.7, 2.12, 4; performance page 4.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, ClassVar

from ...settings import NO_LAYER, NO_POLICY, EffectivePolicy, PolicyLayer, ResolvedSettings
from ..clock import due_after
from ..deadlines import Deadline
from ..delivery import rota
from ..delivery.consumer import Consumer
from ..delivery.groups import Groups
from ..events import Counters, EventKind
from ..messages.deaths import DELIVERY_COUNT, EXPIRED, MAXLEN
from ..messages.field_table import Field, FieldTable
from ..messages.message import Envelope, Message
from ..rules.arguments import CLASSIC, QUORUM, queue_type_of
from ..rules.queue_rules import (
    NO_RULES,
    RING,
    QueueRules,
    changed_rules,
    effective_arguments,
    own_settings,
    plain_arguments,
)
from ..stores.last_value import LastValueReady, header_value
from ..stores.paged_message import body_size, octets_of
from ..stores.paged_run import Part
from ..stores.ready import LeveledReady, Ready, merge_back
from ..stores.scheduled import Scheduled
from ..stores.tail import Tail
from . import deep
from .limits import admit, arm, enforce, expire
from .memory_budget import held_octets
from .paging_out import begin_tail, may_have_tail
from .returns import come_due, dead_letters_are_refused, give_back

if TYPE_CHECKING:
    from ..exchanges.exchange import Binding
    from ..peers.client import Client
    from ..peers.session import Session
    from ..stores.surroundings import Surroundings
    from ..virtual_host import VirtualHost


#: Messages that others go behind when they come back, in the time of one of `Broker.spread`.
PASSED = 8


@dataclass(slots=True, frozen=True)
class QueueStatistics:
    """What is in a queue now, and what has happened to it (counters by event name)."""

    name: str
    ready: int
    unacked: int
    scheduled: int
    consumers: int
    counters: dict[str, int]


class Queue:
    """Source of the fields: queue.declare. `owner` is the client of an exclusive queue.

    `address`: what its settings are looked up by: its name, unless x-address says otherwise (address-settings 1.3).
    """

    #: Whether acknowledged messages stay.
    keeps: ClassVar[bool] = False

    __slots__ = (
        "address",
        "allowance",
        "arguments",
        "auto_delete",
        "broker",
        "consumers",
        "counters",
        "deleted",
        "due_deadline",
        "durable",
        "effective",
        "enabled",
        "exclusive",
        "expiring",
        "expiry_deadline",
        "groups",
        "had_consumers",
        "has_priorities",
        "held",
        "incoming",
        "is_auto_created",
        "last_used_ns",
        "layer",
        "name",
        "next_consumer",
        "octets",
        "own_settings",
        "owner",
        "policy",
        "ready",
        "rules",
        "scheduled",
        "sessions",
        "start_deadline",
        "stores_all",
        "tail",
        "takes_plainly",
        "type",
        "unacked",
        "unused_deadline",
        "vhost",
    )

    def __init__(
        self,
        vhost: "VirtualHost",
        name: str,
        *,
        durable: bool,
        owner: "Client | None",
        auto_delete: bool,
        arguments: FieldTable,
        rules: QueueRules,
        address: str,
        policy: EffectivePolicy = NO_POLICY,
        layer: PolicyLayer = NO_LAYER,
    ) -> None:
        self.vhost = vhost
        self.broker = vhost.broker
        self.name = name
        self.durable = durable
        self.owner = owner
        self.exclusive = owner is not None
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.type = queue_type_of(arguments)  # classic, quorum or stream
        self.stores_all = durable and self.type != CLASSIC  # whatever the delivery mode (behaviour page 3.6, 3.7)
        self.address = address
        self.own_settings = own_settings(arguments)
        self.policy = policy  # that holds for it
        self.layer = layer  # what that does to it
        self.effective = effective_arguments(arguments, layer)  # what it declared, and what its policy says
        self.rules = rules
        self.ready = self._empty_ready()
        self.tail: Tail | None = None  # behind what is ready, of a deep queue
        self.allowance = 0  # octets that may become ready before somebody looks at them
        self.groups: Groups | None = None  # from the first message of a group on
        self.takes_plainly = not self.rules.concerns_arrival  # arrivals meet no rule
        self.octets = self._counted(())  # of all messages here
        self.enabled = True  # False: takes no new messages
        self.held = False  # waits for more consumers
        self.start_deadline: Deadline | None = None
        self.is_auto_created = False
        self.last_used_ns = self.broker.clock.monotonic_ns()  # when the last consumer left
        self.expiring = False  # has had messages that expire
        self.expiry_deadline: Deadline | None = None
        self.unused_deadline: Deadline | None = None
        self.scheduled = Scheduled()  # waiting for their time, neither ready nor out
        self.due_deadline: Deadline | None = None
        self.unacked = 0
        self.sessions: dict[Session, None] = {}  # where deliveries of it may be out
        self.consumers: list[Consumer] = []
        self.next_consumer = 0  # where the rota goes on
        self.had_consumers = False
        self.has_priorities = False  # consumers of different priority
        self.deleted = False
        self.incoming: dict[Binding, None] = {}
        self.counters = Counters()

    @property
    def storage(self) -> "Surroundings":
        """What its store is lent."""
        return self.broker

    def resolved(self) -> ResolvedSettings:
        """Its own arguments, over its policy, over the settings of its address, as all of them are now."""
        return self.broker.settings.resolve_queue(self.address, self.vhost.name, self.own_settings, self.layer.settings)

    def settings_changed(self) -> None:
        """The operator's settings are others now: what is live takes effect at the next return, death or arrival."""
        limit = self.broker.options.quorum_delivery_limit
        self._set_rules(changed_rules(self.rules, self.effective, self.resolved(), limit))

    def arguments_changed(self) -> None:
        """The configuration that declared the queue gives it other arguments, of those that act at once."""
        self.policy_changed(always=True)

    def policy_changed(self, *, always: bool = False) -> None:
        """Other policies may hold for the queue (`always`: there is more than that); what follows holds at once.

        Only a message-ttl is for messages that come from now on. Source: behaviour page 3.12.
        """
        policy = self.broker.policies.of_queue(self.name, self.type, self.vhost.name)
        layer = NO_LAYER if policy is NO_POLICY else policy.layer(plain_arguments(self.arguments))
        self.policy = policy
        before, self.layer = self.layer, layer
        if layer == before and not always:
            return  # another policy may say the same
        self.effective = effective_arguments(self.arguments, layer)
        rules = self.rules
        if RING in layer.arguments or RING in before.arguments:
            size = self.resolved().default_ring_size
            rules = replace(rules, ring_size=size if size > 0 else None)
        expires_ms = rules.expires_ms
        limit = self.broker.options.quorum_delivery_limit
        self._set_rules(changed_rules(rules, self.effective, self.resolved(), limit))
        if self.rules.expires_ms != expires_ms:
            self.touch()
        enforce(self)

    def set_ring_size(self, size: int | None) -> None:
        """An operator resizes the ring, None: no ring. Nothing is deleted now (address-settings page 4.3, 3.8)."""
        self._set_rules(replace(self.rules, ring_size=size))

    def _set_rules(self, rules: QueueRules) -> None:
        counted = self.octets
        was_open = self.is_open
        self.rules = NO_RULES if rules == NO_RULES else rules
        if self.is_open is not was_open:
            self.vhost.forget_routes_to(self)
        if type(self.ready) in (deque, LeveledReady):
            ready, self.ready = self.ready, self._empty_ready()
            if type(ready) is type(self.ready):
                self.ready = ready
            else:
                self.ready.extend(ready)
                self.allowance = 0
        if self.tail is not None and rules.max_length_bytes is not None:
            self.tail.count_octets()
        self.takes_plainly = not rules.concerns_arrival and self.groups is None
        out = () if counted is not None or self.keeps else self.broker.unacked_of(self)
        aside = (part for part in self.paged_parts() if isinstance(part, Message))
        self.octets = self._counted(chain(self.messages(), aside, out))
        if counted is not None and self.octets is not None:
            self.octets = counted

    def _counted(self, messages: Iterable[Message]) -> int | None:
        """Octets of these, where somebody asks (max-size-bytes); None where nobody does."""
        if self.rules.max_size_bytes is None or not self.rules.has_size_limit:
            return None
        return sum(map(octets_of, messages))

    def count_out(self, messages: Iterable[Message]) -> None:
        """Messages left the queue for good. Called only where octets are counted."""
        assert self.octets is not None
        self.octets -= sum(map(octets_of, messages))

    def messages(self) -> Iterator[Message]:
        """All in memory that are ready or wait for their time."""
        return chain(self.ready, self.scheduled)

    @property
    def ready_count(self) -> int:
        """How many are ready, wherever they are."""
        return len(self.ready) if self.tail is None else len(self.ready) + len(self.tail)

    @property
    def is_deep(self) -> bool:
        """Whether messages are elsewhere, with only their places in memory."""
        return self.tail is not None or (isinstance(self.ready, LastValueReady) and self.ready.left_count > 0)

    def paged_parts(self) -> list[Part | Message]:
        """What is elsewhere. It stays so while others append and take."""
        return [] if self.tail is None else self.tail.parts()

    @property
    def first_paged_id(self) -> int | None:
        """Of what is elsewhere, the first."""
        return None if self.tail is None else self.tail.first_id

    def drop_paged(self, kind: EventKind) -> int:
        """All that is elsewhere is gone (purged, deleted); the listeners are told. Returns how many messages."""
        return deep.drop_tail(self, kind)

    def measure(self) -> None:
        """A message came into memory: queues with another share than the common budget look at it."""

    def is_hungry(self) -> bool:
        """Whether more of what is elsewhere should be in memory."""
        return deep.is_hungry(self)

    def load(self) -> None:
        """Bring a slice into memory, or to consumers; reads files."""
        deep.hand_out(self)

    def stores(self, envelope: Envelope) -> bool:
        """Whether messages of this kind survive a restart in this queue."""
        return self.durable and (envelope.facts.persistent or self.stores_all)

    @property
    def has_ready(self) -> bool:
        """Whether any is ready, wherever it is."""
        return bool(self.ready) or self.tail is not None

    def _empty_ready(self) -> Ready:
        rules = self.rules
        if rules.last_value_key is not None:
            return LastValueReady(self, rules.max_priority or 0, header_value(rules.last_value_key))
        if rules.max_priority is None and rules.max_length_bytes is None:
            return deque()
        return LeveledReady(rules.max_priority or 0, body_size)

    @property
    def is_open(self) -> bool:
        """Whether new messages are routed here."""
        return self.enabled and (not self.rules.purge_on_no_consumers or bool(self.consumers))

    def take_ready(self) -> Ready:
        """All ready messages, leaving none."""
        gone, self.ready = self.ready, self._empty_ready()
        return gone

    def statistics(self) -> QueueStatistics:
        """A snapshot."""
        return QueueStatistics(
            self.name,
            self.ready_count,
            self.unacked,
            len(self.scheduled),
            len(self.consumers),
            self.counters.as_dict(),
        )

    # -- in ---------------------------------------------------------------------------------------------------------

    def enqueue(
        self, first_id: int, envelope: Envelope, blobs: Sequence[bytes], due_ns: int | None = None
    ) -> Sequence[int]:
        """Take a run of new messages: to waiting consumers at once, the rest to the ready list. O(run).

        `due_ns`: they are to wait until then (monotonic).
        Returns: the offsets of messages that a limit refused (behaviour page 3.3, reject-publish).
        """
        if self.stores_all:
            envelope = envelope.persisted()
        if not (self.takes_plainly and envelope.is_plain):
            return admit(self, first_id, envelope, blobs, due_ns)
        count = len(blobs)
        self.counters.enqueued += count
        if self.broker.listeners:
            self.broker.emit_run(EventKind.ENQUEUED, self, range(first_id, first_id + count), envelope)
        taken = 0
        if self.consumers and not self.ready and self.tail is None:
            taken = self.hand_over(first_id, envelope, blobs)
            if taken == count:
                return ()
        rest = blobs[taken:] if taken else blobs
        if self.tail is not None:
            deep.extend_tail(self, self.tail, first_id + taken, envelope, rest)
            return ()
        if self.broker.pager is not None and not deep.has_room(self, sum(map(len, rest)), len(rest)):
            deep.extend_tail(self, begin_tail(self), first_id + taken, envelope, rest)
            return ()
        self.ready.extend(map(Message, range(first_id + taken, first_id + count), rest, repeat(envelope)))
        return ()

    def take_in(self, message: Message) -> bool:
        """Count a new message in; True when a waiting consumer took it at once, so that no limit concerns it."""
        self.counters.enqueued += 1
        if self.broker.listeners:
            self.broker.emit(EventKind.ENQUEUED, self, (message,))
        if self.octets is not None:
            self.octets += len(message.blob)
        if self.ready or self.tail is not None or self.groups is not None or not rota.has_waiting(self):
            return False
        (consumer,) = rota.eligible(self, 1)
        consumer.session.deliver_ready(consumer, [message])
        return True

    def take_in_waiting(self, message: Message, due_ns: int) -> None:
        """Count a new message in that is to wait; it expires on time also while it does."""
        self.counters.enqueued += 1
        if self.octets is not None:
            self.octets += len(message.blob)
        due_ns = min(due_ns, message.expires_ns) if message.expires_ns else due_ns
        self.scheduled.add(due_ns, message)
        if self.broker.listeners:
            self.broker.emit(EventKind.ENQUEUED, self, (message,))
            self.broker.emit(EventKind.SCHEDULED, self, (message,), why="published", due_ns=(due_ns,))

    def has_groups(self) -> None:
        """From now on messages of groups are here."""
        if self.groups is None:
            self.groups = Groups()
            self.takes_plainly = False

    def hand_over(self, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> int:
        """Give new messages to consumers with credit, in rota order. Returns how many were taken."""
        consumers = self.consumers
        if len(consumers) == 1 and not self.held:
            return self._hand_to(consumers[0], first_id, envelope, blobs)
        count = len(blobs)
        taken = 0
        while taken < count:
            rest = blobs[taken:] if taken else blobs
            eligible = rota.eligible(self, count - taken)
            width = len(eligible)
            if width == 0:
                break
            if width == 1:
                if eligible[0].session.prefetch_total:
                    rest = rest[:1]  # it shares its limit with consumers that are to have their turns
                taken += self._hand_to(eligible[0], first_id + taken, envelope, rest)
                continue
            share = rota.share_of(eligible, len(rest), partial(_octets, rest))
            stop = taken + share * width
            ids = range(first_id, first_id + count)
            for index, consumer in enumerate(eligible, taken):
                run = blobs[index:stop:width]
                consumer.session.deliver_new(consumer, ids[index:stop:width], envelope, run, sum(map(len, run)))
            taken = stop
        return taken

    def _hand_to(self, consumer: Consumer, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> int:
        """Give new messages to one consumer: as many as its credit and its client's room allow, at least one."""
        credit = consumer.credit()
        if credit <= 0:
            return 0
        if credit < len(blobs):
            blobs = blobs[:credit]
        octets = sum(map(len, blobs))
        client = consumer.client
        if octets > client.unsent_max - client.unsent and len(blobs) > 1:
            blobs = blobs[: client.affordable(blobs)]
            octets = sum(map(len, blobs))
        count = len(blobs)
        consumer.session.deliver_new(consumer, range(first_id, first_id + count), envelope, blobs, octets)
        return count

    def requeue(self, messages: list[Message], *, why: str, counted: bool = False, delayed: bool = False) -> None:
        """Put messages back to where they were, in order of their ids, and mark the queue for dispatch.

        `messages` need not be sorted; they must be out of this queue and unsettled. With rules, `counted` says whether
        the delivery was a failed attempt, and `delayed` whether a redelivery delay applies (address-settings 7.1).
        O(messages + those before them).
        """
        if self.deleted or not messages:
            return
        self.broker.spread += len(messages)
        messages.sort(key=_id_of, reverse=True)
        for message in messages:
            message.holder = None
        if self.rules is not NO_RULES:
            give_back(self, messages, why=why, counted=counted, delayed=delayed)
        else:
            if not counted:
                for message in messages:
                    message.uncounted += 1
            self.counters.requeued += len(messages)
            if self.broker.listeners:
                self.broker.emit(EventKind.REQUEUED, self, messages[::-1], why=why, counted=counted)
            self.merge(messages)
            self.broker.mark(self)
        if self.expiring:
            arm(self)

    def add_headers(self, message: Message, added: FieldTable) -> None:
        """A message of this queue says more from now on."""
        blob = message.envelope.spliced(message.blob, added)
        if self.octets is not None:
            self.octets += len(blob) - octets_of(message)
        message.blob = blob
        message.envelope = message.envelope.plain()

    def tell_count(self, message: Message, attempts: int) -> None:
        """From now on deliveries say how often it was tried (x-delivery-count; address-settings page 5.6)."""
        if self.type == QUORUM or self.broker.options.classic_tells_attempts:
            self.add_headers(message, {DELIVERY_COUNT: Field("l", attempts)})

    def merge(self, messages: list[Message]) -> None:
        """Insert messages (ids falling) into the ready list at their places."""
        messages = deep.merge(self, messages)
        if isinstance(self.ready, deque):
            self.broker.spread += merge_back(self.ready, messages) // PASSED
        else:
            self.ready.merge(messages)
        if self.broker.pager is not None and may_have_tail(self):
            self.allowance -= held_octets(messages)

    def place_due(self, messages: list[Message]) -> None:
        """Insert messages (ids rising) whose publication was delayed until now, one time for all.

        At the head of their level, as Artemis does; those of a delaying exchange at the tail, where RabbitMQ's plugin
        has them arrive (address-settings page 4.5, rule 2, and 5.3).
        """
        arriving: list[Message] = []
        for message in reversed(messages):
            if self.vhost.is_delaying(message.envelope.exchange):
                arriving.append(message)
            else:
                deep.place(self, message, at_head=True)
        for message in reversed(arriving):
            deep.place(self, message, at_head=False)

    def replaced(self, older: Message) -> None:
        """A newer value took a message's place."""
        self.counters.replaced += 1
        if self.octets is not None:
            self.count_out((older,))
        if self.broker.listeners:
            self.broker.emit(EventKind.REPLACED, self, (older,))

    # -- out --------------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Hand out ready messages while a consumer has credit, at the end of a turn so many as it has time for.

        O(delivered).
        """
        ready, broker = self.ready, self.broker
        if self.tail is not None and not ready and rota.has_waiting(self):
            deep.hand_out(self)
        if self.groups is not None:
            self.groups.dispatch(self)
            return
        while ready:
            if self.expiring:
                expire(self)
                if not ready:
                    break
            eligible = rota.eligible(self, 1 if self.expiring else len(ready))
            if not eligible:
                break
            width = len(eligible)
            first = eligible[0]
            if width == 1:
                limit = 1 if self.expiring else rota.limit(self, first, len(ready))
                first.session.deliver_ready(first, _take(ready, limit, first.client.room()))
            else:
                share = rota.share_of(eligible, len(ready), partial(_ready_octets, ready))
                block = [ready.popleft() for _ in range(share * width)]
                for index, consumer in enumerate(eligible):
                    consumer.session.deliver_ready(consumer, block[index::width])
            if eligible[-1].session.prefetch_total and rota.gives_way(self, eligible[-1]):
                break
            if broker.spread >= broker.turn_spread_max:
                broker.mark(self)  # the rest is for the next turn
                break
        if self.allowance < 0:
            deep.leave_what_came_back(self)
        if self.tail is not None:
            deep.feed(self)
        if self.expiring:
            expire(self)
            arm(self)

    def pop(self) -> Message | None:
        """The next message for a get, or None."""
        self.touch()
        while True:
            if self.tail is not None and not self.ready:
                deep.load(self)
            if self.expiring:
                expire(self)
            if self.ready or self.tail is None:
                break
        message = self.ready.popleft() if self.ready else None
        if self.expiring:
            expire(self)  # what stood behind it
            arm(self)
        return message

    # -- consumers --------------------------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Join the rota. Raises: ExclusiveConsumerRefused, ConsumersMaxReached."""
        rota.join(self, consumer)

    def remove_consumers(self, consumers: Sequence[Consumer]) -> None:
        """They leave the rota; what they hold stays held. An auto-delete queue goes with its last consumer."""
        rota.leave(self, consumers)

    # -- away -------------------------------------------------------------------------------------------------------

    def acknowledged(self, messages: Sequence[Message]) -> None:
        """Messages that were out are settled: gone for good."""
        self.counters.acknowledged += len(messages)
        if self.octets is not None:
            self.count_out(messages)
        if self.broker.listeners:
            self.broker.emit(EventKind.ACKED, self, messages)

    def purge(self) -> int:
        """Drop all ready and scheduled messages; returns how many. The memory is given back in slices."""
        paged = self.drop_paged(EventKind.PURGED)
        self.counters.purged += paged
        gone = self.take_ready()
        gone.extend(self.scheduled.take_all())
        self.await_due()
        count = len(gone) + paged
        if len(gone):
            self.purge_these(gone)
        self.broker.free(gone)
        return count

    def purge_these(self, gone: "Ready | list[Message]") -> None:
        """Messages that are no longer in the queue were purged."""
        self.counters.purged += len(gone)
        if self.octets is not None:
            self.count_out(gone)
        if self.broker.listeners:
            self.broker.emit(EventKind.PURGED, self, list(gone))

    def kill_or_keep(self, messages: list[Message], *, reason: str) -> None:
        """Messages that were out and must not come back, unless their dead-letter address takes nothing now."""
        if self.rules is not NO_RULES and dead_letters_are_refused(self):
            for message in messages:
                message.uncounted += 1
            self.requeue(messages, why=reason, counted=True, delayed=True)
        else:
            self.kill(messages, reason=reason)

    def kill(self, messages: list[Message], *, reason: str) -> None:
        """Messages that were out and must not come back."""
        self.lose(messages, reason)

    def lose(self, messages: list[Message], reason: str, *, came_in: bool = True) -> None:
        """Messages came to a bad end: counted under their cause, and on their way to the dead-letter exchange if any.

        `reason`: rejected, expired, maxlen or delivery_limit. `came_in`: they were in the queue before.
        Source: rulings, "Events".
        """
        count = len(messages)
        if came_in and self.octets is not None:
            self.count_out(messages)
        target = self.dead_letter_target(reason)
        if reason == EXPIRED:
            kind = EventKind.EXPIRED
            self.counters.expired += count
        elif reason == MAXLEN and target is None:
            kind = EventKind.DROPPED
            self.counters.dropped += count
        else:
            kind = EventKind.DEAD_LETTERED if target is not None else EventKind.KILLED
            self.counters.killed += count
        if self.broker.listeners:
            detail: dict[str, object] = {} if target is None else {"to": target}
            if not came_in:
                detail["came_in"] = False
            self.broker.emit(kind, self, messages, reason=reason, **detail)
        if target is not None:
            self.broker.bury(self, messages, reason)

    def dead_letter_target(self, reason: str) -> str | None:
        """Exchange or address that messages dead of `reason` go to. An exchange named by the client wins for all."""
        rules = self.rules
        if rules.dead_letter_exchange is not None:
            return rules.dead_letter_exchange
        if reason == EXPIRED:
            return rules.expiry_address
        return None if reason == MAXLEN else rules.dead_letter_address

    # -- time -------------------------------------------------------------------------------------------------------

    def expire_due(self) -> None:
        """A deadline: heads whose time is over go, the next ones are waited for."""
        if self.broker.is_crowded and not self.deleted and self.dead_letter_target(EXPIRED) is not None:
            self.broker.expire_later(self)
        else:
            self.expire_now()

    def expire_now(self) -> None:
        """The same, however many dead letters are on their way."""
        if not self.deleted:
            expire(self)
            arm(self)

    def await_due(self) -> None:
        """See to it that the soonest of the scheduled messages comes due in time."""
        due_ns = self.scheduled.next_ns()
        deadline = self.due_deadline
        if deadline is not None and deadline.action is not None:
            if deadline.due_ns == due_ns:
                return
            self.broker.deadlines.cancel(deadline)
        self.due_deadline = None if due_ns is None else self.broker.deadlines.set(due_ns, self._come_due)

    def _come_due(self) -> None:
        if not self.deleted:
            come_due(self)

    def fire(self, id_: int) -> bool:
        """An operator wants a waiting message ready now. False when no such message waits."""
        return self.reschedule(id_, 0)

    def reschedule(self, id_: int, delay_ms: int) -> bool:
        """An operator wants a waiting message due so long from now. False when no such message waits."""
        message = self.scheduled.take(id_)
        if message is None:
            return False
        self.scheduled.add(due_after(self.broker.clock, delay_ms), message)
        if delay_ms == 0:
            come_due(self)
        self.await_due()
        return True

    def cancel_scheduled(self, id_: int) -> bool:
        """An operator takes a waiting message out for good. False when no such message waits."""
        message = self.scheduled.take(id_)
        if message is None:
            return False
        self.counters.cancelled += 1
        if self.octets is not None:
            self.count_out((message,))
        if self.broker.listeners:
            self.broker.emit(EventKind.CANCELLED, self, (message,))
        self.await_due()
        return True

    def touch(self) -> None:
        """The queue is in use: its own expiry (x-expires) starts anew. Source: behaviour page 3.2."""
        expires_ms = self.rules.expires_ms
        if expires_ms is None and self.unused_deadline is None:
            return
        deadlines = self.broker.deadlines
        deadlines.cancel(self.unused_deadline)
        self.unused_deadline = None
        if expires_ms is not None and not self.consumers and not self.deleted:
            due_ns = due_after(self.broker.clock, expires_ms)
            self.unused_deadline = deadlines.set(due_ns, self._unused)

    def _unused(self) -> None:
        if not self.deleted and not self.consumers:
            self.vhost.remove_queue(self)

    def forget_deadlines(self) -> None:
        """The queue is gone."""
        self.broker.deadlines.cancel(self.expiry_deadline)
        self.broker.deadlines.cancel(self.unused_deadline)
        self.broker.deadlines.cancel(self.due_deadline)
        self.broker.deadlines.cancel(self.start_deadline)


def _take(ready: Ready, limit: int, room: int) -> list[Message]:
    """Up to `limit` messages from the head, stopping once `room` octets are used; at least one."""
    popleft = ready.popleft
    if limit <= 1:
        return [popleft()]
    taken: list[Message] = []
    append = taken.append
    for _ in range(limit):
        message = popleft()
        append(message)
        room -= len(message.blob)
        if room <= 0:
            break
    return taken


def _octets(blobs: Sequence[bytes], count: int) -> int:
    return sum(map(len, blobs[:count]))


def _ready_octets(ready: Ready, count: int) -> int:
    return sum(len(message.blob) for message in islice(ready, count))


def _id_of(message: Message) -> int:
    return message.id
