"""The data pipeline at scale: a journal of N events by the real writer, and the cost of ingesting it.

    python benchmarks/pipeline.py journal DIR --events 10000000        # write the journal
    python benchmarks/pipeline.py ingest DIR --lake LAKE               # time the ingest of it

The traffic: twenty queues, runs of 1 to 64 messages of 100 to 400 octets, everything recorded. Of a hundred messages
about ninety are delivered and acked at once, five are requeued once before, two expire, two are evicted by a ring, one
is dead-lettered; a few of the last stay. Time is virtual: 5,000 messages per second.
"""

import argparse
import json
import random
import time
from functools import partial
from pathlib import Path

from pipeline_costs import ingest

from leveret.engine import ManualClock
from leveret.engine.events import EventKind
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.journal import Journal, JournalOptions, RecoveredMessage
from leveret.journal.format.heap import Declared
from leveret.journal.format.record import CONNECTION, CONSUMER, EXCHANGE, QUEUE, VHOST
from leveret.journal.recovery.recovered import FRESH

QUEUES = 20
MESSAGES_PER_SECOND = 5_000
#: What becomes of a message: (below this chance, fate).
FATES = ((0.90, "acked"), (0.95, "requeued"), (0.97, "expired"), (0.99, "evicted"), (1.0, "dead"))


def write_journal(path: Path, events: int, *, seed: int = 1, segment_size: int = 64 * 1024 * 1024) -> dict[str, int]:
    """Write about `events` events; returns their number by kind."""
    clock = ManualClock()
    journal = Journal.open(str(path), clock, JournalOptions(fsync="never", scope="all", segment_size=segment_size))
    writer = _Writer(journal, clock, random.Random(seed))
    while writer.count < events:
        writer.write_run(events)
    writer.close()
    return {kind: number for kind, number in writer.tally.items() if number}


class _Writer:
    """Writes runs of messages with all that happens to them; `tally` by kind, `count` of all events."""

    def __init__(self, journal: Journal, clock: ManualClock, rng: random.Random) -> None:
        self.journal, self.clock, self.rng = journal, clock, rng
        define = journal.objects.define
        vhost = define(VHOST, 0, "/")
        self.exchange = define(EXCHANGE, vhost, "orders")
        self.connection = define(CONNECTION, vhost, "127.0.0.1:50000 -> 127.0.0.1:5672")
        self.queues = [define(QUEUE, vhost, f"queue-{number}") for number in range(QUEUES)]
        self.consumers = [define(CONSUMER, vhost, f"consumer-{number}") for number in range(QUEUES)]
        for queue in self.queues:
            journal.objects.declared(queue, Declared(QUEUE, 1, "", b""))
        self.bodies = [rng.randbytes(rng.randrange(100, 400)) for _ in range(64)]
        self.contents = [NATIVE.join(encode_header(len(body), {"delivery_mode": 2}), body) for body in self.bodies]
        self.tally = dict.fromkeys((kind.value for kind in EventKind), 0)
        self.open_ids: dict[int, list[tuple[int, int, int]]] = {queue: [] for queue in self.queues}
        self.next_id, self.count = 1, 0

    def write_run(self, events: int) -> None:
        """One run, committed; some of the last of `events` events leave messages in their queues."""
        which = self.rng.randrange(QUEUES)
        queue, consumer = self.queues[which], self.consumers[which]
        size = self.rng.randrange(1, 65)
        ids = list(range(self.next_id, self.next_id + size))
        self.next_id += size
        messages = self.journal.messages
        lsn = messages.published(ids, self.exchange, b"key", NATIVE.columns(self.contents[:size]), queue_ids=[queue])
        messages.enqueued(queue, ids, lsn, [len(body) for body in self.bodies[:size]])
        self.tally["published"] += size
        self.tally["enqueued"] += size
        self.count += 2 * size
        self._write_fates(queue, consumer, self._draw_fates(queue, ids, lsn, is_near_end=self.count >= events - 5_000))
        self.clock.advance_ns(size * 1_000_000_000 // MESSAGES_PER_SECOND)
        self.journal.commit()
        if self.journal.backlog_bytes > 8 * 1024 * 1024:
            self.journal.wait(self.journal.next_lsn - 200_000, 60)

    def _draw_fates(self, queue: int, ids: list[int], lsn: int, *, is_near_end: bool) -> dict[str, list[int]]:
        """Fate -> ids; `open_ids` gets those that stay."""
        fates: dict[str, list[int]] = {word: [] for _, word in FATES}
        for place, id_ in enumerate(ids):
            chance = self.rng.random()
            if is_near_end and chance < 0.5:
                self.open_ids[queue].append((id_, lsn + place, len(self.bodies[place])))
            else:
                fates[next(word for below, word in FATES if chance < below)].append(id_)
        return fates

    def _write_fates(self, queue: int, consumer: int, fates: dict[str, list[int]]) -> None:
        happened = partial(self._happened, queue)
        self.clock.advance_ns(2_000_000)
        happened(EventKind.EXPIRED, fates["expired"], reason="expired")
        happened(EventKind.EVICTED, fates["evicted"])
        first = sorted(fates["acked"] + fates["requeued"] + fates["dead"])
        happened(EventKind.DELIVERED, first, durable=False, deliveries=1, consumer_id=consumer)
        self.clock.advance_ns(3_000_000)
        happened(EventKind.REQUEUED, fates["requeued"], deliveries=1, reason="nacked")
        happened(EventKind.DELIVERED, fates["requeued"], durable=False, deliveries=2, flags=32, consumer_id=consumer)
        happened(EventKind.DEAD_LETTERED, fates["dead"], reason="rejected", consumer_id=consumer)
        happened(EventKind.ACKED, sorted(fates["acked"] + fates["requeued"]), consumer_id=consumer)

    def _happened(self, queue: int, kind: EventKind, ids: list[int], **more: int | str | bool) -> None:
        if ids:
            self.journal.messages.happened(kind, queue, ids, conn_id=self.connection, **more)  # type: ignore[arg-type]
            self.tally[kind.value] += len(ids)
            self.count += len(ids)

    def close(self) -> None:
        """A checkpoint with the messages that stay, then the end."""
        checkpoints = self.journal.checkpoints
        checkpoints.begin()
        for queue, left in self.open_ids.items():
            messages = (RecoveredMessage(id_, lsn, octets, 0, FRESH) for id_, lsn, octets in left)
            for _ in checkpoints.snapshot(queue, messages):
                self.journal.commit()
        checkpoints.end()
        self.journal.close()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("journal")
    one.add_argument("directory", type=Path)
    one.add_argument("--events", type=int, default=10_000_000)
    one.add_argument("--seed", type=int, default=1)
    two = commands.add_parser("ingest")
    two.add_argument("directory", type=Path)
    two.add_argument("--lake", type=Path, required=True)
    two.add_argument("--cores", type=int, default=2)
    two.add_argument("--master", default="", help="of Spark, whose tasks then read the journal")
    options = parser.parse_args()
    if options.command == "journal":
        began = time.monotonic()
        tally = write_journal(options.directory, options.events, seed=options.seed)
        size = sum(path.stat().st_size for path in options.directory.glob("*.log"))
        print(json.dumps({"events": tally, "octets": size, "seconds": round(time.monotonic() - began, 1)}))
    else:
        print(json.dumps(ingest(options.directory, options.lake, options.cores, options.master)))


if __name__ == "__main__":
    main()
