"""Checks the tags of sessions against the counts of sessions and holders; also their consumers and confirms."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ..clients.session import Session
from ..delivery.consumer import Consumer, Holder, holder_of
from ..messages.message import Message
from ..queues.queue import Queue


class Held(NamedTuple):
    """Unacknowledged messages by session, and by queue over all these sessions."""

    sessions: dict[Session, list[Message]]
    by_queue: dict[Queue, list[Message]]


def held_by(sessions: Iterable[Session]) -> Held:
    """The messages that count as unacknowledged in these sessions. Copies, and leases that have ended, do not."""
    found: dict[Session, list[Message]] = {}
    by_queue: dict[Queue, list[Message]] = {}
    for session in sessions:
        if session not in found and isinstance(session, Session):
            found[session] = out = [one for one in _all_of(session) if not holder_of(one).is_past]
            for message in out:
                by_queue.setdefault(holder_of(message).queue, []).append(message)
    return Held(found, by_queue)


def _all_of(session: Session) -> Iterator[Message]:
    """The messages with tags, and those that a transaction or an unfinished commit settles."""
    uncommitted = () if session.transaction is None else session.transaction.tags.values()
    committing = () if session.committing is None else session.committing.unsettled()
    return chain(session.unacked.values(), uncommitted, committing)


def sessions_of(held: Held) -> Iterator[str]:
    """Faults of sessions: counts that differ from the tags, and consumers known at one end only."""
    for session, out in held.sessions.items():
        where = f"session {session.number} of '{session.client.name}'"
        counts = Counter(map(holder_of, out))
        by_consumers = 0
        for holder, count in counts.items():
            by_consumers += count * holder.counts_against_prefetch
            if holder.unacked != count:
                yield f"{where}: {_name(holder)} counts {holder.unacked} unacknowledged, tags {count}"
            if holder.session is not session:
                yield f"{where}: {_name(holder)} has deliveries here and is of another session"
            queue = holder.queue
            if not queue.deleted and session not in queue.sessions:
                yield f"{where}: queue '{queue.name}' does not know of its deliveries here"
        if session.unacked_by_consumers != by_consumers:
            yield f"{where}: counts {session.unacked_by_consumers} unacknowledged of consumers, tags {by_consumers}"
        tags = list(session.unacked)
        if tags and (tags[-1] >= session.next_tag or any(one >= next_ for one, next_ in zip(tags, tags[1:]))):
            yield f"{where}: tags do not rise up to {session.next_tag}: {tags[:20]}"
        for tag, consumer in session.consumers.items():
            if consumer.tag != tag or consumer.session is not session:
                yield f"{where}: {_name(consumer)} is known by the tag '{tag}'"
            if consumer not in counts and consumer.unacked:
                yield f"{where}: {_name(consumer)} counts {consumer.unacked} unacknowledged, tags 0"
            if consumer not in consumer.queue.consumer_list.consumers:
                yield f"{where}: {_name(consumer)} is not in the consumer list of queue '{consumer.queue.name}'"
        yield from (f"{where}: {fault}" for fault in _confirms_of(session))


def _confirms_of(session: Session) -> Iterator[str]:
    confirms = session.confirms
    if confirms is None:
        return
    if not 0 <= confirms.confirmed <= confirms.published:
        yield f"{confirms.confirmed} of {confirms.published} publishes are confirmed"
    waiting = list(confirms.waiting)
    if any(one >= other for one, other in zip(waiting, waiting[1:])):
        yield f"confirms that wait for the journal do not rise: {waiting[:20]}"
    refused = confirms.refused
    if refused and not (confirms.confirmed < refused[0] and refused[-1] <= confirms.published):
        yield f"refused {refused[:20]}, with {confirms.confirmed} of {confirms.published} confirmed"


def _name(holder: Holder) -> str:
    return f"consumer '{holder.tag}'" if isinstance(holder, Consumer) else "a get"
