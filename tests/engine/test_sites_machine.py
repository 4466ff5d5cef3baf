"""Any program of publishers, consumers and sites against the book of owners, see tests/support/owners_book.py."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from effort import examples
from owners_book import Owned, OwnersBook, Past, SitedQueue
from simulated_files import SimulatedFiles

from leveret.engine import Consumer, Event, Session
from leveret.engine.leases.state import leases_of
from leveret.engine.options import BrokerOptions
from leveret.expressions.language import AMPS, compiled
from leveret.settings.leases.element_values import integer
from leveret.settings.leases.leased_settings import BY_ARGUMENT
from leveret.testing.harness import Harness

SITES = ("n1", "n2", "n3")
#: Of a queue of which few messages may be leased where they are; its least value is 1000.
DEPTH = 4
#: What queues may be like.
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"x_max_backlog_total": 2},
    {"x_fairness": "round-robin", "x_lease_period": 40},
    {"x_priority_expr": "rank", "x_max_backlog_total": 3},
    {"x_replication": "group", "x_initial_owner": "n2", "x_queue_domain": "X"},
    {"x_semantics": "at-most-once", "x_max_backlog_total": 2},
    {"x_max_deliveries": 3, "x_fairness": "fast"},
    {"x_barrier_expr": "rank = 0", "x_max_backlog_total": 3},
    {"x_target_depth": DEPTH},
)
FILTERS = (None, "a = 1", "a = 2")
#: Value of the header a -> key of the filter that takes it.
KEYS = {a: compiled(f"a = {a}", AMPS).key for a in (1, 2)}
ACTS = (
    "publish",
    "publish",
    "publish",
    "delay",
    "consume",
    "cancel",
    "ack",
    "ack",
    "nack",
    "get",
    "went",
    "came",
    "wait",
    "takeover",
    "reload",
)
WAITS = (1, 20, 49, 50, 120, 3100)
#: For which messages are delayed.
DELAYS = (1, 40, 300)
#: What passes before a step, in ms.
PAUSES = (0, 0, 0.3, 0.8)
#: Values of transfer-after.
AFTER_MS = (50, 0, 50, 400)


class World(Harness):
    """A broker at n1, the clients of three sites, and what its events say."""

    checks = True

    def __init__(
        self, options: dict[str, Any], files: SimulatedFiles | None = None, *, begins_plain: bool = False
    ) -> None:
        self.queue_options = {"x_replication": "distributed", "x_max_backlog_per_consumer": 3, **options}
        self.number = 0
        self.past: Past = {}
        self.ranks: dict[int, int] = {}
        self.marks: dict[int, int] = {}  # message -> its header a
        if files is not None and begins_plain:
            self._have_messages(files)
        super().__init__(kind="amps", site="n1", groups=dict.fromkeys(SITES, ""), journal=files)

    def _have_messages(self, files: SimulatedFiles) -> None:
        """The queue is from before the cluster, and so are messages in it."""
        plain = Harness(kind="amps", journal=files)
        queue = plain.queue(**self.queue_options)
        for number in range(6):
            a = 1 + number % 2
            plain.publish("x", key=queue.name, headers={"a": a, "rank": number})
        for message in plain.named(queue).messages():
            headers = message.envelope.headers(message.content)
            self.marks[message.id], self.ranks[message.id] = int(headers["a"].value), int(headers["rank"].value)
        plain.checkpoint()
        plain.close()
        self.past = {(queue.name, id_): [Owned("", is_agreed=True)] for id_ in self.marks}

    def begin(self) -> None:
        super().begin()
        self.readers: list[tuple[Session, Consumer]] = []
        self.at = {site: self.connect(f"publisher at {site}", site=site) for site in SITES}
        for site in SITES:
            self.queue(client=self.at[site].client, **self.queue_options)
        self.name = next(iter(self.vhost.queues))
        self.leases = leases_of(self.named(self.name))
        self.broker.context.listeners.append(self._hear)
        options = self.queue_options
        rules = SitedQueue(
            "q",
            frozenset(SITES),
            options.get("x_initial_owner", ""),
            options.get("x_max_backlog_total"),
            is_at_most_once="x_semantics" in options,
            rank_of=self.ranks.__getitem__ if "x_priority_expr" in options else None,
            is_barrier=(lambda id_: self.ranks[id_] == 0) if "x_barrier_expr" in options else None,
            depth=options.get("x_target_depth"),
        )
        self.book = OwnersBook(
            {self.name: rules},
            self.clock.monotonic_ns,
            lambda id_, body: body.decode(),
            lambda consumer, id_: self._takes(consumer, id_),
            self.past,
            is_strict=True,
        )
        self.book.attach(self.broker, lambda queue: [one.id for one in queue.messages()])
        self.book.served()

    @property
    def ids(self) -> set[int]:
        """The messages of the queue."""
        return {one.id for one in self.named(self.name).messages()} | self.leases.book.leases.by_id.keys()

    def take_over(self, site: str, *, is_orderly: bool) -> None:
        """Another node leads: no lease and no consumer is left; of owners the book knows."""
        left, self._options["site"] = self.ids, site
        if is_orderly:
            self.restart()
        else:
            self.kill()
        assert self.ids == left and not self.leases.book.leases.by_id

    # -- acts ---------------------------------------------------------------------------------------------------------

    def act(self, what: str, one: int, other: int) -> None:
        """One step."""
        site = SITES[one % 3]
        self.advance(PAUSES[one % len(PAUSES)])
        if what == "publish":
            self.publish(*[site] * (1 + other % 3), by=self.at[site], headers={"a": 1 + other % 2, "rank": other % 5})
        elif what == "delay":
            due_ms = self.clock.wall_ms() + DELAYS[other % len(DELAYS)]
            headers = {"a": 1 + other % 2, "rank": other % 5, "_AMQ_SCHED_DELIVERY": due_ms}
            self.publish(*[site] * (1 + one % 2), by=self.at[site], headers=headers)
        elif what == "consume" and len(self.readers) < 6:
            filter_ = FILTERS[other % 3]
            arguments = {} if filter_ is None else {"x_filter": filter_}
            session = self.connect(site=site)
            self.number += 1
            consumer = self.consume("q", f"c{self.number}", by=session, prefetch=1 + other % 3, **arguments)
            self.readers.append((session, consumer))
        elif what == "cancel" and self.readers:
            session, consumer = self.readers.pop(one % len(self.readers))
            if other % 2:
                session.client.close(failed=True)
            else:
                session.cancel(consumer.tag)
        elif what in ("ack", "nack") and self.readers:
            session = self.readers[one % len(self.readers)][0]
            if session.unacked:
                tag = list(session.unacked)[other % len(session.unacked)]
                if what == "ack":
                    session.ack(tag)
                else:
                    session.reject(tag, requeue=True)
        elif what == "get":
            got = self.get("q", by=self.at[site], no_ack=False)
            if got is not None and other % 2:
                self.at[site].ack(got[0])
        elif what == "went" and site != "n1":
            self.broker.sites.went(site)
        elif what == "came":
            self.broker.sites.came(site)
        elif what == "takeover" and self.journal is not None:
            self.take_over(site, is_orderly=bool(other % 2))
        elif what == "reload":
            options = self._options["options"] = BrokerOptions(transfer_after_ms=AFTER_MS[other % len(AFTER_MS)])
            self.broker.reloading.replace_settings(self.broker.context.settings, options)
        elif what == "wait":
            self.advance(WAITS[other % len(WAITS)])
        self.end_turn()
        lsn = 0 if self.journal is None else self.journal.next_lsn
        self.book.turn_ended(lsn, lsn)

    def _hear(self, event: Event) -> None:
        if event.kind.value == "enqueued":
            self.marks.update(dict.fromkeys(event.messages, self.next_mark))
            self.ranks.update(dict.fromkeys(event.messages, self.next_rank))

    next_mark = next_rank = 0

    def publish(self, *bodies: bytes | str, **how: Any) -> list[bytes]:
        self.next_mark, self.next_rank = how["headers"]["a"], how["headers"]["rank"]
        return super().publish(*bodies, **how)

    def _takes(self, consumer: Consumer, id_: int) -> bool:
        if consumer.filter is None:
            return True
        return consumer.filter.key == KEYS[self.marks[id_]]

    def rest(self) -> None:
        """After the time that a message waits for its own site, what any consumer could take is taken."""
        self.advance(self.broker.sites.transfer_after_ns / 1e6 + 1)
        for _ in range(3):
            self.end_turn()
        self.book.check()


@pytest.mark.parametrize("seed", range(examples(25)))
def test_owners_keep_their_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all kinds of queues that have owners."""
    depth = BY_ARGUMENT["x-target-depth"]
    monkeypatch.setitem(BY_ARGUMENT, depth.argument, replace(depth, kind=replace(depth.kind, read=integer(1))))
    chance = Random(seed)
    files = SimulatedFiles() if seed % 3 == 0 else None
    options = OPTIONS[seed % len(OPTIONS)]
    has_scope = "x_replication" in options  # a queue of before the cluster is another one
    world = World(options, files, begins_plain=seed % 2 == 0 and not has_scope)
    for number in range(60):
        world.act(chance.choice(ACTS), chance.randrange(12), chance.randrange(12))
        if number % 10 == 9:
            world.rest()
    world.rest()
