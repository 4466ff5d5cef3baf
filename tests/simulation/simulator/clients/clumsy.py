"""A publisher that makes mistakes: behind some publishes comes what the broker refuses, then more that is thrown away.

What was published before a mistake, in the same read or not, is published and confirmed before the close comes; what
stands behind it never is. So it is where the client itself closes.
"""

from __future__ import annotations

from typing import Any

from leveret.interop.wire.raw_codec import Method

from ..ledger import Broken
from .channel import Channel
from .client import Client
from .knowledge import body_of, key_of, publisher_of
from .mistakes import CODES, MORE_CHANNELS, OF_CHANNEL, OF_CONNECTION, Mistake, Slip
from .wire import content, properties, publish_method


class Clumsy(Channel):
    """`options`: queue. Its publishes are transient, so that confirms do not wait for the disk."""

    connection_ends = CODES

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self._queue = client.world.plan.queue(options["queue"])
        self._published = 0  # over all connections
        self._tag = 0
        self._unconfirmed: dict[int, bytes] = {}
        self._expected: Mistake | None = None  # by which a close is to come
        self._sent_ns = 0  # the last batch
        self._is_ready = False

    def opened(self) -> None:
        self._tag = 0
        self.declare(self._queue, lambda _: None)
        self.ask("confirm.select", "confirm.select-ok", self._begin)

    def _begin(self, _: Method) -> None:
        self._is_ready = True

    def lost(self) -> None:
        self._is_ready = False
        self._expected = None
        self._unconfirmed.clear()

    @property
    def _slip(self) -> Slip:
        return Slip(
            self.number, self._queue.name, f"clumsy-{self.client.number}-{self.client.life}", self.client.frame_max
        )

    @property
    def _of_connection(self) -> list[str]:
        is_full = len(self.client.channels) == self.client.channel_max
        return [name for name in OF_CONNECTION if is_full or name != MORE_CHANNELS]

    # -- what it does -------------------------------------------------------------------------------------------------

    def act(self) -> None:
        if not self._is_ready or self._expected is not None or self.client.waiting:
            return
        chance = self.chance
        self._sent_ns = self.world.schedule.now_ns
        before = b"".join(self._publish(keeps=True) for _ in range(chance.randint(0, 8)))
        luck = chance.random()
        if luck < 0.6:
            self.send(before)
        elif luck < 0.9:
            name = chance.choice(list(OF_CHANNEL if chance.random() < 0.7 else self._of_connection))
            self.world.knowledge.happened[f"mistake: {name}"] += 1
            self._expected = (OF_CHANNEL | OF_CONNECTION)[name]
            behind = b"".join(self._publish(keeps=False) for _ in range(chance.randint(0, 4)))
            self.send(before + self._expected.octets(self._slip) + behind)
        elif luck < 0.97:
            self._is_ready = False
            self.send(before)
            self.ask("channel.close", "channel.close-ok", self._closed, reply_code=200, reply_text="bye")
        else:
            self.send(before)
            self.client.close()

    def _publish(self, *, keeps: bool) -> bytes:
        self._published += 1
        key = key_of(publisher_of(self.client.number, self.number, self.client.life), self._published)
        knowledge = self.world.knowledge
        knowledge.publish(key, 10)
        knowledge.operations += 1
        if keeps:
            self._tag += 1
            self._unconfirmed[self._tag] = key
        else:
            self.world.books.routing.never.add(key)
        head = content(self.number, properties(persistent=False), body_of(key, 10), self.client.frame_max)
        return publish_method(self.number, "", self._queue.name) + head

    # -- answers ------------------------------------------------------------------------------------------------------

    def confirmed(self, tag: int, multiple: bool, *, is_ack: bool) -> None:
        tags = [one for one in self._unconfirmed if one <= tag] if multiple else [tag]
        for one in tags:
            key = self._unconfirmed.pop(one, None)
            if key is None or (is_ack and key not in self.world.books.routing.seen):
                raise Broken(f"client {self.client.number} got a confirm for {one}, which was not published")

    def closed(self, code: int, text: str) -> None:
        self.connection_closed(code, text)
        self._check_confirmed("an error")

    def connection_closed(self, code: int, text: str) -> None:
        """Of publishes before an error of the connection nothing is said."""
        mistake, method = self._expected, self.client.closes
        told = None if mistake is None else (mistake.code, mistake.text_of(self._slip), mistake.method)
        if told is None or code != told[0] or not text.startswith(told[1]) or method != told[2]:
            raise Broken(f"client {self.client.number} was to be closed by {told}, and was: {code} {text} {method}")

    def said_goodbye(self) -> None:
        self._check_confirmed("the end of the connection")

    def _closed(self, _: Method) -> None:
        self._check_confirmed("the end of the channel")
        self.lost()
        self.client.open_channel(self.number)

    def _check_confirmed(self, what: str) -> None:
        """Unless they waited for the disk, for what was before them, when the broker closed."""
        if self._unconfirmed and self.world.knowledge.unsafe_ns < self._sent_ns:
            raise Broken(f"client {self.client.number}: {len(self._unconfirmed)} confirms did not come before {what}")
