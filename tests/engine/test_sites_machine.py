"""Any program of publishers, consumers and sites against what owners promise: own site first, and nothing waits long.

After each step: a message has one lease at most; a consumer gets what its site owns; a transfer is to a site that has
nothing of its own for that consumer, away from one where no consumer could take the message, and not before its time;
backlogs by site are kept. After a rest no message is ready that any consumer could take. Source: cluster page 12.
"""

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
LONG_AGO = -1_000_000_000


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
        self.ready: dict[int, int] = {}  # message -> when it came (ns)
        self.marks: dict[int, int] = {}  # message -> its header a
        self.owners: dict[int, str] = {}
        self.unknown: set[int] = set()  # messages that belong to whichever site leads
        self.after_ms = 50
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
        self.unknown = {*self.marks}
        self.owners = dict.fromkeys(self.marks, "n1")
        self.ready = dict.fromkeys(self.marks, LONG_AGO)

    def begin(self) -> None:
        super().begin()
        self.readers: list[tuple[Session, Consumer]] = []
        self.moved: set[int] = set()  # transferred, and not delivered yet
        self.delayed = {one.id for queue in self.vhost.queues.values() for one in queue.scheduled}
        self.at = {site: self.connect(f"publisher at {site}", site=site) for site in SITES}
        for site in SITES:
            self.queue(client=self.at[site].client, **self.queue_options)
        self.name = next(iter(self.vhost.queues))
        self.leases = leases_of(self.named(self.name))
        self.broker.context.listeners.append(self._hear)
        for id_ in self.unknown:
            self.past[self.name, id_] = [Owned(self.broker.sites.own, is_agreed=True)]
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

    def take_over(self, site: str, *, is_orderly: bool) -> None:
        """Another node leads: no lease and no consumer is left, and the owners are those that were."""
        assert self.leases.owners is not None
        delayed, left = self.delayed, {*self.ready, *self.delayed, *self.leases.book.leases.by_id}
        self._options["site"] = site
        if is_orderly:
            self.restart()
        else:
            self.kill()
        self.owners.update(dict.fromkeys(self.unknown, site))
        assert self.leases.owners is not None
        assert {one.id for one in self.named(self.name).messages()} == left
        assert {id_: self.leases.owners.site_of(id_) for id_ in left} == {id_: self.owners[id_] for id_ in left}
        self.ready = dict.fromkeys(left - self.delayed, LONG_AGO)
        assert self.delayed <= delayed

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
            self.set_transfer_after(AFTER_MS[other % len(AFTER_MS)])
        elif what == "wait":
            self.advance(WAITS[other % len(WAITS)])
        self.end_turn()
        lsn = 0 if self.journal is None else self.journal.next_lsn
        self.book.turn_ended(lsn, lsn)

    def set_transfer_after(self, after_ms: int) -> None:
        """The operator's files have another transfer-after. What has waited long enough may go in any case."""
        since_ns = self.clock.monotonic_ns() - self.after_ms * 1_000_000
        self.ready = {id_: LONG_AGO if came_ns <= since_ns else came_ns for id_, came_ns in self.ready.items()}
        self.after_ms = after_ms
        options = self._options["options"] = BrokerOptions(transfer_after_ms=after_ms)
        self.broker.reloading.replace_settings(self.broker.context.settings, options)

    @property
    def is_plain(self) -> bool:
        """Whether all messages may be leased; else the book knows which."""
        return not {"x_barrier_expr", "x_target_depth"} & self.queue_options.keys()

    # -- promises -----------------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        kind, ids = event.kind.value, list(event.messages)
        now_ns = self.clock.monotonic_ns()
        if kind == "enqueued":
            for id_ in ids:
                self.ready[id_] = now_ns
                assert self.leases.owners is not None
                self.owners[id_] = self.leases.owners.site_of(id_)
                self.marks[id_] = self.next_mark
                self.ranks[id_] = self.next_rank
        elif kind == "transferred":
            self._is_right(event, ids, now_ns)
        elif kind == "delivered":
            detail = event.detail or {}
            site = detail["session"].client.site  # type: ignore[attr-defined]
            if "x_barrier_expr" in self.queue_options and self.ranks[ids[0]] == 0:
                return  # of barriers the book knows
            for id_ in ids:
                assert id_ in self.ready, f"{id_} is leased twice"
                assert self.owners[id_] == site, f"{id_} of {self.owners[id_]} went to {site}"
                del self.ready[id_]
            taker = next((one for _, one in self.readers if one.tag == detail.get("consumer")), None)
            if taker is not None and not self.moved.isdisjoint(ids):
                own = [id_ for id_ in self.ready if self.owners[id_] == site and self._takes(taker, id_)]
                assert not own or not self.is_plain, f"{taker.tag} gets {ids} of others before {own}"
            self.moved.clear()
        elif kind == "scheduled":
            self.delayed.update(ids)
            for id_ in ids:
                del self.ready[id_]
        elif kind == "due":
            self.delayed.difference_update(ids)
            self.ready.update(dict.fromkeys(ids, now_ns))
        elif kind in ("lease_ended", "requeued"):
            self.ready.update(dict.fromkeys(ids, LONG_AGO))
        elif kind in ("acked", "expired", "dead_lettered", "killed", "purged", "deleted"):
            for id_ in ids:
                self.ready.pop(id_, None)

    next_mark = next_rank = 0

    def publish(self, *bodies: bytes | str, **how: Any) -> list[bytes]:
        self.next_mark, self.next_rank = how["headers"]["a"], how["headers"]["rank"]
        return super().publish(*bodies, **how)

    def _takes(self, consumer: Consumer, id_: int) -> bool:
        if consumer.filter is None:
            return True
        return consumer.filter.key == KEYS[self.marks[id_]]

    def _could(self, site: str, id_: int) -> list[Consumer]:
        """The consumers at a site that could take a message now."""
        if not self.is_plain or site not in self.broker.sites.groups or self.leases.room(site) <= 0:
            return []
        return [
            one for one in self.named(self.name).consumers
            if one.client.site == site and one.credit() > 0 and self._takes(one, id_)
        ]  # fmt: skip

    def _is_right(self, event: Event, ids: list[int], now_ns: int) -> None:
        source, target = (event.detail or {})["from"], str((event.detail or {})["to"])
        served = {one.client.site for one in self.named(self.name).consumers}
        for id_ in ids:
            assert self.owners[id_] == source and source != target and id_ in self.ready
            assert not self._could(str(source), id_), f"{id_} leaves {source}, where it could be taken"
            waited = now_ns - self.ready[id_] >= self.after_ms * 1_000_000
            assert waited or source not in served or self.broker.sites.is_lost(str(source)), f"{id_} goes too early"
            self.owners[id_] = target
            self.moved.add(id_)
            self.unknown.discard(id_)

    def check(self) -> None:
        """Between two steps."""
        limit = self.leases.rules.settings.max_backlog
        if limit is not None:
            for site in SITES:
                assert self.leases.room(site) >= 0, f"{site} has more than {limit}"

    def rest(self) -> None:
        """After the time that a message waits for its own site, what any consumer could take is taken."""
        self.advance(self.after_ms + 1)
        for _ in range(3):
            self.end_turn()
        since_ns = self.clock.monotonic_ns() - self.after_ms * 1_000_000  # one that was delayed may wait
        for id_ in (one for one, ready_ns in self.ready.items() if ready_ns < since_ns):
            able = [one.tag for site in SITES for one in self._could(site, id_)]
            assert not able, f"{id_} of {self.owners[id_]} is ready, and {able} could take it"
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
        world.check()
        if number % 10 == 9:
            world.rest()
    world.rest()
