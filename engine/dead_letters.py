"""Dead letters on their way: published at the ends of turns, a slice at a time.

Their publication may cause more deaths. A chain of queues where nothing may wait would have no end before its own, and
the journal none to commit: so dead letters cause no deaths for now while there are many (`is_congested`).
Source: behaviour page 2.11; address-settings page 6.7.
"""

from collections import deque
from collections.abc import Sequence

from .context import BrokerContext
from .messages.deaths import EXPIRED, dead_letter
from .messages.message import Message
from .publishing.auto_created import targets_of
from .publishing.publish import publish_dead
from .queues.queue import Queue

#: How much of `Effort` dead letters may cost in one turn: half of what a turn may (about 3 to 5 ms).
DEAD_SPREAD = 2_000
#: What a dead letter costs by that measure: it, each queue that it goes to, and so many octets of it.
LETTER_COST, LETTER_QUEUE_COST, LETTER_OCTETS = 40, 20, 1_000
#: While so many dead letters are on their way, or are out since there were none, they cause no more (`is_congested`).
LETTERS_MAX = 500


class DeadLetters:
    """Of one broker: those `waiting` for their publication. `were_waiting`: some, when the turn began to end."""

    __slots__ = ("_context", "late", "published", "waiting", "were_waiting")

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.waiting: deque[tuple[Queue, Message, str]] = deque()
        self.late: dict[Queue, None] = {}  # where messages have expired, and have to wait for that
        self.published = 0  # since there were none on their way
        self.were_waiting = False

    @property
    def count(self) -> int:
        """How many are still to be published."""
        return len(self.waiting)

    @property
    def is_congested(self) -> bool:
        """Whether dead letters cause no deaths for now: first those are to be out that are on their way."""
        return self.published >= LETTERS_MAX or len(self.waiting) >= LETTERS_MAX

    def add(self, queue: Queue, messages: Sequence[Message], reason: str) -> None:
        """Messages died in a queue that has a dead-letter exchange: they are published there before the turn ends."""
        self.waiting.extend((queue, message, reason) for message in messages)

    def expire_later(self, queue: Queue) -> None:
        """Messages have expired, and are to go when the dead letters are out that are on their way."""
        self.late[queue] = None

    def begin(self) -> None:
        """A turn begins to end: what has expired goes if no dead letter is on its way.

        Called when there is one, or something has expired, or there was one when the last turn began to end.
        """
        self.were_waiting = bool(self.waiting)
        if self.late and not self.waiting:
            late, self.late = self.late, {}
            for queue in late:
                queue.expire_now()

    def publish(self, until: int | None = None) -> None:
        """A slice of them, until so much `Effort`."""
        effort, waiting = self._context.effort, self.waiting
        if until is None:
            until = effort.spent + DEAD_SPREAD
        while waiting and effort.spent < until:
            self.published += 1
            self._publish_one(*waiting.popleft())
        if not waiting:
            self.published = 0

    def _publish_one(self, queue: Queue, message: Message, reason: str) -> None:
        broker, host = self._context, queue.context
        broker.effort.spent += LETTER_COST + len(message.blob) // LETTER_OCTETS
        target = queue.rules.dead_letter_target(reason)
        if target is None:
            return
        rules, options = queue.rules, broker.options
        if rules.dead_letter_exchange is not None:
            targets = [(target, rules.dead_letter_routing_key)]
        else:
            resources = rules.expiry_resources if reason == EXPIRED else rules.dead_letter_resources
            makes_missing = rules.makes_missing_queues and queue.may_make_queues
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
                tells_last_death=options.tells_last_death,
            )
            reached = publish_dead(host, letter)
            broker.effort.spent += reached * LETTER_QUEUE_COST
            if not reached:
                broker.unroutable_letters.note(host.name, queue.name, target)

    def _address_of(self, queue: Queue, message: Message) -> str | None:
        """What a dead letter tells as the message's address; None where only a dead-letter exchange rules (6.7)."""
        broker = self._context
        if queue.rules.dead_letter_exchange is not None:
            settings = broker.settings.resolve(queue.address, queue.vhost_name)
            if not settings.dead_letter_address and not settings.expiry_address:
                return None
        return broker.options.address_of(message.envelope.exchange, message.envelope.routing_key)
