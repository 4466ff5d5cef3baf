"""Faults of the broker, made on purpose, to see that the simulation finds them: in the product, none of this exists.

A plan names one of `PLANTED`; while its world runs, a method of the product is replaced by one that fails now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from simulated_files import SimulatedFiles

from leveret.amqp_frontend.flow.parking import Parking
from leveret.amqp_frontend.session.confirming import Confirming
from leveret.engine.broker import Broker
from leveret.engine.clients import session as sessions
from leveret.engine.clients.confirms import Confirms
from leveret.engine.clients.session import Session
from leveret.engine.dead_letters import DeadLetters
from leveret.engine.flow.control import FlowControl
from leveret.engine.leases import by_site, ending, granting
from leveret.engine.leases import kind as leased_queue
from leveret.engine.leases.book import LeaseTable
from leveret.engine.leases.owners import Owners
from leveret.engine.leases.state import Leases
from leveret.engine.queues import classic
from leveret.engine.queues.bounds import RingBound
from leveret.engine.queues.queue import Queue
from leveret.engine.scopes import Scopes
from leveret.journal.format.record import USER
from leveret.journal.recovery.recovered import RecoveredQueue
from leveret.journal.recovery.replay import Replay, decode_declared

#: Read before anything is replaced: what it imports by name would be the planted fault for good.
assert leased_queue
#: Makes of a method one that fails; the chance is that of the world.
Make = Callable[[Callable[..., Any], Random], Callable[..., Any]]


def _rarely(often: float, instead: Callable[..., Any] = lambda *_, **__: None) -> Make:
    """Now and then something else is called, by default nothing."""

    def make(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
        def planted(*args: Any, **named: Any) -> Any:
            return (instead if chance.random() < often else original)(*args, **named)

        return planted

    return make


def _confirm_early(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    return lambda confirms, count, refused, sync_lsn=0: original(confirms, count, refused, 0)


def _forget_to_sync(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    """Most times, of segments: the next one makes up for it."""

    def sync(files: SimulatedFiles, handle: int) -> None:
        if not files.handles[handle][0].endswith(".log") or chance.random() < 0.1:
            original(files, handle)

    return sync


def _lose_an_ack(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    def ack_each(session: Session, tags: list[int]) -> None:
        original(session, [tag for tag in tags if chance.random() > 0.01])

    return ack_each


def _lose_a_confirm(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    def send(confirming: Confirming, channel: Any, confirms: list[tuple[int, bool, bool]]) -> None:
        original(confirming, channel, [one for one in confirms if chance.random() > 0.01])

    return send


def _swap_two(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    def deliver_ready(session: Session, consumer: Any, messages: list[Any]) -> None:
        if len(messages) > 1 and chance.random() < 0.01:
            messages = [messages[1], messages[0], *messages[2:]]
        original(session, consumer, messages)

    return deliver_ready


def _twice(often: float) -> Make:
    def make(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
        def planted(*args: Any) -> None:
            original(*args)
            if chance.random() < often:
                original(*args)

        return planted

    return make


def _forget_a_client(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    def release_awaiting(broker: Broker) -> None:
        for client in list(broker.context.awaiting):
            if chance.random() < 0.1:
                del broker.context.awaiting[client]
        original(broker)

    return release_awaiting


def _lose_at_requeue(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    def requeue(queue: Queue, messages: list[Any], **named: Any) -> None:
        original(queue, messages[1:] if chance.random() < 0.02 else messages, **named)

    return requeue


def _forget_the_flag(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    def delivered(consumer: Any, tag: int, envelopes: Any, redelivered: bool, contents: Any) -> Any:
        return original(consumer, tag, envelopes, redelivered and chance.random() > 0.05, contents)

    return delivered


def _bring_users_back(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    def undeclared(replay: Replay, fields: Any, lsn: int, block: Any) -> None:
        if decode_declared(block.heap_of(fields)).object_type != USER:
            original(replay, fields, lsn, block)

    return undeclared


def _drop_held(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    """The first of a run that was held."""

    def take(area: Any, held: Any, turn: Any) -> Any:
        event = original(area, held, turn)
        contents = getattr(event, "contents", ())
        return replace(event, contents=contents[1:]) if len(contents) > 1 and chance.random() < 0.05 else event

    return take


def _leak_a_lease(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    """The first of some that begin never ends by time."""

    def note(table: LeaseTable, ids: list[int], now_ns: int) -> Any:
        return original(table, ids[1:] if chance.random() < 0.02 else ids, now_ns)

    return note


def _lend_twice(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    """What was lent is ready as well."""

    def begin(leases: Leases, messages: list[Any], session: Any) -> None:
        original(leases, messages, session)
        if chance.random() < 0.02 and not leases.rules.settings.is_at_most_once:
            leases.queue.merge([ending._new_object(messages[0])])
            leases.queue.mark()

    return begin


def _forget_a_tombstone(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    """The tag of a lease that has ended is not known any more."""

    def broken(leases: Leases, ended: list[Any]) -> Any:
        messages = original(leases, ended)
        for lease in ended:
            unacked = lease.holder.session.unacked
            for tag in [tag for tag, one in unacked.items() if one is lease and chance.random() < 0.1]:
                del unacked[tag]
        return messages

    return broken


def _forget_the_owner(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    """What was transferred belongs to the site from which it came."""
    return lambda owners, ids, number: owners.note_taken(list(ids))


def _is_gone(leases: Leases, owners: Owners, number: int) -> bool:
    return owners.name_of(number) not in leases.queue.context.broker.sites.groups


def _keep_what_is_lost(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    """Messages of a site that is gone wait for it."""

    def foreign(leases: Leases, groups: Any, owners: Owners, free: Any) -> Any:
        found, waits = original(leases, groups, owners, free)
        kept = {
            site: {one: who for one, who in here.items() if not _is_gone(leases, owners, one.expression.number)}
            for site, here in found.items()
        }
        return {site: here for site, here in kept.items() if here}, waits

    return foreign


def _keep_what_is_at_the_head(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    def transfers(leases: Leases, owners: Owners, free: Any, by_number: Any) -> Any:
        there = any(_is_gone(leases, owners, number) for number in by_number)
        return [] if there else original(leases, owners, free, by_number)

    return transfers


def _count_all_sites(original: Callable[..., Any], chance: Random) -> Callable[..., Any]:
    return lambda leases, site: len(leases.book)


#: Name -> what is replaced: its owner, its name, and by what.
PLANTED: dict[str, list[tuple[Any, str, Make]]] = {
    "forgotten fsync": [(SimulatedFiles, "sync", _forget_to_sync)],
    "early confirm": [(Confirms, "add", _confirm_early)],
    "lost ack": [(Session, "ack_each", _lose_an_ack)],
    "lost confirm": [(Confirming, "send", _lose_a_confirm)],
    "swapped messages": [(Session, "deliver_ready", _swap_two)],
    "deleted user is back": [(Replay, "_undeclared", _bring_users_back)],
    "doubled dead letter": [(DeadLetters, "_publish_one", _twice(0.02))],
    "forgotten wake-up of a client": [(Broker, "release_awaiting", _forget_a_client)],
    "forgotten wake-up of a queue": [(Queue, "mark", _rarely(0.1))],
    "lost at requeue": [(Queue, "requeue", _lose_at_requeue)],
    "forgotten redelivered flag": [(sessions, "Delivered", _forget_the_flag)],
    "forgotten expiry": [(classic, "time_to_live_ms", _rarely(0.05))],
    "ring one too many": [
        (RingBound, "takes_run", _rarely(1, lambda *_: False)),
        (RingBound, "arrived", _rarely(0.05)),
    ],
    "lease never ends": [(LeaseTable, "_note", _leak_a_lease)],
    "lease granted twice": [(granting, "begin", _lend_twice)],
    "tombstone refused": [(ending, "revoke", _forget_a_tombstone)],
    "owner forgotten at transfer": [(Owners, "move", _forget_the_owner)],
    "stranded for ever": [
        (by_site, "_foreign_groups", _keep_what_is_lost),
        (by_site, "_transfers", _keep_what_is_at_the_head),
    ],
    "backlog counted over all sites": [(Leases, "_leased_at", _count_all_sites)],
    "scope ignored in capture": [(Scopes, "has", _rarely(0.5, lambda *_: True))],
    "dropped held publish": [(Parking, "take", _drop_held)],
    "nobody woken when there is room": [(FlowControl, "_note_drained", _rarely(0.2))],
    "ack is gone after a crash": [
        (RecoveredQueue, "remove", _rarely(0.01, lambda *_: True)),
        (RecoveredQueue, "remove_range", _rarely(0.1)),
    ],
    "message is gone after a crash": [(RecoveredQueue, "add", _rarely(0.001))],
}


@contextmanager
def planted(name: str | None, seed: int) -> Iterator[None]:
    """Meanwhile the broker has this fault; None: it has none."""
    if name is None:
        yield
        return
    chance = Random(f"{seed} planted")
    with ExitStack() as stack:
        for owner, what, make in PLANTED[name]:
            stack.enter_context(patch.object(owner, what, make(getattr(owner, what), chance)))
        yield
