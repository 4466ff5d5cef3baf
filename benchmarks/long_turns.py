"""The longest turn that a client can cause by ordinary means, and the cost of ending queues and consumers.

    python benchmarks/long_turns.py [--journal DIRECTORY] [--rounds 3] [CASE ...]

The broker runs in this process and gets octets without sockets; a turn is one read, and the ends of turns that follow
are turns of their own. Milliseconds of CPU of the broker's thread: the longest turn and the sum, the best of the
rounds. With a journal everything is durable; DIRECTORY is created for each case and removed.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pamqp import commands, frame, header

from leveret.amqp_frontend.options import FrontendOptions
from leveret.amqp_frontend.peer.login import Peer
from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.amqp_frontend.session.session import AmqpSession
from leveret.engine import Broker
from leveret.engine.messages.field_table import Field
from leveret.serving.collector import THRESHOLDS
from leveret.serving.composition import default_users
from leveret.serving.runtime import SystemClock
from leveret.serving.supervisor import Supervisor
from leveret.settings import load_configuration

C = commands
READ_SIZE = 128 * 1024
UNLIMITED = 1 << 40


class Stage:
    """A broker and its connections."""

    def __init__(self, directory: Path | None) -> None:
        clock = SystemClock()
        self.broker = Broker(clock, default_users(), unsent_max=UNLIMITED)
        self.supervisor: Supervisor | None = None
        if directory is not None:
            configuration, _ = load_configuration([])
            self.supervisor = Supervisor.open(str(directory), self.broker, configuration)
            self.supervisor.journal.set_callbacks(lambda lsn: None, lambda error: None)
        self.turns: list[float] = []

    def connect(self) -> AmqpSession:
        """A connection with channel 1."""
        session: AmqpSession
        session = AmqpSession(self.broker, FrontendOptions(), Peer("bench", is_loopback=True), lambda: flush(session))
        login = b"\0guest\0guest"
        self.send(
            session,
            b"AMQP\0\0\x09\x01",
            method(0, C.Connection.StartOk({}, "PLAIN", login.decode(), "")),
            method(0, C.Connection.TuneOk(2047, 131072, 0)) + method(0, C.Connection.Open("/")),
            method(1, C.Channel.Open()),
        )
        return session

    def send(self, session: AmqpSession, *reads: bytes) -> None:
        """Send octets in reads of at most 128 KiB, and finish the work of each."""
        for octets in reads:
            for start in range(0, len(octets), READ_SIZE):
                self._read(session, octets[start : start + READ_SIZE])

    def _read(self, session: AmqpSession, data: bytes) -> None:
        is_more = True
        while is_more:
            start = time.thread_time()
            handle_bytes(session, data)
            data = b""
            is_more = self._ends()
            self.turns.append(time.thread_time() - start)
            flush(session)
            while is_more:
                start = time.thread_time()
                is_more = self._ends()
                self.turns.append(time.thread_time() - start)
            is_more = session.backlog.has_more

    def _ends(self) -> bool:
        is_more = self.broker.end_turn()
        if self.supervisor is not None:
            self.supervisor.commit()
        return is_more

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure only these turns."""
        gc.collect()
        gc.freeze()
        self.turns.clear()
        yield


def flush(session: AmqpSession) -> None:
    """Output is dropped."""
    session.take_output()
    session.output_sent()


def method(channel: int, what: frame.FrameTypes) -> bytes:
    """A method frame."""
    return frame.marshal(what, channel)


def publish(key: str, body: bytes, *, exchange: str = "") -> bytes:
    """A persistent message on channel 1."""
    properties = C.Basic.Properties(delivery_mode=2)
    head = method(1, C.Basic.Publish(0, exchange, key)) + frame.marshal(
        header.ContentHeader(0, len(body), properties), 1
    )
    return head + (b"\x03\0\1" + len(body).to_bytes(4) + body + b"\xce" if body else b"")


def queue(name: str, *, durable: bool = True) -> bytes:
    """queue.declare."""
    return method(1, C.Queue.Declare(0, name, durable=durable))


def consume(name: str, tag: str) -> bytes:
    """basic.consume."""
    return method(1, C.Basic.Consume(0, name, tag))


