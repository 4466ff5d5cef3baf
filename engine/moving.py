"""Moving, replaying or discarding the ready messages of one queue for an operator, in slices.

A slice is done within one turn, which the journal records whole or not at all: after a kill each message is in exactly
one of the queues. A message that cannot be moved stays. If a destination has no room, the rest waits. Messages get new
ids and no delivery counts, and their time to live starts again.
Source: management page 16; queues page F.2 (scans); ruling 5.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..settings.frozen import frozen
from .clients.client import Client
from .errors import EngineError
from .messages.message import Message
from .move_targets import FindTarget, MoveTarget, Unmovable
from .publishing.publish import publish_run
from .publishing.route import Route
from .queues.queue import Queue

#: Maximum of a slice (less than 5 ms): messages read, octets of their contents, and messages moved.
READ_MAX, OCTETS_MAX, MOVED_MAX = 100, 256 * 1024, 50
#: The reason in the events of discarded messages.
DISCARDED = "discarded"


class QueueGone(Exception):
    """The queue was deleted during the request."""


class DryRunResult(NamedTuple):
    """The result of a dry run for one message: its `target`, or the `reason` why it would stay."""

    message: Message
    position: int
    target: MoveTarget | None
    reason: str


@frozen
class Choice:
    """The messages to move: those at `positions` (None: all) that `takes` selects, at most `limit` (None: all)."""

    takes: Callable[[Message], bool]
    positions: frozenset[int] | None = None
    limit: int | None = None


class Moving:
    """One request. `find_target`: finds the destination of each message; None: discard it.

    Numbers of messages: `total`: ready at the start (later ones are not moved); `looked_at`: read so far; `done`:
    moved; `kept`: those that stay, by reason. `waits_for`: what the request waits for; empty: nothing. `is_done`: it is
    complete.
    """

    def __init__(
        self,
        queue: Queue,
        client: Client,
        choice: Choice,
        find_target: FindTarget | None,
        why: str,
        text_of: Callable[[EngineError], str] = str,
    ) -> None:
        """`why`: the reason in events. `client`: the caller, whose permissions apply. `text_of`: a refusal in words."""
        self.queue, self.find_target = queue, find_target
        self._client, self._choice, self._why, self._text_of = client, choice, why, text_of
        self._last_id = client.broker.next_id - 1
        self._after = min(choice.positions) - 1 if choice.positions else 0
        self._last = None if choice.positions is None else max(choice.positions, default=0)
        self._seen: list[int] = []  # positions of the last slice that `looked_at` counts
        self.total = queue.ready_count
        self.looked_at = self.done = 0
        self.kept: dict[str, int] = {}
        self.waits_for = ""
        self.is_done = False

    def dry_work(self) -> list[DryRunResult]:
        """Do a slice of a dry run. `done` counts the messages that would be moved, `kept` the others.

        Raises: QueueGone, Unreadable.
        """
        found: list[DryRunResult] = []
        reached: list[MoveTarget] = []
        for position, message in self._chosen(READ_MAX):
            target, reason = self._target_of(message, reached)
            found.append(DryRunResult(message, position, target, reason))
            self._keep(reason)
            self.done += not reason
        for one in reversed(reached):
            self._client.host.router.give_turns_back(one.exchange, one.keys, one.queues)
        self._note_end()
        return found

    def work(self, wanted: int = MOVED_MAX) -> None:
        """Do a slice: move at most `wanted` messages. Raises: QueueGone, Unreadable."""
        durability = self._client.broker.storage.durability
        self.waits_for = ""
        if durability is not None and durability.has_failed:
            self.waits_for = "the journal"
            return
        chosen = self._chosen(min(wanted, MOVED_MAX))
        if self.find_target is None:
            gone = self._take([position for position, _ in chosen])
            self.queue.events.purged(gone, reason=DISCARDED)
            self.done += len(gone)
        else:
            self._move(chosen)
        if chosen:
            self.queue.mark()
        self._note_end()

    def _note_end(self) -> None:
        limit = self._choice.limit
        self.is_done = self.is_done or (limit is not None and self.done >= limit)

    def _chosen(self, wanted: int) -> list[tuple[int, Message]]:
        """The selected messages of a slice, with their positions."""
        queue, choice = self.queue, self._choice
        if queue.deleted:
            raise QueueGone
        if queue.is_busy():
            self.waits_for = f"the end of returns or of expiry in queue {queue.name!r}"
            return []
        self._client.broker.scheduler.dispatch_now(queue)
        if choice.limit is not None:
            wanted = min(wanted, choice.limit - self.done)
        seen = queue.scan(self._after, READ_MAX)
        now_ns = queue.context.broker.clock.monotonic_ns()
        found: list[tuple[int, Message]] = []
        self._seen = []
        octets, last = 0, self._last
        for position, message in seen.found:
            if last is not None and position > last:
                self.is_done = True
                return found
            if len(found) >= wanted or octets >= OCTETS_MAX:
                return found
            self._after = position
            octets += len(message.content)
            if message.id > self._last_id:
                continue  # published after the start
            self.looked_at += 1
            self._seen.append(position)
            if 0 < message.expires_ns <= now_ns or not (choice.positions is None or position in choice.positions):
                continue
            if choice.takes(message):
                found.append((position, message))
        queue.context.broker.turn.effort += len(seen.found)
        self.is_done = len(seen.found) < READ_MAX and not seen.missing
        return found

    def _target_of(self, message: Message, reached: list[MoveTarget]) -> tuple[MoveTarget | None, str]:
        """The destination of a message, or the reason why it stays.

        `reached`: the destinations found so far, also of messages that stay; they have taken their turns.
        """
        if self.find_target is None:
            return None, ""
        try:
            target = self.find_target(message)
            reached.append(target)
            if self.queue in target.queues:
                raise Unmovable("it would come back into this queue")
            return target, ""
        except Unmovable as error:
            return None, str(error)
        except EngineError as error:
            return None, f"refused: {self._text_of(error)}"

    def _keep(self, reason: str) -> None:
        """Count a message that stays for this reason; empty: it does not stay."""
        if reason:
            self.kept[reason] = self.kept.get(reason, 0) + 1

    def _take(self, positions: Sequence[int]) -> list[Message]:
        return self.queue.evictable.take_at(positions).messages if positions else []

    def _move(self, chosen: Sequence[tuple[int, Message]]) -> None:
        queue = self.queue
        targets: dict[int, tuple[int, MoveTarget]] = {}
        reasons: list[tuple[int, str]] = []
        for at, message in chosen:
            target, reason = self._target_of(message, [])
            if target is None:
                reasons.append((at, reason))
            else:
                targets[message.id] = at, target
        # All are taken first, so that `Unreadable` ends the slice before a message is published.
        back = {message.id: message for message in self._take([at for at, _ in targets.values()])}
        moved: dict[str, list[Message]] = {}
        try:
            for id_, message in list(back.items()):
                position, target = targets[id_]
                self.waits_for = self._awaited(target, message)
                if self.waits_for:
                    self.looked_at -= sum(one >= position for one in self._seen)
                    self._after, self.is_done = position - 1, False  # it is read again
                    break
                if self._publish(message, target):
                    moved.setdefault(target.title, []).append(back.pop(id_))
                    self.done += 1
            for at, reason in reasons:
                if at <= self._after:  # the others are read again
                    self._keep(reason)
        finally:
            for title, messages in moved.items():
                queue.events.purged(messages, reason=self._why, to=title)
            if back:
                queue.merge([back[id_] for id_ in sorted(back, reverse=True)])

    def _awaited(self, target: MoveTarget, message: Message) -> str:
        """What a message has to wait for, as text; empty: nothing. A move must not drop other messages."""
        broker = self._client.broker
        for queue in target.queues:
            if not queue.has_room(message):
                return f"room in queue {queue.name!r}"
        count, full = broker.flow.room_for(target.queues, target.envelope, (target.content,), self._client)
        if not count:
            return "room" if full is None else f"room in {full.node.destination}"
        return "" if broker.flow.raised is None else "the end of the alarm"

    def _publish(self, message: Message, target: MoveTarget) -> bool:
        """Publish a message. Returns whether all of its queues took it."""
        broker = self._client.broker
        broker.activity.own += 1
        self._client.host.router.follow_topics(target.queues, target.exchange, target.keys)
        route = Route(target.exchange, target.envelope.routing_key, target.queues)
        envelope = target.envelope
        if any(queue.rules.last_value_key is not None for queue in target.queues):  # it may be older than other values
            envelope = envelope.published_first_as(message.first_id)
        outcome = publish_run(self._client.host, route, envelope, (target.content,), cause=self._why)
        if outcome.refused:
            self._keep(f"refused by a limit, on the way to {target.title}")
        return not outcome.refused
