"""Everything comes to rest: nobody does anything, all that was asked is answered, and nothing is on its way.

Then what clients hold, what the broker says, and what the books know must be the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from .books import Books
from .clients.client import RUNNING, Client, Mood
from .host import Host
from .ledger import Broken, Ledger, QueueName
from .loop import SECOND, now_ns, pass_time

#: After that the world is at rest, and within this every question is answered.
PATIENCE_S = 120
ANSWER_S = 90
#: So long nothing happens at all.
QUIET_S = 0.5
#: So many looks in a row at a client that waits while nobody does anything: it was forgotten.
LOOKS_MAX = 3


class Resting(Protocol):
    """A world, as far as it comes to rest."""

    clients: list[Client]
    books: Books
    ledger: Ledger
    host: Host | None


class Rest:
    """`is_on`: no faults are to come meanwhile."""

    def __init__(self, world: Resting) -> None:
        self._world = world
        self._since_ns = 0
        self._forgotten: dict[int, int] = {}  # client -> how often in a row nothing was on its way, but its answer due
        self.is_on = False

    async def come(self, mood: Mood) -> None:
        """Wait for it, and look at everything. Raises: Broken."""
        world = self._world
        self.is_on = True
        self._since_ns = now_ns()
        self._forgotten.clear()
        for client in world.clients:
            client.mood = mood
        events = -1
        while (why := self._restless(mood)) or events != world.books.events:
            if now_ns() - self._since_ns > PATIENCE_S * SECOND:
                raise Broken(f"not at rest after {PATIENCE_S} s: {why}")
            events = world.books.events
            await pass_time(QUIET_S)
        self._check()

    def end(self) -> None:
        """Everybody goes on."""
        self.is_on = False
        for client in self._world.clients:
            client.mood = Mood.BUSY

    def _restless(self, mood: Mood) -> list[str]:
        world = self._world
        host = world.host
        if host is None or not host.is_alive:
            return ["no broker"]
        restless = []
        for client in world.clients:
            question = client.unanswered()
            if question is None:
                self._forgotten.pop(client.number, None)
            if question is not None:
                waited_s = (now_ns() - max(question.asked_ns, self._since_ns)) / SECOND
                if waited_s > ANSWER_S:
                    raise Broken(f"client {client.number} waits for {question.answer} since {waited_s} s")
                self._look_at_waiting(client, host, question.answer)
                restless.append(f"client {client.number}: {question.answer}")
            elif client.state is not RUNNING:
                if client.comes_and_goes:
                    continue
                restless.append(f"client {client.number}: not connected")
            elif world.books.deliveries.owed(client.product):
                restless.append(f"client {client.number}: deliveries")
            elif mood is Mood.ENDING and any(channel.held() for channel in client.channels.values()):
                restless.append(f"client {client.number}: not settled")
        there = sum(client.state is RUNNING for client in world.clients)
        connected = host.broker.statistics().clients
        if connected != there:
            restless.append(f"{connected} connections of {there}")
        if mood is Mood.ENDING:
            drained = {
                name for client in world.clients for channel in client.channels.values() for name in channel.drains
            }
            for name, ids in world.ledger.present.items():
                if ids and name[1] in drained:
                    restless.append(f"{name[1]}: {len(ids)} messages")
        return restless

    def _look_at_waiting(self, client: Client, host: Host, answer: str) -> None:
        """All was read, all is safe, and nothing comes: somebody forgot to wake. A heartbeat would hide it soon."""
        journal = host.keeper.journal
        is_still = (
            client.state is RUNNING
            and client.link is not None
            and client.link.is_idle
            and not host.disk.is_troubled
            and not host.broker.is_unfinished
            and host.broker.alarm is None  # else publishes are read and put aside
            and not host.keeper.recorder.is_behind
            and journal.committed_lsn >= journal.next_lsn
        )
        looks = self._forgotten[client.number] = self._forgotten.get(client.number, 0) + 1 if is_still else 0
        if looks >= LOOKS_MAX:
            raise Broken(f"client {client.number} waits for {answer}, and nothing else is to come")

    # -- what is the same ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        world = self._world
        world.ledger.check_contents()
        world.books.check()
        self._check_held()
        self._check_credit()

    def _check_held(self) -> None:
        """An acknowledgement that was lost on its way shows here, as does one too many."""
        held: Counter[QueueName] = Counter()
        for client in self._world.clients:
            for channel in client.channels.values():
                held.update(channel.held())
        for name, place in self._world.books.whereabouts.places.items():
            if held[name] != place.queue.unacked:
                raise Broken(f"{name} has {place.queue.unacked} out, its clients hold {held[name]}")

    def _check_credit(self) -> None:
        """What is ready and who would take it are not there at the same time: somebody forgot to wake."""
        places = self._world.books.whereabouts.places
        for client in self._world.clients:
            for channel in client.channels.values():
                queue = channel.credit()
                place = None if queue is None else places.get((client.vhost, queue))
                if place is not None and place.ready and not place.keeps:
                    raise Broken(
                        f"client {client.number} would take more of {queue}, which has {len(place.ready)} ready"
                    )
