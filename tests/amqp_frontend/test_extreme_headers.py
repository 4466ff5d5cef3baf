"""What the broker adds to headers, or makes of them, at the limits of tables: nobody's turn ends with it."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pair import Pair
from pamqp import commands as C
from peer import Peer, method, raw_frame

from leveret.engine.messages.content import encode_header, headers_of
from leveret.engine.messages.dead_letter import COUNT_MAX
from leveret.engine.messages.field_table import DEPTH_MAX, Field, FieldTable

INTEGERS = {"b": 8, "s": 16, "I": 32, "l": 64, "L": 64, "B": -8, "u": -16, "i": -32, "T": -64}


def _integers(tag: str) -> st.SearchStrategy[Field]:
    bits = INTEGERS[tag]
    low, high = (0, 2**-bits - 1) if bits < 0 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.builds(Field, st.just(tag), st.sampled_from([low, high]) | st.integers(low, high))


LEAVES = st.one_of(
    *map(_integers, INTEGERS),
    st.builds(Field, st.just("d"), st.floats()),
    st.builds(Field, st.just("t"), st.booleans()),
    st.builds(Field, st.sampled_from("Sx"), st.binary(max_size=4) | st.just(b"d")),
    st.builds(Field, st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))),
    st.just(Field("V", None)),
)
NAMES = st.sampled_from(["queue", "reason", "count", "exchange", "routing-keys", "time", "x"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Field, st.just("A"), st.lists(inner, max_size=3))
        | st.builds(Field, st.just("F"), st.dictionaries(NAMES, inner, max_size=4))
    ),
    max_leaves=8,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["x-death", "CC", "BCC", "x-first-death-queue", "x-delay", "x-delivery-count", "_AMQ_GROUP_ID", "h"]
    ),
    VALUES,
)


def nested(levels: int) -> FieldTable:
    """Tables in each other; this is the first."""
    table: FieldTable = {}
    for _ in range(levels - 1):
        table = {"t": Field("F", table)}
    return table


def send(peer: Peer, queue: str, headers: FieldTable, **properties: int | bytes) -> None:
    """A message with headers of any type."""
    header = encode_header(1, {"headers": headers, **properties})
    peer.send(method(1, C.Basic.Publish, routing_key=queue) + raw_frame(2, 1, header) + raw_frame(3, 1, b"m"))


class Traced:
    """Who publishes to a queue whose messages die at once, and copies of all that happens in the queue `told`."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.peer = self.pair.open(channels=1)
        dies = {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        for queue, arguments in (("q", dies), ("dead", {}), ("told", {})):
            self.peer.call(1, C.Queue.Declare, queue=queue, arguments=arguments)
        self.peer.call(1, C.Queue.Bind, queue="told", exchange="amq.rabbitmq.trace", routing_key="publish.#")
        self.pair.broker.virtual_hosts.trace(self.pair.broker.virtual_hosts["/"], on=True)

    def headers_in(self, queue: str) -> list[FieldTable]:
        """Of the messages there, as they are kept."""
        messages = self.pair.broker.virtual_hosts["/"].queues[queue].messages()
        return [headers_of(one.envelope.framing.split(one.content)[0]) for one in messages]


@pytest.mark.parametrize("levels", [1, DEPTH_MAX - 3, DEPTH_MAX - 2, DEPTH_MAX - 1, DEPTH_MAX])
def test_a_copy_of_deep_headers(levels: int) -> None:
    """The firehose's are two levels deeper: where tables end, a copy does not tell the properties."""
    traced = Traced()
    send(traced.peer, "q", nested(levels))
    assert not traced.peer.take()
    (copy,) = traced.headers_in("told")
    told = {"headers": Field("F", nested(levels))} if levels <= DEPTH_MAX - 2 else {}
    assert copy["properties"] == Field("F", told)
    assert (copy["exchange_name"], copy["routed_queues"]) == (Field("S", b""), Field("A", [Field("S", b"q")]))


@pytest.mark.parametrize(
    "timestamp, told", [(2**31 - 1, "I"), (2**31, "l"), (2**63 - 1, "l"), (2**63, "T"), (2**64 - 1, "T")]
)
def test_a_copy_of_any_timestamp(timestamp: int, told: str) -> None:
    """It has 64 bits, and no sign."""
    traced = Traced()
    send(traced.peer, "q", {}, timestamp=timestamp)
    (copy,) = traced.headers_in("told")
    properties = copy["properties"].value
    assert isinstance(properties, dict)
    assert properties["timestamp"] == Field(told, timestamp)


@pytest.mark.parametrize("tag, count", [("l", COUNT_MAX), ("T", 2**64 - 1), ("l", -(2**63))])
def test_a_message_that_says_it_has_died_as_often_as_can_be(tag: str, count: int) -> None:
    """It dies once more."""
    traced = Traced()
    death = {"queue": Field("S", b"q"), "reason": Field("S", b"expired"), "count": Field(tag, count)}
    send(traced.peer, "q", {"x-death": Field("A", [Field("F", death)])})
    (dead,) = traced.headers_in("dead")
    deaths: Any = dead["x-death"].value
    assert [one.value["count"] for one in deaths] == [Field("l", min(count + 1, COUNT_MAX))]


@settings(max_examples=150, deadline=None)
@given(headers=HEADERS, deaths=st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=3))
@example({}, [{"queue": Field("S", b"q"), "reason": Field("S", b"expired"), "count": Field("T", 2**64 - 1)}])
def test_whatever_headers_say_they_are_told_and_die(headers: FieldTable, deaths: list[FieldTable]) -> None:
    """Any table that a client may send, also a history of deaths: copied and dead-lettered, and clients stay."""
    if deaths:
        headers = {**headers, "x-death": Field("A", [Field("F", death) for death in deaths])}
    traced = Traced()
    send(traced.peer, "q", headers)
    for one in traced.peer.take():  # CC that is no array, say
        assert isinstance(one.frame, C.Channel.Close) and one.frame.reply_code == 406
    assert not traced.peer.is_closed
