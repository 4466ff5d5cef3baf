"""Publishes dead letters in slices at the ends of turns, and counts those that no queue took.

A dead letter in a full queue makes that queue drop another message. In a chain of full queues that would go on without
a commit of the journal. So dead letters cause no deaths while there are many (`is_congested`).
`rules/queue_rules.py` has the target of dead letters; `messages/dead_letter.py` makes them and finds cycles.
`queues/classic.py` finds messages that reached the limit of attempts.
Source: behaviour page 2.11, 3.4; address-settings page 5.5, 6.7.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..settings.frozen import frozen
from .context import BrokerContext, HostContext
from .messages.dead_letter import DELIVERY_LIMIT, EXPIRED, REJECTED, dead_letter
from .messages.message import Message
from .publishing.auto_created import targets_of
from .publishing.publish import publish_dead_letter
from .queues.queue import Queue
from .rules.queue_rules import NO_RULES, AutoCreatedQueue, QueueRules

#: Units of effort for dead letters at the end of one turn (about 3 to 5 ms).
DEAD_LETTERS_EFFORT = 2_000
#: Units of effort of a dead letter, and of each of its queues; octets of it per further unit.
LETTER_COST, LETTER_QUEUE_COST, LETTER_OCTETS = 40, 20, 1_000
#: The number of dead letters, waiting or published since none were waiting, from which on there are many.
LETTERS_MAX = 500
#: Queues whose dead-letter queues are looked up in one step.
QUEUES_SLICE = 200
#: Maximum pairs of a queue and an address that are counted separately. Further ones are counted only in the sum.
PAIRS_MAX = 1000


class DeadLetters:
    """The dead letters of one broker that are `waiting` to be published.

    `were_waiting`: some were waiting when the end of the turn began. `late`: queues with expired messages that stay as
    long as dead letters are waiting.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.waiting: deque[tuple[Queue, Message, str, str]] = deque()
        self.late: dict[Queue, None] = {}
        self.published = 0  # since none were waiting
        self.were_waiting = False

    @property
    def is_congested(self) -> bool:
        """Whether `LETTERS_MAX` is reached. Then dead letters cause no deaths until none are waiting."""
        return self.published >= LETTERS_MAX or len(self.waiting) >= LETTERS_MAX

    def add(self, queue: Queue, messages: Sequence[Message], reason: str) -> None:
        """Publish messages that died in a queue with a dead-letter target, beginning at the end of this turn."""
        own, site_of = self._context.sites.own, queue.kind.site_of
        self.waiting.extend((queue, message, reason, site_of(queue, message) or own) for message in messages)

    def expire_later(self, queue: Queue) -> None:
        """Expire messages of a queue when no dead letters are waiting."""
        self.late[queue] = None

    def begin(self) -> None:
        """Begin the end of a turn: expire messages of `late` queues if no dead letters are waiting.

        Called only if dead letters are waiting, or were waiting at the last call, or queues are `late`.
        """
        self.were_waiting = bool(self.waiting)
        if self.late and not self.waiting:
            late, self.late = self.late, {}
            for queue in late:
                queue.expire_now()

    def publish(self, until: int | None = None) -> None:
        """Publish dead letters until `Turn.effort` reaches `until`; None: a slice."""
        turn, waiting = self._context.turn, self.waiting
        if until is None:
            until = turn.effort + DEAD_LETTERS_EFFORT
        while waiting and turn.effort < until:
            self.published += 1
            self._publish_one(*waiting.popleft())
        if not waiting:
            self.published = 0

    def _publish_one(self, queue: Queue, message: Message, reason: str, site: str) -> None:
        broker, host = self._context, queue.context
        broker.turn.effort += LETTER_COST + len(message.content) // LETTER_OCTETS
        target = queue.rules.dead_letter_target(reason)
        if target is None or host.is_being_deleted:
            return
        rules, options = queue.rules, broker.options
        if rules.dead_letter_exchange is not None:
            targets = [(target, rules.dead_letter_routing_key)]
            client_reasons: tuple[str, ...] = (REJECTED,)  # as in RabbitMQ
        else:
            client_reasons = (REJECTED, DELIVERY_LIMIT)  # each attempt needs a client
            makes_missing = rules.makes_missing_queues and queue.may_make_queues
            resources = _resources_of(queue, reason)
            targets = [*targets_of(host, target, queue.address, resources, makes_missing=makes_missing)]
        for exchange, key in targets:
            letter = dead_letter(
                message,
                queue=queue.name,
                reason=reason,
                exchange=exchange,
                routing_key=key,
                wall_ms=broker.clock.wall_ms(),
                address=self._address_of(queue, message),
                with_hornetq_names=options.legacy_hornetq_headers,
                continues_deaths=options.continues_deaths,
                with_last_death=options.tells_last_death,
                client_reasons=client_reasons,
            )
            with broker.sites.at(site):
                reached, taken = publish_dead_letter(host, letter)
            broker.turn.effort += reached * LETTER_QUEUE_COST
            if not taken:
                lost = broker.cycling_letters if reached else broker.unroutable_letters
                lost.note(host.name, queue.name, target)

    def _address_of(self, queue: Queue, message: Message) -> str | None:
        """The address for the headers of a dead letter; None: only a dead-letter exchange applies (6.7)."""
        broker = self._context
        if queue.rules.dead_letter_exchange is not None:
            settings = broker.settings.resolve(queue.address, queue.vhost_name)
            if not settings.dead_letter_address and not settings.expiry_address:
                return None
        return broker.options.address_of(message.envelope.exchange, message.envelope.routing_key)


