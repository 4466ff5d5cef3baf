"""A consumer that settles its deliveries, now and then in unusual ways, in transactions or not."""

from __future__ import annotations

from collections import Counter
from typing import Any

from leveret.interop.wire.raw_codec import Content, Method

from ..ledger import HEADER_START, KEY_SIZE, Broken, QueueName
from ..more_kinds import FIRST
from ..selectors import TAKES, arguments_of, of_in
from ..sites import called
from .channel import Channel
from .client import BUSY, ENDING, Client
from .wire import settle, word_of

ACK, REJECT, NACK = 80, 90, 120
MULTIPLE, REQUEUE = 1, 2
MS = 1_000_000

Held = tuple[QueueName, int]


class Worker(Channel):
    """`options`: queue, prefetch, no_ack, transactions, takes (deliveries as they come) or gets (asks for each); dozes:
    it may not settle in time; rejects: some for good, whatever the queue.
    """

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self.queue = client.world.plan.queue(options["queue"])
        self.consumed = self.queue.name
        self._called = called(self.queue)
        self.drains = () if self.queue.features.get("keeps") else (self.queue.name,)
        self.no_ack = bool(options.get("no_ack")) and not self.queue.features.get("stream")  # which has no such thing
        self._timeout_ms: int = self.queue.features.get("timeout_ms", 0)
        self._has_transactions = bool(options.get("transactions")) and not self._timeout_ms
        self._dozes_until_ns = 0
        self._held: dict[int, Held] = {}  # delivery tag -> what
        self._tag = 0
        self._newest: dict[int, int] = {}  # publisher -> number of its newest message that came for the first time
        self._is_ordered = not ({"priority_max", "last_value_keys", "keeps", "unordered"} & self.queue.features.keys())
        self._settled: dict[int, Held] = {}  # in this transaction
        self._expects = ""  # the tag of the consumer for which deliveries may come
        self._is_recovering = False  # what comes meanwhile comes back
        self._consumer: str | None = None  # its tag, once the broker has said so
        self._consumers = 0  # so far
        self._prefetch = 0  # of the consumer
        self._is_paused = False  # by channel.flow
        self._selector: str = options.get("selector", "")
        self._asks = "asks" in options and self.queue.durable and not self._has_transactions
        self._asks = self._asks and not {"keeps", "leased"} & self.queue.features.keys()

    @property
    def has_consumer(self) -> bool:
        """Whether its consumer is there, as far as it knows."""
        return self._consumer is not None

    # -- life ---------------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        if self.no_ack:
            self.world.books.settlements.automatic.add((self.client.product, self.number))
        self.declare(self.queue, self._declared)

    def _declared(self, _: Method) -> None:
        if self._has_transactions:
            self.ask("tx.select", "tx.select-ok", self._limit)
        else:
            self._limit(_)

    def _limit(self, _: Method) -> None:
        prefetch = self.options.get("prefetch")
        self._prefetch = prefetch if prefetch is not None else self.chance.choice((1, 5, 50, 0))
        if self.queue.features.get("stream"):
            self._prefetch = self._prefetch or 100
        is_shared = "shared" in self.options and not self.queue.features.keys() & {"quorum", "stream"}
        self.ask("basic.qos", "basic.qos-ok", self._consume, prefetch_count=self._prefetch, global_=is_shared)

    def _consume(self, _: Method) -> None:
        self._consumers += 1
        tag = f"worker-{self.client.number}-{self._consumers}"
        arguments: dict[str, Any] = dict(arguments_of(self._selector))
        if self.queue.features.get("stream"):  # which refuses priorities
            arguments["x-stream-offset"] = self.chance.choice(("first", "last", "next", ("l", 5)))
        elif (priority := self.options.get("priority")) is not None:
            arguments["x-priority"] = ("I", priority)
        self.ask(
            "basic.consume", "basic.consume-ok", self._consuming,
            queue=self._called, consumer_tag=tag, no_ack=self.no_ack, arguments=arguments,
        )  # fmt: skip
        self._expects = tag

    def _consuming(self, method: Method) -> None:
        self._consumer = method["consumer_tag"]

    def lost(self) -> None:
        self._held.clear()
        self._settled.clear()
        self._newest.clear()
        self._tag = 0
        self._consumer = None
        self._is_recovering = False
        self._is_paused = False

    # -- deliveries ---------------------------------------------------------------------------------------------------

    def delivered(self, consumer: str, tag: int, redelivered: bool, body: bytes) -> None:
        if consumer != self._expects:
            raise Broken(f"client {self.client.number} got a delivery for {consumer}, which it ended")
        self._arrived(consumer, tag, redelivered, body)

    def _arrived(self, consumer: str | None, tag: int, redelivered: bool, body: bytes) -> None:
        self._tag += 1
        if tag != self._tag:
            raise Broken(f"client {self.client.number} got delivery tag {tag} after {self._tag - 1}")
        publisher, number = self.world.knowledge.check(body)
        books = self.world.books
        held = books.deliveries.arrived(self.client.product, self.number, consumer, tag, redelivered, body, self.client)
        if self._selector and not TAKES[self._selector](of_in(self.client.header)):
            raise Broken(f"{self.queue.name}: {held[1]} came to a consumer that takes {self._selector}")
        if "first_key" in self.queue.features and consumer and "rebalances" not in self.queue.features:
            begins = FIRST in Content(self.client.header[HEADER_START:], b"").headers
            is_over = held in books.groups.again and not redelivered
            is_said_again = begins and redelivered
            if begins != (held in books.groups.first) and not is_over and not is_said_again:
                raise Broken(f"{self.queue.name}: {held[1]} says first={begins} of its group")
        if (
            not redelivered
            and self._is_ordered
            and books.deliveries.is_certain
            and body[-KEY_SIZE:] not in books.routing.again
        ):
            if number <= self._newest.get(publisher, 0):
                raise Broken(f"{self.queue.name}: message {number} of {publisher} came after {self._newest[publisher]}")
            self._newest[publisher] = number
        if self._is_paused:
            raise Broken(f"client {self.client.number} got a delivery, and channel.flow is off")
        if self._prefetch and self._consumers == 1 and consumer and not self.no_ack and not self._is_recovering:
            self._check_prefetch()
        if not self.no_ack and not self._is_recovering:
            self._held[tag] = held
            if self.client.mood is ENDING or (self._timeout_ms and self.client.mood is not BUSY):
                self.finish()  # in a pause it would come again and again

    def _check_prefetch(self) -> None:
        if type(self) is not Worker or any(question.channel == self.number for question in self.client.waiting):
            return  # leases have limits of their own; a commit may be done already
        if (count := len(self._held) + len(self._settled)) >= self._prefetch:
            raise Broken(f"client {self.client.number} has {count} of {self._prefetch}, and gets one more")

    def held(self) -> Counter[QueueName]:
        counted = Counter(name for name, _ in self._held.values())
        counted.update(name for name, _ in self._settled.values())
        return counted

    def credit(self) -> str | None:
        if self._consumer is None or self._is_paused or self.queue.features.keys() & {"single_active", "groups"}:
            return None
        has_room = self.no_ack or not self._prefetch or len(self._held) + len(self._settled) < self._prefetch
        return self.queue.name if has_room else None

    def takes(self, id_: int) -> bool:
        return not self._selector or TAKES[self._selector](of_in(self.world.books.routing.headers[id_]))

    # -- settling -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Acknowledge everything."""
        if self._is_paused and not self.client.waiting:
            self._flow(is_on=True)
        if any(question.channel == self.number for question in self.client.waiting):
            return
        if self._held:
            self._settle([settle(ACK, self.number, max(self._held), MULTIPLE)], list(self._held))
        if self._settled:
            self._commit()

    def _settle(self, frames: list[bytes], tags: list[int]) -> None:
        self.world.knowledge.operations += len(frames)
        settled = {tag: self._held.pop(tag) for tag in tags}
        for at, held in enumerate(settled.values()):
            self.world.books.settlements.says(held, word_of(frames[min(at, len(frames) - 1)]))
        if "leased" in self.queue.features:  # said of what comes back, too: an acknowledgement may come later
            for name, id_ in settled.values():
                self.world.books.leases.acks(name, id_, self.client.product, self.number)
        if self._has_transactions:
            self._settled |= settled
        self.send(b"".join(frames))

    def _commit(self) -> None:
        settled = self._settled
        self.ask("tx.commit", "tx.commit-ok", lambda _: self._committed(settled))

    def _roll_back(self) -> None:
        self.ask("tx.rollback", "tx.rollback-ok", self._rolled_back)

    def _rolled_back(self, _: Method) -> None:
        """What it had acknowledged is unacknowledged again."""
        self.world.knowledge.happened["rollback of acknowledgements"] += 1
        for held in self._settled.values():
            self.world.books.settlements.takes_back(held)
        self._held |= self._settled
        self._settled = {}

    def _committed(self, settled: dict[int, Held]) -> None:
        """What was answered never comes back: it is gone wherever the broker may start again."""
        self._settled = {}
        self.world.knowledge.happened["commit of acknowledgements"] += 1
        if {"keeps", "leased"} & self.queue.features.keys():  # others may have what was acknowledged
            return
        if (left := self.world.ledger.first_left(settled.values())) is not None:
            raise Broken(f"{left[0]}: the acknowledgement of {left[1]} was committed before it was durable")

    def closed(self, code: int, text: str) -> None:
        if code != 406 or "timed out" not in text or not self._timeout_ms:
            super().closed(code, text)
        self.world.knowledge.happened["channel closed: timed out"] += 1
        self.world.books.deliveries.closed(self.client.product, self.number)
        self.world.books.timeouts.closed(self.client.product, self.number, self._timeout_ms)

    def act(self) -> None:
        if self._consumer is None or self._is_dozing():
            return
        if self.options.get("flows") and not self.client.waiting and self.chance.random() < 0.1:
            self._flow(is_on=self._is_paused)
        elif self._asks and self._held and not self.client.waiting and self.chance.random() < 0.05:
            self._acknowledge_and_ask()
        elif self.chance.random() < (0.05 if self.options.get("restless") else 0.004):
            self._do_something_else()
        else:
            self._act_on_held()

    def _is_dozing(self) -> bool:
        now_ns = self.world.schedule.now_ns
        if self.options.get("dozes") and now_ns >= self._dozes_until_ns and self.chance.random() < 0.05:
            self._dozes_until_ns = now_ns + int(self._timeout_ms * MS * self.chance.choice((0.5, 1.1, 3)))
        return now_ns < self._dozes_until_ns

    def _acknowledge_and_ask(self) -> None:
        """Something that is answered when it is safe, and so is what was before it."""
        held = list(self._held.values())
        self._settle([settle(ACK, self.number, max(self._held), MULTIPLE)], list(self._held))
        self.declare(self.queue, lambda _: self.world.answers.after(held))

    def _act_on_held(self) -> None:
        chance, held = self.chance, self._held
        if self.client.waiting and (self._has_transactions or self._is_recovering):
            return
        luck = chance.random()
        if self._settled and luck < 0.3:
            if luck < 0.25:
                self._commit()
            else:
                self._roll_back()
            return
        if not held:
            return
        if luck < 0.3:
            tags = list(held)
            tag = tags[chance.randrange(len(tags))]
            self._settle([settle(ACK, self.number, tag, MULTIPLE)], [one for one in tags if one <= tag])
            return
        tags = chance.sample(list(held), min(len(held), chance.randint(1, 30)))
        acknowledges = self._has_transactions or self.queue.features.get("stream")
        self._settle(
            [settle(ACK, self.number, tag, 0) if acknowledges else self._settlement(tag) for tag in tags], tags
        )

    def _settlement(self, tag: int) -> bytes:
        """Of one delivery, in some way. What is rejected for good is gone where nobody takes dead letters."""
        chance, number = self.chance, self.number
        if "rejects" in self.options and chance.random() < 0.1:
            return settle(chance.choice((NACK, REJECT)), number, tag, 0)
        what = chance.random()
        if what < 0.85:
            return settle(ACK, number, tag, 0)
        if what < 0.92:
            return settle(NACK, number, tag, REQUEUE)
        if what < 0.97:
            return settle(REJECT, number, tag, 1)
        if not self.queue.features.get("rejects"):
            return settle(ACK, number, tag, 0)
        return settle(*((NACK, number, tag, 0) if what < 0.985 else (REJECT, number, tag, 0)))

    def _do_something_else(self) -> None:
        chance = self.chance
        what = chance.random()
        if self.client.waiting or self._has_transactions or self.queue.features.get("stream"):
            return
        if what < 0.4:
            self._recover()
        elif what < 0.8:
            consumer, self._consumer = self._consumer, None
            self.ask("basic.cancel", "basic.cancel-ok", self._ended, consumer_tag=consumer)
        elif self._held:
            tag = max(self._held)
            self._settle(
                [settle(NACK, self.number, tag, MULTIPLE | REQUEUE)], [one for one in self._held if one <= tag]
            )

    def _flow(self, *, is_on: bool) -> None:
        """Deliveries stop when the broker has said so, and go on as soon as it hears of it."""

        def answered(_: Method) -> None:
            self._is_paused = not is_on

        if is_on:
            self._is_paused = False
        self.ask("channel.flow", "channel.flow-ok", answered, active=is_on)

    def _recover(self) -> None:
        """All that is out comes back, also what is still on its way to this client."""
        self._held.clear()
        self._is_recovering = True
        self.ask("basic.recover", "basic.recover-ok", self._recovered, requeue=True)

    def _recovered(self, _: Method) -> None:
        self._is_recovering = False

    def _ended(self, _: Method) -> None:
        self._expects = ""
        self._limit(_)
