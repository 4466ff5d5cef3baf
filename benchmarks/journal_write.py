"""The cost of the journal: on the broker's thread, on its own thread, and on the disk.

    python benchmarks/journal_write.py [--directory DIR] [--seconds 2] [--body 1024]

1. CPU of the caller's thread per record, by the length of the runs (published with content, enqueued, acked), and for
comparison the same records passed as tuples and encoded in bulk by another thread. 2. Appended, written, fsynced by a
real writer thread: turns of 100 messages (publish + enqueue + ack), by fsync mode;
   at most 8 MiB wait. Rates per second; CPU of the process in microseconds per record.
3. One message per turn, waiting for each commit: how long that takes. 4. Recovery: records per second of the journal
from part 2. The directory should be on a real disk: on a RAM disk fsync is free.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from leveret.engine.events import EventKind
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.journal import Declared, Journal, JournalOptions
from leveret.journal.format.block import BlockBuilder
from leveret.journal.format.heap import IS_DURABLE, content_prefix
from leveret.journal.format.record import CODE_OF, EXCHANGE, QUEUE, VHOST

BACKLOG_MAX = 8 * 1024 * 1024
RUN_LENGTHS = (1, 10, 100)
ACKED = CODE_OF[EventKind.ACKED]


class RealClock:
    """The system's time."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that only grow."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000


def content_of(size: int) -> bytes:
    """A content with a body of that size."""
    return NATIVE.join(encode_header(size, {"delivery_mode": 2}), bytes(size))


def microseconds_each(work: Callable[[int], object], count: int, seconds: float = 0.3) -> float:
    """CPU of this thread for `work`, divided by `count`."""
    done, start = 0, time.thread_time()
    while time.thread_time() - start < seconds:
        work(count)
        done += count
    return (time.thread_time() - start) / done * 1e6


def caller_costs(body_size: int) -> None:
    """Part 1."""
    content = content_of(body_size)
    print("CPU on the caller's thread, us a record (encoded in the turn)")
    print(f"{'run length':>12}{'published':>12}{'enqueued':>12}{'acked':>12}{'as tuples':>12}")
    for length in RUN_LENGTHS:
        ids: Sequence[int] = range(1, 1 + length)
        contents, sizes = [content] * length, [body_size] * length

        def published(n: int, contents: list[bytes] = contents, ids: Sequence[int] = ids) -> None:
            builder = BlockBuilder(1)
            for _ in range(20):
                builder.published(ids, content_prefix(b"key", (7,), 0, 0), NATIVE.columns(contents))

        def enqueued(n: int, sizes: list[int] = sizes, ids: Sequence[int] = ids) -> None:
            builder = BlockBuilder(2)
            for _ in range(20):
                builder.enqueued(7, ids, 1, sizes)

        def acked(n: int, ids: Sequence[int] = ids) -> None:
            builder = BlockBuilder(1)
            for _ in range(20):
                builder.run(ACKED, 7, ids)

        def tuples(n: int, ids: Sequence[int] = ids) -> None:
            waiting: list[tuple[int, int, Sequence[int]]] = []
            for _ in range(20):
                waiting.append((ACKED, 7, ids))
            builder = BlockBuilder(1)
            for kind, queue_id, run in waiting:
                builder.run(kind, queue_id, run)

        costs = [microseconds_each(work, 20 * length) for work in (published, enqueued, acked, tuples)]
        print(f"{length:>12}" + "".join(f"{cost:>12.3f}" for cost in costs))


