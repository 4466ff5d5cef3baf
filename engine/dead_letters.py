"""The dead letters to publish: a slice at the end of each turn.

Publishing them may cause more deaths. In a chain of full queues, each pushing one out, this would not stop before the
end of the chain, and the journal could not commit. So they cause no deaths while there are many (`is_congested`).
`publishing/publish.py` decides which queues receive one; `messages/deaths.py` makes its headers.
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

#: Units of effort for dead letters in one turn: half of a turn's (about 3 to 5 ms).
DEAD_SPREAD = 2_000
#: The cost of a dead letter in units of effort: for itself, and for each of its queues; and octets of it per unit.
LETTER_COST, LETTER_QUEUE_COST, LETTER_OCTETS = 40, 20, 1_000
#: Dead letters waiting, or published since the last time that none were waiting, at which they cause no more deaths.
LETTERS_MAX = 500


class DeadLetters:
    """The dead letters of one broker that are `waiting` to be published.

    `were_waiting`: whether there were any when the turn began to end. `late`: queues whose expired
    messages wait until no dead letters are waiting.
    """

    __slots__ = ("_context", "late", "published", "waiting", "were_waiting")

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.waiting: deque[tuple[Queue, Message, str, str]] = deque()
        self.late: dict[Queue, None] = {}
        self.published = 0  # since the last time that none were waiting
        self.were_waiting = False

    @property
    def count(self) -> int:
        """The number of dead letters to publish."""
        return len(self.waiting)

    @property
    def is_congested(self) -> bool:
        """Whether there are too many: publishes then cause no more deaths until all are published."""
        return self.published >= LETTERS_MAX or len(self.waiting) >= LETTERS_MAX

    def add(self, queue: Queue, messages: Sequence[Message], reason: str) -> None:
        """Publish messages that died in a queue with a dead-letter target, from the end of this turn on."""
        own, site_of = self._context.sites.own, queue.kind.site_of
        self.waiting.extend((queue, message, reason, site_of(queue, message) or own) for message in messages)

    def expire_later(self, queue: Queue) -> None:
        """Expire the messages of a queue when all waiting dead letters are published."""
        self.late[queue] = None

    def begin(self) -> None:
        """Called as a turn begins to end. Expires the messages of `late` queues if no dead letters are waiting.

        Called only if dead letters are waiting, were waiting at the last call, or queues are `late`.
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
            until = turn.effort + DEAD_SPREAD
        while waiting and turn.effort < until:
            self.published += 1
            self._publish_one(*waiting.popleft())
        if not waiting:
            self.published = 0

    def _publish_one(self, queue: Queue, message: Message, reason: str, site: str) -> None:
        broker, host = self._context, queue.context
        broker.turn.effort += LETTER_COST + len(message.content) // LETTER_OCTETS
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
            with broker.sites.at(site):
                reached = publish_dead(host, letter)
            broker.turn.effort += reached * LETTER_QUEUE_COST
            if not reached:
                broker.unroutable_letters.note(host.name, queue.name, target)

    def _address_of(self, queue: Queue, message: Message) -> str | None:
        """The address for the headers of a dead letter; None: only a dead-letter exchange applies (6.7)."""
        broker = self._context
        if queue.rules.dead_letter_exchange is not None:
            settings = broker.settings.resolve(queue.address, queue.vhost_name)
            if not settings.dead_letter_address and not settings.expiry_address:
                return None
        return broker.options.address_of(message.envelope.exchange, message.envelope.routing_key)