def dead_letter_queues(host: HostContext) -> Iterator[list[Queue]]:
    """Find the dead-letter queues of a virtual host by the rules of its queues, in steps. Yields each queue once."""
    known: dict[Queue, None] = {}
    targets: dict[tuple[str, str | None], None] = {}
    for count, queue in enumerate(list(host.queues.values()), 1):
        some: list[Queue] = []
        if queue.rules is not NO_RULES and not queue.deleted:
            for target in _targets_of(host, queue, queue.rules):
                if target not in targets:
                    targets[target] = None
                    some += [one for one in _queues_at(host, *target) if one.name and one not in known]
                    known.update(dict.fromkeys(some))
        if some or count % QUEUES_SLICE == 0:
            yield list(dict.fromkeys(some))


def _targets_of(host: HostContext, queue: Queue, rules: QueueRules) -> Iterator[tuple[str, str | None]]:
    """The dead-letter targets of a queue: (exchange, routing key); None: the routing key of each message."""
    if rules.dead_letter_exchange is not None:
        yield rules.dead_letter_exchange, rules.dead_letter_routing_key
        return
    for reason in (REJECTED, EXPIRED):
        target = rules.dead_letter_target(reason)
        if target is None:
            continue
        yield host.router.resolve_address(target, queue.address)
        if (resources := _resources_of(queue, reason)) is not None:
            yield "", resources.name_for(queue.address)


def _resources_of(queue: Queue, reason: str) -> AutoCreatedQueue | None:
    """The queue that is created for this queue's dead letters; None: none, or it would be this queue itself."""
    resources = queue.rules.resources_of(reason)
    return None if resources is None or resources.name_for(queue.address) == queue.name else resources


def _queues_at(host: HostContext, exchange_name: str, key: str | None) -> Iterable[Queue]:
    exchange = host.exchanges.get(exchange_name)
    if exchange is None:
        return []
    if key is None:
        return [one for one in exchange.destinations if isinstance(one, Queue)]
    return host.router.would_reach(exchange, key)


@frozen
class Unroutable:
    """Messages that no queue at the dead-letter `address` took, or that would have begun a cycle there.

    `queue`: where they died; empty: in no queue.
    """

    vhost: str
    queue: str
    address: str
    count: int


class UnroutableLetters:
    """The dead letters of one broker that were lost for one reason since its start. `count`: their number.

    `on_unroutable`: called for the first, tenth, hundredth, ... of one queue and address. `on_made`: called with the
    virtual host, the name and the address of a queue that was created because nothing was bound to the address.
    """

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str, str], int] = {}
        self.count = 0
        self.on_unroutable: Callable[[Unroutable], object] = lambda found: None
        self.on_made: Callable[[str, str, str], object] = lambda vhost, queue, address: None

    def note(self, vhost: str, queue: str, address: str) -> None:
        """Count a dead letter that no queue at `address` took. `queue`: where the message died."""
        self.count += 1
        pair = (vhost, queue, address)
        count = self._by_pair.get(pair, 0) + 1
        if count == 1 and len(self._by_pair) >= PAIRS_MAX:
            return
        self._by_pair[pair] = count
        if str(count).strip("0") == "1":
            self.on_unroutable(Unroutable(vhost, queue, address, count))

    def places(self) -> list[Unroutable]:
        """The counts by queue and address, the largest first."""
        found = [Unroutable(*pair, count) for pair, count in self._by_pair.items()]
        return sorted(found, key=lambda one: (-one.count, one.vhost, one.queue, one.address))
