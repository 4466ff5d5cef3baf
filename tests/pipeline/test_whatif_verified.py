"""What-if under the settings that were in force gives what happened, whatever clients did, over starts of the broker.
Without Java.

WHATIF_STORIES=200 tells as many stories, some two seconds of CPU each, most of it for the queues in pieces.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from recorded_broker import RecordedBroker

from leveret.engine import Session
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.jobs.pieces import cut
from leveret.pipeline.jobs.tables import Tables
from leveret.pipeline.jobs.whatif import left_out, whatif
from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.progress import Progress

pytest.importorskip("duckdb", reason="DuckDB is not installed (make spark)")

#: Queues by their arguments, and those of them of which it counts what was one turn within a millisecond, which is not
#: recorded.
QUEUES: dict[str, dict[str, int | str | bool]] = {
    "plain": {},
    "short": {"x-message-ttl": 40},
    "retries": {"x-redelivery-delay": 30, "x-redelivery-delay-multiplier": 2, "x-max-delivery-attempts": 3},
    "limited": {"x-queue-type": "quorum", "x-delivery-limit": 2},
    "letters": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "plain", "x-message-ttl": 90},
    "ranked": {"x-max-priority": 3},
    "log": {"x-queue-type": "stream"},
    "newest": {"x-max-length": 7},
    "refusing": {"x-max-length": 5, "x-overflow": "reject-publish"},
    "crowded": {"x-max-length": 6, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "plain"},
    "octets": {"x-max-length-bytes": 7},
    "ring": {"x-ring-size": 4},
    "last": {"x-last-value-key": "k"},
    "kept": {"x-non-destructive": True},
    "alone": {"x-single-active-consumer": True},
    "leased": {"x-queue-type": "amps", "x-lease-period": 30},
    "tried": {
        "x-queue-type": "amps", "x-lease-period": 40, "x-max-deliveries": 3, "x-max-backlog-per-consumer": 5,
    },
    "given-back": {"x-queue-type": "amps", "x-lease-period": 60, "x-cancel-limit": 2},
    "strict": {"x-queue-type": "amps", "x-lease-period": 20, "x-leasing": "strict"},
}  # fmt: skip
BOUNDED = {"ranked", "newest", "refusing", "crowded", "octets", "ring"}
KEEPING = {"log", "kept"}
#: Those that are not simulated.
LEFT_OUT = KEEPING | {"last"}
STORIES = int(os.environ.get("WHATIF_STORIES", "3"))
STEPS = 400
#: Settings of other brokers: consumers have credit left for what a ring has replaced, or what has expired.
SMALL_RINGS = '[[address-setting]]\nmatch = "#"\ndefault-ring-size = 2\n'
SHORT_LIVES = '[[policy]]\nname = "p"\npattern = ".*"\ndefinition = { message-ttl = 15 }\n'
#: Those that found faults: messages were due to expire in the millisecond in which the broker stopped; transient
#: messages that consumers had were overdue at a start; a consumer whose lease had ended acknowledged a message that
#: another one had given back.
SEEDS = sorted({*range(STORIES), 68, 73, 108})


def table(arguments: dict[str, int | str | bool]) -> FieldTable:
    """As a client would send them."""
    letters = {bool: "t", int: "I", str: "S"}
    return {
        name: Field(letters[type(value)], value.encode() if isinstance(value, str) else value)
        for name, value in arguments.items()
    }


class Story:
    """What some clients did, at random: consumers with a prefetch, gets, every way to settle, lost connections."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self.chance = path, chance
        self.one = RecordedBroker(path)
        for name, arguments in QUEUES.items():
            self.one.declare(name, arguments=table(arguments))
            self.one.publish(name)  # for each queue to have an arrival, whatever chance does
        self.consumers: dict[Session, str] = {}

    def step(self) -> None:
        """Time goes on, and one thing happens."""
        one, chance = self.one, self.chance
        self._pass_time(chance.choice((0, 0, 1_000_000, 2_000_000, 25_000_000)))
        chance.choice(
            (self._publish, self._publish, self._consume, self._settle, self._settle, self._settle, self._end)
        )()
        one.settle()

    def start_anew(self) -> None:
        """The broker ends, and another one begins on what it wrote: no client is left."""
        self.one.tick()
        self.chance.choice((self.one.kill, self.one.close))()
        self.one.clock.advance_ns(self.chance.choice((0, 25_000_000, 200_000_000)))  # leases end meanwhile
        self.one = RecordedBroker(self.path, clock=self.one.clock)
        self.one.settle()  # the turn of the start ends, or later records would have its time
        self.consumers.clear()

    def _pass_time(self, duration_ns: int) -> None:
        """As a broker does, which acts when something is due."""
        one = self.one
        now_ns = one.clock.monotonic_ns()
        end_ns = now_ns + duration_ns
        while (due_ns := one.broker.next_deadline_ns()) is not None and now_ns < due_ns <= end_ns:
            one.clock.advance_ns(due_ns - now_ns)
            now_ns = due_ns
            one.broker.advance()
            one.settle()
        one.clock.advance_ns(end_ns - now_ns)
        one.broker.advance()

    def _publish(self) -> None:
        name = self.chance.choice(list(QUEUES))
        more: dict[str, Any] = {"priority": self.chance.randrange(5)} if name == "ranked" else {}
        if self.chance.random() < 0.2:
            more["expiration"] = b"%d" % self.chance.choice((1, 30, 500))
        self.one.publish(name, self.chance.randrange(1, 6), persistent=self.chance.random() < 0.8, **more)

    def _consume(self) -> None:
        if len(self.consumers) < 4:
            session = self.one.session.client.open_session()
            session.set_prefetch(self.chance.choice((1, 3, 10)), total=False)
            name = self.chance.choice(list(QUEUES))
            session.consume(self.one.vhost.queues.named(name), "c", no_ack=False, exclusive=False, arguments={})
            self.consumers[session] = name

    def _settle(self) -> None:
        for session in list(self.consumers):
            if session.unacked:
                tag = self.chance.choice(list(session.unacked))
                act = self.chance.random()
                if act < 0.5 or self.consumers[session] in KEEPING:
                    session.ack(tag, multiple=act < 0.1)
                else:
                    session.reject(tag, requeue=act < 0.85)

    def _end(self) -> None:
        if self.consumers and self.chance.random() < 0.3:
            session = self.chance.choice(list(self.consumers))
            del self.consumers[session]
            session.close(failed=self.chance.random() < 0.5)


