"""What the log of leased queues costs: to keep it in memory, to replay it, to build a queue from it.

    python benchmarks/topic_log.py [MESSAGES]

Engine and journal in one process, without sockets, real files; rates are of CPU seconds of the process. The first line
is the cost of the log in memory, as the rate of publishing to a leased queue with it, and without. The others read a
journal of so many messages of 1 KiB.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable

from leveret.configured.typed_arguments import fields_of
from leveret.engine import NATIVE, Broker, Envelope, ManualClock, encode_header, publish_by_name
from leveret.engine.leases.state import leases_of
from leveret.engine.stores.topic_log import MemoryLog
from leveret.journal import Journal
from leveret.journal.recording.pager import JournalPager
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore
from leveret.serving import collector

RUN = 50
ARGUMENTS = {"x-queue-type": "amps", "x-underlying-topic": "t", "x-default-publish-target": "t"}


def publish(broker: Broker, count: int, size: int, after: Callable[[], object] = lambda: None) -> float:
    """Runs of `RUN` to topic t. Returns messages a second."""
    vhost = broker.virtual_hosts["/"]
    content = NATIVE.join(encode_header(size), bytes(size))
    envelope = Envelope("", "t")
    begin = time.process_time()
    for _ in range(count // RUN):
        publish_by_name(vhost.context, envelope, [content] * RUN)
        broker.end_turn()
        after()
    return count / (time.process_time() - begin)


def declare(broker: Broker, name: str, **arguments: str) -> None:
    """A leased queue of topic t."""
    table = fields_of({**ARGUMENTS, **{key.replace("_", "-"): value for key, value in arguments.items()}})
    broker.virtual_hosts["/"].queues.declare(name, client=None, durable=True, arguments=table)


def in_memory(count: int) -> float:
    """Rate of publishing small messages to a leased queue without a journal."""
    broker = Broker(ManualClock())
    declare(broker, "q")
    return publish(broker, count, 100)


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    collector.set_up()  # as a broker has it
    note = MemoryLog.note
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3):
        for is_kept, rate in rates.items():
            MemoryLog.note = note if is_kept else (lambda *call: None)  # type: ignore[method-assign]
            rate.append(in_memory(count))
    MemoryLog.note = note  # type: ignore[method-assign]
    print(f"publish, in memory: {max(rates[True]):,.0f}/s with the log, {max(rates[False]):,.0f}/s without")

    path = tempfile.mkdtemp()
    try:
        clock = ManualClock()
        journal = Journal.open(f"{path}/data", clock)
        broker = Broker(clock)
        recorder = Recorder(broker, journal)
        broker.context.storage.pager = JournalPager(broker, journal, recorder, 64 * 1024 * 1024)
        restore(broker, journal, recorder)
        declare(broker, "q")
        publish(broker, count, 1024, journal.commit)
        journal.wait(journal.next_lsn)
        log, position, found = broker.context.storage.log, broker.context.storage.log.start(), 0
        begin, longest = time.process_time(), 0.0
        while position < log.end():
            before = time.process_time()
            page = log.read("/", position, lambda *facts: True, 256 * 1024)
            longest = max(longest, time.process_time() - before)
            position, found = page.next_position, found + len(page.found)
        took = time.process_time() - begin
        print(f"replay: {found / took:,.0f}/s, the longest step {longest * 1e3:.1f} ms")
        begin, longest = time.process_time(), 0.0
        declare(broker, "late")
        queue = broker.virtual_hosts["/"].queues["late"]
        while not leases_of(queue).recovered_point:
            before = time.thread_time()
            broker.scheduler.load()
            broker.end_turn()
            journal.commit()
            longest = max(longest, time.thread_time() - before)
        took = time.process_time() - begin
        assert queue.ready_count == count == found
        print(f"a queue built from the log: {count / took:,.0f}/s, the longest turn {longest * 1e3:.1f} ms")
        journal.close()
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
