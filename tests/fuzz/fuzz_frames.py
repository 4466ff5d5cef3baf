"""Fuzzing of the whole sans-IO connection: any octets, cut into any reads, have a documented outcome.

    make fuzz                                            # or: python tests/fuzz/fuzz_frames.py -max_total_time=60
    python tests/fuzz/fuzz_frames.py crash-...           # one input again

An input is a short head (how far the login is done, how reads are cut) and octets for the wire. Accepted are: the
conversation goes on, a channel or connection is closed with a documented code, silence before the login. An exception,
a logged error (541 for a fault of ours), answers that pamqp can't read, a buffer without bound, a bystander who notices
anything: those are crashes. `test_fuzz_scaled.py` runs the same function without atheris.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    import atheris

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    with atheris.instrument_imports(include=["leveret"]):
        import leveret.amqp_frontend.session.handling  # noqa: F401  (before `pair`: so that it is the instrumented one)

from pair import Pair
from pamqp import commands
from peer import Peer, content, cut_at, handshake, method, publish, raw_frame, raw_method

C = commands
#: Behaviour page 0.2. 541 is documented for one thing only: properties that can't be decoded.
CHANNEL_CODES = {311, 403, 404, 405, 406}
CONNECTION_CODES = {403, 501, 502, 503, 504, 505, 530, 540, 541}
#: What one connection may hold of octets that are not handled yet: a frame and a read.
BUFFER_MAX = 131_072 + 131_072 + 16
#: How far the conversation is before the input's octets come.
PRELUDES = 4
INPUT_MAX = 60_000


class _Errors(logging.Handler):
    """Logged errors are faults of ours, and so are exceptions in any record."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)


class Crash(Exception):
    """An outcome that no document names."""


def one_input(data: bytes) -> Peer | None:
    """Say these octets to a new broker. Raises: Crash, or whatever went wrong."""
    if len(data) < 3:
        return None
    errors = _Errors()
    logger = logging.getLogger("leveret.amqp")
    logger.addHandler(errors)
    filters, logger.filters = logger.filters, []  # a broker that was served in this process limits its lines
    try:
        peer = _converse(data[0] % PRELUDES, data[1], data[2], data[3 : 3 + INPUT_MAX])
    finally:
        logger.filters = filters
        logger.removeHandler(errors)
    if errors.seen:
        record = errors.seen[0]
        raise Crash(record.getMessage()) from (record.exc_info[1] if record.exc_info else None)
    return peer


def _converse(prelude: int, cut: int, seed: int, octets: bytes) -> Peer:
    pair = Pair(unsent_max=2_000 if seed & 1 else 1 << 20)
    bystander = pair.open()
    bystander.call(1, C.Queue.Declare, queue="b", exclusive=True)
    peer = pair.open(None)
    if prelude:
        peer.send(*handshake()[: prelude + 1])
    if prelude == PRELUDES - 1:
        peer.send(OPEN, SET_UP)
    _check_answers(peer)
    reads = 1 + cut % 6
    peer.cut = cut_at([seed * 7919 * index * (cut + 1) for index in range(1, reads)])
    peer.send(octets)
    _check_answers(peer)
    if peer.buffered_max > BUFFER_MAX:
        raise Crash(f"{peer.buffered_max} octets kept")
    bystander.send(publish(1, "b", b"x") + method(1, C.Basic.Get, queue="b", no_ack=True))
    if bystander.expect_content(C.Basic.GetOk).body != b"x":
        raise Crash("the bystander noticed")
    pair.advance(120000)
    _check_answers(peer)
    peer.hang_up()
    bystander.hang_up()
    statistics = pair.broker.statistics()
    if statistics.clients or statistics.unacked or statistics.consumers or statistics.deadlines:
        raise Crash(f"left behind: {statistics}")
    return peer


def _check_answers(peer: Peer) -> None:
    """Codes are documented ones, and nothing but close-ok follows a connection.close."""
    is_over = False
    for received in peer.take():
        one = received.frame
        if is_over and not isinstance(one, C.Connection.CloseOk):
            raise Crash(f"{one} after the end")
        if isinstance(one, C.Channel.Close) and one.reply_code not in CHANNEL_CODES:
            raise Crash(f"channel closed: {one.reply_code} {one.reply_text}")
        if isinstance(one, C.Connection.Close):
            is_over = True
            if one.reply_code not in CONNECTION_CODES:
                raise Crash(f"connection closed: {one.reply_code} {one.reply_text}")
    if not peer.incoming.is_between_frames:
        raise Crash("an answer was cut short")


