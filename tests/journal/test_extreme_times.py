"""Times that no clock reaches, wherever a client or an operator may say one: brokers go on, also after restarts."""

from typing import Any

import pytest
from desk import GETS, PUBLISHES
from durable_desk import PATH, DurableDesk
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pamqp import commands as C
from peer import method, raw_frame
from simulated_files import SimulatedFiles

from leveret.engine import scheduled
from leveret.engine.clock import AHEAD_MS_MAX
from leveret.engine.messages.content import encode_header
from leveret.engine.messages.field_table import Field, FieldTable, encode_table
from leveret.engine.queues.queue import Queue
from leveret.journal import recover
from leveret.journal.recording.checkpoint import checkpoint

PERSISTENT = 2
SIGNED = [0, 1, -1, 2**31 - 1, 2**32, 2**40, 2**62, 2**63 - 2, 2**63 - 1, -(2**63), 99_999_999_999, AHEAD_MS_MAX]
NUMBERS = st.one_of(
    st.builds(Field, st.just("l"), st.sampled_from(SIGNED) | st.integers(-(2**63), 2**63 - 1)),
    st.builds(Field, st.just("d"), st.sampled_from([1e308, 2.0**63, float("inf"), float("nan"), -1e308])),
    st.builds(Field, st.just("S"), st.sampled_from([b"9" * 11, b"9" * 30, b"-1"])),
)
#: Of timestamps only those that pamqp, which is the client here, can read, or that wait for ever.
TIMES = NUMBERS | st.builds(Field, st.just("T"), st.sampled_from([0, 1, 2**31, 2**62, 2**63, 2**64 - 1]))
HEADERS = ["x-delay", "x-delivery-count", "JMSXGroupID"]
ARGUMENTS = [
    "x-message-ttl",
    "x-expires",
    "x-consumer-timeout",
    "x-redelivery-delay",
    "x-redelivery-delay-multiplier",
    "x-max-redelivery-delay",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-delayed-retry-multiplier",
    "x-delay-before-dispatch",
    "x-unknown",
]
#: What an operator may set, each to the longest time that there is.
LONGEST = "".join(
    f"{key} = {2**63 - 1}\n"
    for key in ("redelivery-delay", "max-redelivery-delay", "expiry-delay", "max-expiry-delay", "min-expiry-delay")
)
SETTINGS = f"[[address-setting]]\nmatch = 'slow'\nredelivery-delay-multiplier = 1000.0\n{LONGEST}"


def declare(desk: DurableDesk, queue: str, arguments: FieldTable) -> bool:
    """A durable queue with arguments of any type; whether it was taken."""
    table = encode_table(arguments)
    name = bytes((len(queue),)) + queue.encode()
    desk.peer.send(raw_frame(1, GETS, bytes.fromhex("0032000a0000") + name + b"\x02" + table))
    desk.settle()
    (answer,) = desk.peer.take()
    if isinstance(answer.frame, C.Channel.Close):
        assert answer.frame.reply_code == 406
        desk.peer.send(method(GETS, C.Channel.CloseOk), method(GETS, C.Channel.Open))
        desk.peer.take()
        return False
    return isinstance(answer.frame, C.Queue.DeclareOk)


def publish(desk: DurableDesk, queue: str, headers: FieldTable, *, exchange: str = "", **properties: Any) -> None:
    """A persistent message, which is confirmed."""
    header = encode_header(1, {"headers": headers, "delivery_mode": PERSISTENT, **properties})
    desk.peer.send(
        method(PUBLISHES, C.Basic.Publish, exchange=exchange, routing_key=queue)
        + raw_frame(2, PUBLISHES, header)
        + raw_frame(3, PUBLISHES, b"m")
    )
    desk.settle()
    assert [type(one.frame) for one in desk.peer.take()] == [C.Basic.Ack]


def state_all(desk: DurableDesk) -> None:
    """A new segment and a checkpoint in it, as when the journal rolls or closes."""
    desk.settle()
    desk.journal.begin_segment()
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
    desk.settle()


def again(desk: DurableDesk, text: str = SETTINGS, *, cleanly: bool = True) -> DurableDesk:
    """The next broker, after a clean end or a power cut."""
    desk.settle()
    if cleanly:
        state_all(desk)
        desk.journal.close()
    return DurableDesk(desk.files.power_cut(), text)


def live_through(desk: DurableDesk) -> None:
    """Rolls, clean ends and power cuts."""
    state_all(desk)
    for cleanly in (False, True, True):
        desk = again(desk, cleanly=cleanly)
        desk.advance_ms(5)
        state_all(desk)
        desk.advance_ms(AHEAD_MS_MAX * 1.1)
        state_all(desk)


def queue_of(desk: DurableDesk, name: str) -> Queue:
    return desk.vhost.queues[name]