def hold(stage: Stage, count: int) -> None:
    """Deliver this many messages without acknowledgement."""
    session = stage.connect()
    stage.send(session, queue("held"), consume("held", "held"), publish("held", b"x" * 10) * count)
    assert stage.broker.virtual_hosts["/"].queues["held"].unacked == count


def delete_beside_unacked(stage: Stage) -> None:
    """Delete 100 queues one by one, while 200,000 messages of another are unacknowledged: the mean of one."""
    hold(stage, 200_000)
    session = stage.connect()
    for number in range(101):
        stage.send(session, queue(f"reply{number}"), consume(f"reply{number}", f"t{number}"))
        stage.send(session, publish(f"reply{number}", b"x"))
    stage.send(session, method(1, C.Queue.Delete(0, "reply100")))
    with stage.measured():
        for number in range(100):
            stage.send(session, method(1, C.Queue.Delete(0, f"reply{number}")))


def checkpoint_beside_unacked(stage: Stage) -> None:
    """A checkpoint of 500 durable queues while 100,000 messages of one and 200 of each other are unacknowledged."""
    hold(stage, 100_000)
    session = stage.connect()
    for number in range(500):
        stage.send(session, queue(f"q{number}"), consume(f"q{number}", f"t{number}"))
        stage.send(session, publish(f"q{number}", b"x") * 200)
    _checkpoint(stage)


def checkpoint_of_objects(stage: Stage) -> None:
    """A checkpoint of 10,000 durable queues without messages, and 30,000 bindings."""
    vhost = stage.broker.virtual_hosts["/"]
    for number in range(10_000):
        vhost.queues.declare(f"q{number}", client=None, durable=True)
        for key in ("a", "b", "c"):
            vhost.bindings.add("queue", f"q{number}", "amq.topic", f"{key}.{number}", {})
        stage._ends()
    _checkpoint(stage)


def _checkpoint(stage: Stage) -> None:
    if stage.supervisor is None:
        return
    from leveret.journal.recording.checkpoint import checkpoint

    supervisor = stage.supervisor
    with stage.measured():
        slices = checkpoint(stage.broker, supervisor.journal, supervisor.recorder)
        is_more = True
        while is_more:
            start = time.thread_time()
            is_more = next(slices, False) is None
            stage._ends()
            stage.turns.append(time.thread_time() - start)


def _consumers(stage: Stage) -> AmqpSession:
    session = stage.connect()
    stage.send(session, queue("q"), b"".join(consume("q", f"t{number * 7919 % 20_000}") for number in range(20_000)))
    assert len(stage.broker.virtual_hosts["/"].queues["q"].consumers) == 20_000
    return session


def delete_with_consumers(stage: Stage) -> None:
    """queue.delete of a queue with 20,000 consumers."""
    session = _consumers(stage)
    with stage.measured():
        stage.send(session, method(1, C.Queue.Delete(0, "q")))


def close_with_consumers(stage: Stage) -> None:
    """channel.close with 20,000 consumers of one queue."""
    session = _consumers(stage)
    with stage.measured():
        stage.send(session, method(1, C.Channel.Close(200, "", 0, 0)))


def commit_empty(stage: Stage) -> None:
    """tx.commit of 200,000 empty messages to one queue."""
    session = stage.connect()
    stage.send(session, queue("q"), method(1, C.Tx.Select()), publish("q", b"") * 200_000)
    with stage.measured():
        stage.send(session, method(1, C.Tx.Commit()))
    assert stage.broker.virtual_hosts["/"].queues["q"].ready_count == 200_000


def _fanout(stage: Stage, queues: int) -> AmqpSession:
    session = stage.connect()
    stage.send(session, method(1, C.Exchange.Declare(0, "f", "fanout", durable=True)))
    for number in range(queues):
        stage.send(session, queue(f"q{number}") + method(1, C.Queue.Bind(0, f"q{number}", "f", "")))
    return session


def fanout(stage: Stage) -> None:
    """1,000 messages in one read to a fanout of 2,000 queues."""
    session = _fanout(stage, 2_000)
    with stage.measured():
        stage.send(session, publish("", b"x" * 10, exchange="f") * 1_000)
    assert stage.broker.virtual_hosts["/"].queues["q7"].ready_count == 1_000