OPEN = method(1, C.Channel.Open) + method(2, C.Channel.Open)
SET_UP = (
    method(1, C.Queue.Declare, queue="q")
    + method(1, C.Queue.Bind, queue="q", exchange="amq.topic", routing_key="#")
    + method(2, C.Confirm.Select)
    + publish(1, "q", b"one", headers={"k": [1, {"n": "x"}]})
    + publish(1, "q", b"two") * 3
    + method(1, C.Basic.Consume, queue="q", consumer_tag="c")
)


def seeds() -> Iterator[bytes]:
    """The corpus: valid conversations, from the beginning and from each prelude on, and some that are nearly valid."""
    table = {"a": True, "b": [1, 2.5, "x", None], "c": {"d": 2**40}}
    conversations = (
        b"".join(handshake()) + OPEN + SET_UP,
        handshake()[0] + handshake()[1],
        OPEN + SET_UP + method(1, C.Basic.Ack, delivery_tag=4, multiple=True),
        SET_UP,
        b"".join(method(1, C.Basic.Ack, delivery_tag=tag) for tag in range(1, 5)),
        method(1, C.Basic.Nack, delivery_tag=0, multiple=True, requeue=True)
        + method(1, C.Basic.Reject, delivery_tag=5),
        publish(2, "q", b"x" * 300, body_max=100) + publish(2, "none", b"r", mandatory=True),
        publish(1, "q", b"", exchange="amq.headers", headers=table, priority=1, expiration="10", message_id="m"),
        method(1, C.Basic.Publish, routing_key="q") + method(2, C.Basic.Qos, prefetch_count=1) + content(1, b"x"),
        method(1, C.Exchange.Declare, exchange="e", exchange_type="headers", auto_delete=True, arguments=table)
        + method(1, C.Queue.Bind, queue="q", exchange="e", arguments={"x-match": "any", **table})
        + method(1, C.Exchange.Bind, destination="e", source="amq.fanout")
        + method(1, C.Queue.Unbind, queue="q", exchange="e", arguments={"x-match": "any", **table})
        + method(1, C.Exchange.Delete, exchange="e", if_unused=True),
        method(1, C.Queue.Declare, queue="", exclusive=True)
        + method(1, C.Queue.Declare, queue="t", arguments={"x-message-ttl": 1000, "x-max-length": 3})
        + method(1, C.Queue.Purge, queue="q")
        + method(1, C.Queue.Delete, queue="q", if_empty=True),
        method(1, C.Basic.Qos, prefetch_count=2, global_=True)
        + method(1, C.Basic.Get, queue="q")
        + method(1, C.Basic.Recover, requeue=True)
        + method(1, C.Channel.Flow, active=False)
        + method(1, C.Channel.Flow, active=True)
        + method(1, C.Basic.Cancel, consumer_tag="c"),
        method(1, C.Tx.Select)
        + publish(1, "q", b"t")
        + method(1, C.Basic.Ack, delivery_tag=1)
        + method(1, C.Tx.Commit),
        method(1, C.Tx.Select) + publish(1, "q", b"t") + method(1, C.Tx.Rollback),
        method(1, C.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0) + method(1, C.Channel.Open),
        method(0, C.Connection.Close, reply_code=200, reply_text="bye", class_id=0, method_id=0),
        raw_frame(8, 0, b"")
        + raw_method(1, 30, 10, b"\x05/data\x1f")
        + raw_method(0, 10, 70, b"\x00\x00\x00\x01x\x00"),
        raw_frame(99, 0, b"abc"),
        raw_method(1, 60, 99),
        publish(1, "q", b"x", exchange="missing") + method(1, C.Channel.CloseOk) + method(1, C.Channel.Open),
    )
    for number, octets in enumerate(conversations):
        for prelude in range(PRELUDES):
            yield bytes((prelude, number % 6, number)) + octets


def main() -> None:
    """Atheris, with the seeds as its corpus."""
    logging.getLogger("leveret.amqp").propagate = False
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds()):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        is_replay = any(not argument.startswith("-") for argument in sys.argv[1:])
        arguments = [sys.argv[0], "-max_len=4096", *sys.argv[1:], *([] if is_replay else [corpus])]
        atheris.Setup(arguments, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