@settings(max_examples=30, deadline=None)
@given(
    scheduled=st.none() | TIMES,
    headers=st.dictionaries(st.sampled_from(HEADERS), NUMBERS),
    arguments=st.dictionaries(st.sampled_from(ARGUMENTS), TIMES),
    expiration=st.none() | st.sampled_from([b"0", b"99999999999"]),
    is_delayed=st.booleans(),
)
@example(Field("l", 2**63 - 1), {}, {}, None, False)
@example(Field("l", 2**63 - 2), {}, {}, None, False)
@example(Field("T", 2**64 - 1), {}, {}, b"99999999999", False)
@example(Field("l", 2**63 - 1), {"x-delay": Field("l", 2**40)}, {}, None, True)
def test_no_time_that_a_client_says_is_too_long(
    scheduled: Field | None, headers: FieldTable, arguments: FieldTable, expiration: bytes | None, is_delayed: bool
) -> None:
    """In headers, properties and arguments: the message is kept, and every record of it can be written and read."""
    if scheduled is not None:
        headers = {**headers, "_AMQ_SCHED_DELIVERY": scheduled}
    desk = DurableDesk(SimulatedFiles(), SETTINGS)
    declare(desk, "slow", {})
    name = "q" if declare(desk, "q", arguments) else "slow"
    desk.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    for queue in {name, "slow"}:
        desk.bind(queue, "later")
    properties = {} if expiration is None else {"expiration": expiration}
    publish(desk, name, headers, exchange="later" if is_delayed else "", **properties)
    for queue in (name, "slow"):
        publish(desk, queue, {})
        while (got := desk.get(queue)) is not None and not got.redelivered:
            desk.nack(got)
    live_through(desk)


@pytest.mark.parametrize("due_ms", [2**63 - 1, 2**62, 9 * 10**15])
def test_a_message_scheduled_beyond_all_time_waits_a_hundred_years(due_ms: int) -> None:
    """It waits, and is due at the end of what clocks take; a journal says the same to the next broker."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    publish(desk, "q", {"_AMQ_SCHED_DELIVERY": Field("l", due_ms)})
    latest_ms = desk.wall_ms + AHEAD_MS_MAX
    for _ in range(2):
        state_all(desk)
        (message,) = (
            recover(desk.files.power_cut(), PATH).queues[desk.recorder.objects.queue_id(queue_of(desk, "q"))].messages()
        )
        assert message.state.due_ms == latest_ms
        desk = again(desk, "")
        assert desk.counts() == (0, 0, 1)


@pytest.mark.contradicts
def test_a_journal_that_has_such_a_time_is_read_and_written_again() -> None:
    """An older broker's, say: recovery takes it for the latest that there is, and what is stated next is that."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    publish(desk, "q", {"_AMQ_SCHED_DELIVERY": Field("l", desk.wall_ms + 1000)})
    publish(desk, "q", {})
    queue = queue_of(desk, "q")
    (waiting,) = queue.scheduled.take_all()
    (ready,) = queue.messages()
    waiting.deliveries = waiting.uncounted = 2**33
    ready.expires_ns = 2**90
    queue.scheduled.add(2**90, waiting)
    state_all(desk)
    found = recover(desk.files.power_cut(), PATH).queues[desk.recorder.objects.queue_id(queue)]
    assert {(one.state.due_ms, one.expires_ms) for one in found.messages()} == {(2**63 - 1, 0), (0, 2**63 - 1)}
    desk = again(desk, "", cleanly=False)
    assert desk.counts() == (1, 0, 1)
    latest_ms = desk.wall_ms + AHEAD_MS_MAX
    state_all(desk)
    found = recover(desk.files.power_cut(), PATH).queues[desk.recorder.objects.queue_id(queue_of(desk, "q"))]
    assert {(one.state.due_ms, one.expires_ms) for one in found.messages()} == {(latest_ms, 0), (0, latest_ms)}
    live_through(desk)


def test_an_operator_may_put_it_off_for_ever() -> None:
    """`scheduled reschedule` with the largest number."""
    desk = DurableDesk(SimulatedFiles(), SETTINGS)
    desk.declare()
    publish(desk, "q", {"_AMQ_SCHED_DELIVERY": Field("l", desk.wall_ms + 1000)})
    ((_, message),) = queue_of(desk, "q").scheduled.entries()
    for delay_ms in (2**63 - 1, 10**30):
        assert scheduled.reschedule(queue_of(desk, "q"), message.id, delay_ms)
        state_all(desk)
    live_through(desk)


@pytest.mark.parametrize("key", ["message-ttl", "expires", "delivery-limit", "max-length", "max-length-bytes"])
def test_policies_may_say_the_largest_number(key: str) -> None:
    """As RabbitMQ's may."""
    desk = DurableDesk(SimulatedFiles(), SETTINGS)
    desk.declare()
    desk.command("policies", action="set", vhost="/", name="p", pattern=".*", definition={key: 2**63 - 1})
    publish(desk, "q", {})
    desk.nack(desk.must_get())
    live_through(desk)