def fanout_by_many_keys(stage: Stage) -> None:
    """The same, each message with a routing key of its own."""
    session = _fanout(stage, 2_000)
    with stage.measured():
        stage.send(session, b"".join(publish(f"k{number}", b"x" * 10, exchange="f") for number in range(1_000)))
    assert stage.broker.virtual_hosts["/"].queues["q7"].ready_count == 1_000


def new_keys(stage: Stage) -> None:
    """1,500 new keys with 30,000 topic bindings."""
    session = stage.connect()
    stage.send(session, queue("q"))
    for number in range(30_000):
        stage.broker.virtual_hosts["/"].bindings.add("queue", "q", "amq.topic", f"a{number % 7}.*.b{number}.#", {})
    keys = [f"a{number % 7}.x.b{number}.y" for number in range(1_500)]
    with stage.measured():
        stage.send(session, b"".join(publish(key, b"x", exchange="amq.topic") for key in keys))
    assert stage.broker.virtual_hosts["/"].queues["q"].ready_count == 1_500


def graph(stage: Stage) -> None:
    """200 new keys through 120 exchanges that are all bound to each other."""
    session = stage.connect()
    vhost = stage.broker.virtual_hosts["/"]
    names = [f"g{number}" for number in range(120)]
    for name in names:
        vhost.exchanges.declare(name, "fanout")
    for source in names:
        for destination in names:
            vhost.bindings.add("exchange", destination, source, "", {})
    with stage.measured():
        stage.send(session, b"".join(publish(f"k{number}", b"x", exchange="g0") for number in range(200)))


def header_sets(stage: Stage) -> None:
    """100 messages, each compared with 20,000 header bindings."""
    session = stage.connect()
    stage.send(session, queue("q"))
    for number in range(20_000):
        conditions = {"one": Field("I", 1), "number": Field("I", number)}
        stage.broker.virtual_hosts["/"].bindings.add("queue", "q", "amq.headers", "", conditions)
    head = method(1, C.Basic.Publish(0, "amq.headers", ""))
    head += frame.marshal(header.ContentHeader(0, 0, C.Basic.Properties(headers={"one": 1, "number": -1})), 1)
    with stage.measured():
        stage.send(session, head * 100)


def one_queue(stage: Stage) -> None:
    """For comparison: 200 reads full of messages to one queue."""
    session = stage.connect()
    message = publish("q", b"x" * 10)
    stage.send(session, queue("q"))
    with stage.measured():
        stage.send(session, message * (200 * READ_SIZE // len(message)))


CASES: dict[str, Callable[[Stage], None]] = {
    case.__name__: case
    for case in (
        delete_beside_unacked,
        checkpoint_beside_unacked,
        checkpoint_of_objects,
        delete_with_consumers,
        close_with_consumers,
        commit_empty,
        fanout,
        fanout_by_many_keys,
        new_keys,
        graph,
        header_sets,
        one_queue,
    )
}


def run(case: Callable[[Stage], None], directory: Path | None) -> tuple[float, float, int]:
    """Milliseconds of the longest turn and of all turns, and their number."""
    stage = Stage(directory)
    try:
        case(stage)
    finally:
        if stage.supervisor is not None and directory is not None:
            stage.supervisor.journal.close()
            shutil.rmtree(directory)
        gc.unfreeze()
    return 1000 * max(stage.turns, default=0), 1000 * sum(stage.turns), len(stage.turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--journal", type=Path, help="a directory that does not exist yet")
    parser.add_argument("--rounds", type=int, default=3)
    gc.set_threshold(*THRESHOLDS)
    given = parser.parse_args()
    print(f"{'case':28} {'longest turn':>13} {'all turns':>12} {'turns':>7}   (ms of CPU)")
    for name in given.cases or CASES:
        longest, total, count = min(run(CASES[name], given.journal) for _ in range(given.rounds))
        print(f"{name:28} {longest:13.2f} {total:12.2f} {count:7}", flush=True)


if __name__ == "__main__":
    main()