@contextmanager
def recorded(seed: int, path: Path) -> Iterator[Tables]:
    """The lake of a story."""
    story = Story(path / "journal", random.Random(seed))
    for at in range(STEPS):
        if at and at % 150 == 0:
            story.start_anew()
        story.step()
    story.one.close()
    with opened(path) as tables:
        yield tables


@contextmanager
def opened(path: Path) -> Iterator[Tables]:
    """The lake of a journal."""
    from leveret.pipeline.engines.local import LocalEngine

    lake = str(path / "lake")
    ingest(None, IngestOptions(str(path / "journal"), lake, processes=1), Progress("ingest"))
    engine = LocalEngine(path, threads=1, memory_mb=256)
    try:
        yield open_tables(lake, engine)
    finally:
        engine.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_happened_happens_again(seed: int, tmp_path: Path) -> None:
    """Every count of every queue."""
    with recorded(seed, tmp_path) as tables:
        found = rows(tables.engine, whatif(tables, ""))
    assert {row["queue"] for row in found} == QUEUES.keys() - LEFT_OUT
    assert sum(row["was"] for row in found) > STEPS
    assert [row for row in found if abs(row["was"] - row["would_be"]) > row["margin"]] == []
    margins = {row["queue"]: row["margin"] for row in found if row["margin"]}
    assert "ranked" in margins
    assert sum(margin for queue, margin in margins.items() if queue not in BOUNDED) <= 10, "only near the starts"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_queue_in_pieces(seed: int, tmp_path: Path) -> None:
    """Spark cuts a large queue where it was empty and simulates the pieces in parallel: no count may depend on that."""
    with recorded(seed, tmp_path) as tables:
        for settings in ("", SMALL_RINGS, SHORT_LIVES):
            whole, in_pieces = (rows(tables.engine, whatif(tables, settings, least)) for least in (0, 1))
            assert in_pieces == whole, settings
        pieces = cut(tables.engine, (), 1).values()
        assert max(len(one.next_spans()) for one in pieces) > 2, "nothing was cut"


def test_queues_that_are_purged_and_deleted(tmp_path: Path) -> None:
    """Nothing of them is left in the simulation, either; nobody can say which message replaced which."""
    one = RecordedBroker(tmp_path / "journal")
    for name, arguments in (("q", {}), ("delayed", QUEUES["retries"]), ("last", QUEUES["last"])):
        one.declare(name, arguments=table(arguments))
        for _ in range(5):
            one.publish(name, headers={"k": "one"})
            one.clock.advance_ns(2_000_000)
    for name in ("q", "delayed"):
        session = one.session.client.open_session()
        session.get(one.vhost.queues.named(name), no_ack=False)
        tag, *_ = session.get(one.vhost.queues.named(name), no_ack=False) or (0,)
        session.reject(tag, requeue=True)
        one.settle()
        one.vhost.queues.named(name).purge()
        one.settle()
        one.publish(name, 2)
        one.vhost.queues.delete(name, one.client)
        one.settle()
        one.declare(name, arguments=table(QUEUES["plain"]))
        one.publish(name, 3)
        one.get(name, 2)
    one.close()
    with opened(tmp_path) as tables:
        found = rows(tables.engine, whatif(tables, ""))
        assert "last-value queues: last (/)" in left_out(tables)
        assert left_out(tables, "queue IN ('q')") == "", "nobody asked for the other ones"
    assert {row["queue"] for row in found} == {"q", "delayed"}
    assert [row for row in found if abs(row["was"] - row["would_be"]) > row["margin"]] == []
    assert [row["was"] for row in found if row["what"] == "open"] == [1, 1]
