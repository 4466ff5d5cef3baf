"""A process that writes a journal until it is killed, and says on stdout what was confirmed.

    python journal_writer.py DIR SEED

A line "P id" is a message that was confirmed, "A id" an acknowledgement that is durable; "p"/"a" the same when it was
only asked for.
"""

import random
import sys
import threading

from leveret.engine.events import EventKind
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.journal import Declared, Journal, JournalOptions, RecoveredMessage
from leveret.journal.format.heap import IS_DURABLE
from leveret.journal.format.record import EXCHANGE, QUEUE, VHOST
from leveret.journal.recovery.recovered import FRESH
from leveret.serving.runtime import SystemClock


def body_of(id_: int) -> bytes:
    """The body that a message has."""
    return b"%d." % id_ * (1 + id_ % 50)


def main(directory: str, seed: int) -> None:
    """Write, acknowledge, checkpoint, reclaim, as the seed says, for ever."""
    chance = random.Random(seed)
    journal = Journal.open(directory, SystemClock(), JournalOptions(segment_size=40_000, preallocate_size=16_384))
    lock = threading.Lock()
    waiting: list[tuple[int, str]] = []
    alive: dict[int, tuple[int, int]] = {}

    def say(lines: list[str]) -> None:
        with lock:
            sys.stdout.write("".join(line + "\n" for line in lines))
            sys.stdout.flush()

    def durable(lsn: int) -> None:
        with lock:
            count = sum(end <= lsn for end, _ in waiting)
            done = [line for _, line in waiting[:count]]
            del waiting[:count]
        say(done)

    journal.set_callbacks(durable, lambda error: sys.exit(1))
    vhost = journal.objects.define(VHOST, 0, "/")
    exchange, queue = journal.objects.define(EXCHANGE, vhost, ""), journal.objects.define(QUEUE, vhost, "q")
    journal.objects.declared(queue, Declared(QUEUE, IS_DURABLE, "", b""))
    if found := journal.recovered.queues.get(queue):
        alive = {message.id: (message.content_lsn, message.size) for message in found.messages()}
    while True:
        count = chance.randrange(1, 20)
        first = journal.next_message_id
        ids = range(first, first + count)
        contents = [NATIVE.join(encode_header(len(body_of(id_))), body_of(id_)) for id_ in ids]
        acks = chance.sample(sorted(alive), min(len(alive), chance.randrange(0, 22)))
        say([f"p {id_}" for id_ in ids] + [f"a {id_}" for id_ in acks])
        lsn = journal.messages.published(ids, exchange, b"q", NATIVE.columns(contents), queue_ids=[queue])
        sizes = [len(body_of(id_)) for id_ in ids]
        journal.messages.enqueued(queue, ids, lsn, sizes)
        alive.update({id_: (lsn + at, sizes[at]) for at, id_ in enumerate(ids)})
        journal.messages.happened(EventKind.ACKED, queue, acks)
        for id_ in acks:
            del alive[id_]
        asked = [f"P {id_}" for id_ in ids] + [f"A {id_}" for id_ in acks]
        with lock:
            end = journal.next_lsn
            waiting += [(end, line) for line in asked]
        journal.commit()
        if chance.random() < 0.05:
            rows = [RecoveredMessage(id_, *at, 0, FRESH) for id_, at in sorted(alive.items())]
            journal.checkpoints.begin()
            journal.objects.declared(queue, Declared(QUEUE, IS_DURABLE, "", b""), restated=True)
            for _ in journal.checkpoints.snapshot(queue, iter(rows)):
                journal.commit()
            journal.checkpoints.end()
            journal.commit()
            journal.old_segments.reclaim()
        if journal.backlog_bytes > 100_000:
            journal.wait(journal.next_lsn, 30)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