def written(directory: str, mode: str, seconds: float, body_size: int) -> tuple[int, float]:
    """Part 2 for one mode; returns the number of records and the caller's CPU per record."""
    journal = Journal.open(directory, RealClock(), JournalOptions(fsync=mode))
    vhost = journal.objects.define(VHOST, 0, "/")
    exchange, queue = journal.objects.define(EXCHANGE, vhost, ""), journal.objects.define(QUEUE, vhost, "q")
    journal.objects.declared(queue, Declared(QUEUE, IS_DURABLE, "", b""))
    journal.wait(journal.commit())
    contents, sizes = [content_of(body_size)] * 100, [body_size] * 100
    before = journal.statistics()
    start, cpu, own = time.perf_counter(), time.process_time(), 0.0
    ids: Sequence[int] = ()
    end = 0
    while time.perf_counter() - start < seconds:
        turn = time.thread_time()
        if ids:
            journal.messages.happened(EventKind.ACKED, queue, ids)
        first = journal.next_message_id
        ids = range(first, first + 100)
        lsn = journal.messages.published(ids, exchange, b"q", NATIVE.columns(contents), queue_ids=(queue,))
        journal.messages.enqueued(queue, ids, lsn, sizes)
        end = journal.commit()
        own += time.thread_time() - turn
        if journal.backlog_bytes > BACKLOG_MAX:
            journal.wait(end - 3000)
    journal.wait(end)
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    after = journal.statistics()
    count = after.next_lsn - before.next_lsn
    size = after.written_bytes - before.written_bytes
    syncs = after.syncs - before.syncs
    journal.close()
    print(
        f"{mode:>12}{count / elapsed / 1e3:>12.0f}{count / elapsed / 3e3:>12.0f}{size / elapsed / 1e6:>12.0f}"
        f"{syncs:>12}{own / count * 1e6:>12.3f}{cpu / count * 1e6:>12.3f}"
    )
    return count, own / count * 1e6


def single(directory: str, seconds: float, body_size: int) -> None:
    """Part 3: one message per turn, each with a commit."""
    journal = Journal.open(directory, RealClock())
    vhost = journal.objects.define(VHOST, 0, "/")
    exchange, queue = journal.objects.define(EXCHANGE, vhost, ""), journal.objects.define(QUEUE, vhost, "q")
    contents, sizes = [content_of(body_size)], [body_size]
    journal.wait(journal.commit())
    own = 0.0
    latencies: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        began, turn = time.perf_counter(), time.thread_time()
        ids = (journal.next_message_id,)
        lsn = journal.messages.published(ids, exchange, b"q", NATIVE.columns(contents), queue_ids=(queue,))
        journal.messages.enqueued(queue, ids, lsn, sizes)
        journal.messages.happened(EventKind.ACKED, queue, ids)
        end = journal.commit()
        own += time.thread_time() - turn
        journal.wait(end)
        latencies.append(time.perf_counter() - began)
    journal.close()
    latencies.sort()
    middle, high = latencies[len(latencies) // 2] * 1e6, latencies[len(latencies) * 99 // 100] * 1e6
    print(
        f"\na message a commit: {len(latencies) / seconds:.0f} commits/s, p50 {middle:.0f} us, p99 {high:.0f} us; "
        f"caller {own / len(latencies) / 3 * 1e6:.2f} us a record"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; exit status 1 when the caller's cost is over the goal of 1.5 us a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=None, help="where to write (default: the system's temporary directory)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each fsync mode")
    parser.add_argument("--body", type=int, default=1024, help="octets of body")
    options = parser.parse_args(arguments)
    print(f"Python {sys.version.split()[0]}, bodies of {options.body} octets")
    caller_costs(options.body)
    print("\nwith the writer's thread: publish, enqueue, ack in turns of 100")
    heads = ("fsync", "k records/s", "k msg/s", "MB/s", "fsyncs", "caller us", "process us")
    print("".join(f"{head:>12}" for head in heads))
    worst = 0.0
    for mode in ("commit", "interval", "never"):
        directory = tempfile.mkdtemp(prefix="leveret-journal-", dir=options.directory)
        try:
            count, cost = written(directory, mode, options.seconds, options.body)
            worst = max(worst, cost)
            if mode == "commit":
                start = time.perf_counter()
                journal = Journal.open(directory, RealClock())
                elapsed = time.perf_counter() - start
                assert len(journal.recovered.queues[3]) == 100
                journal.close()
                recovery = f"\nrecovery without a checkpoint: {count / elapsed / 1e6:.2f} M records/s ({elapsed:.2f} s)"
        finally:
            shutil.rmtree(directory)
    directory = tempfile.mkdtemp(prefix="leveret-journal-", dir=options.directory)
    try:
        single(directory, options.seconds, options.body)
    finally:
        shutil.rmtree(directory)
    print(recovery)
    return 0 if worst < 1.5 else 1


if __name__ == "__main__":
    sys.exit(main())
