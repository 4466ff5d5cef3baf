"""Tables that must be total: states, replies, handlers ."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from leveret.amqp_frontend.peer.channel import CommitUnderWay
from leveret.amqp_frontend.session.connection_methods import CONNECTION_HANDLERS
from leveret.amqp_frontend.session.handling import EVENT_HANDLERS, HANDLERS
from leveret.amqp_frontend.wire.codec import INDEX_OF, METHODS
from leveret.amqp_frontend.wire.events import ProtocolEvent
from leveret.amqp_frontend.wire.peer_errors import PeerError
from leveret.amqp_frontend.wire.replies import (
    CONSTANTS,
    DERIVED_TEXTS,
    REPLY,
    TEXT_MAX,
    Scope,
    erlang_binary,
    reply_for,
)
from leveret.amqp_frontend.wire.states import (
    CHANNEL_METHODS,
    CHANNEL_NEXT,
    CONNECTION_METHODS,
    CONNECTION_NEXT,
    ChannelState,
    ChannelStep,
    ConnectionState,
    ConnectionStep,
)
from leveret.engine import errors
from leveret.engine.errors import EngineError
from leveret.engine.messages.field_table import Field
from leveret.engine.rules.arguments import Reason

TABLES: list[tuple[type[Enum], type[Enum], dict[Any, dict[Any, Any]], Enum, set[Enum]]] = [
    (
        ConnectionState,
        ConnectionStep,
        CONNECTION_NEXT,
        ConnectionState.HEADER,
        {ConnectionState.CLOSED, ConnectionState.REFUSED},
    ),
    (ChannelState, ChannelStep, CHANNEL_NEXT, ChannelState.OPEN, {ChannelState.CLOSED}),
]


@pytest.mark.parametrize("states, steps, table, start, ends", TABLES, ids=["connection", "channel"])
def test_state_tables_are_total_and_closed(
    states: type[Enum], steps: type[Enum], table: dict[Any, dict[Any, Any]], start: Enum, ends: set[Enum]
) -> None:
    """Every state has a row, rows lead to states only, every step is used, all is reached, and only the ends end."""
    assert set(table) == set(states)
    assert {after for row in table.values() for after in row.values()} <= set(states)
    assert {step for row in table.values() for step in row} == set(steps)
    assert {state for state, row in table.items() if not row} == ends
    reached = {start}
    for _ in states:
        reached |= {after for state in reached for after in table[state].values()}
    assert reached == set(states)


@pytest.mark.parametrize("states, steps, table, start, ends", TABLES, ids=["connection", "channel"])
def test_every_state_leads_to_an_end(
    states: type[Enum], steps: type[Enum], table: dict[Any, dict[Any, Any]], start: Enum, ends: set[Enum]
) -> None:
    """No state from which nothing ends."""
    ending = set(ends)
    for _ in states:
        ending |= {state for state, row in table.items() if set(row.values()) & ending}
    assert ending == set(states)


def test_every_method_that_is_let_through_has_a_handler() -> None:
    """What the reader passes on, somebody handles."""
    on_channels = {name for names in CHANNEL_METHODS.values() for name in names}
    by_events = {"basic.publish", "channel.open"}  # as a PublishReceived, and as a ChannelMethod without a channel
    assert {METHODS[INDEX_OF[name]] for name in on_channels - by_events} == set(HANDLERS)
    on_connections = {name for names in CONNECTION_METHODS.values() for name in names}
    assert {METHODS[INDEX_OF[name]] for name in on_connections} == set(CONNECTION_HANDLERS)
    assert set(EVENT_HANDLERS) == {*ProtocolEvent.__args__, CommitUnderWay}


def test_every_state_says_which_methods_are_legal() -> None:
    """A state without a row would be an error of ours at the first frame."""
    assert set(CONNECTION_METHODS) == set(ConnectionState)
    assert set(CHANNEL_METHODS) == set(ChannelState)


def subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    """All of them, of any depth, and the class itself."""
    yield kind
    for sub in kind.__subclasses__():
        if sub.__module__.startswith("leveret."):
            yield from subclasses(sub)


ERRORS = sorted({*subclasses(EngineError), *subclasses(PeerError)} - {PeerError}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_refusal_has_a_row(kind: type[Exception]) -> None:
    """An error without a row would look like a fault of ours."""
    assert kind in REPLY
    assert REPLY[kind].code in CONSTANTS


def test_the_table_has_no_other_rows() -> None:
    """A row for a class that is gone would never be missed."""
    assert set(REPLY) == set(ERRORS)


#: Behaviour page 0.2: which code closes what.
CONNECTION_CODES = {320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541}


@pytest.mark.parametrize("kind", ERRORS)
def test_codes_close_what_the_page_says(kind: type[Exception]) -> None:
    """Channel and connection codes are not mixed; a failed login is the one 403 that ends a connection."""
    row = REPLY[kind]
    if issubclass(kind, errors.LoginRefused):
        assert row.scope is Scope.CONNECTION
    else:
        assert (row.scope is Scope.CONNECTION) is (row.code in CONNECTION_CODES)


#: Values as the code passes them; the rest of the facts are names.
FACTS: dict[str, object] = {
    "payload": b"\x00<\x00(",
    "arguments": b"\x00\x00\x05ab",
    "value": b"most",
    "received": Field("l", 1),
    "current": None,
    "reason": Reason("tuple", "value_negative", -1),
    "size": 131073,
    "limit": 131064,
    "end": 0,
    "count": 2,
    "field": Field("I", 5),
    "tag": 99,
    "type": 8,
}


def facts_of(kind: type[Exception]) -> set[str]:
    """Fields that a class says it has: the words after "Fields:" in its docstring."""
    found = re.search(r"Fields: ([^.]*)", kind.__doc__ or "")
    return set(re.findall(r"[a-z_]+", re.sub(r"\(.*?\)", "", found.group(1)))) if found else set()


@pytest.mark.parametrize("kind", ERRORS)
def test_every_text_renders_from_the_documented_facts(kind: type[Exception]) -> None:
    """Each template finds its facts, begins with the constant, and fits a short string."""
    facts = {name: FACTS.get(name, name) for name in facts_of(kind)}
    reply = reply_for(kind(**facts))
    assert reply.code == REPLY[kind].code
    constant = REPLY[kind].constant or CONSTANTS[reply.code]
    assert reply.text == constant if REPLY[kind].text is None else reply.text.startswith(f"{constant} - ")
    assert not re.search(r"\{[a-z_]+\}", reply.text)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_text_fits_a_short_string(kind: type[Exception]) -> None:
    """Names of 255 octets, not all of them letters: the text is cut between characters."""
    facts = {name: FACTS.get(name, "ü" * 127) for name in facts_of(kind)}
    text = reply_for(kind(**facts)).text
    assert len(text.encode()) <= TEXT_MAX


def test_templates_name_facts_or_derived_texts() -> None:
    """No template asks for what no class has."""
    for kind, row in REPLY.items():
        asked = {name for _, name, _, _ in string.Formatter().parse(row.text or "") if name}
        assert asked <= facts_of(kind) | set(DERIVED_TEXTS), kind


@pytest.mark.parametrize(
    "reason, text",
    [
        (Reason("type", "longstr"), '"expected integer, got longstr"'),
        (Reason("unacceptable", "bool"), "{unacceptable_type,bool}"),
        (Reason("text", "unsupported queue type 'x'"), "\"unsupported queue type 'x'\""),
        (Reason("tuple", "value_negative", -1), "{value_negative,-1}"),
        (Reason("atom", "invalid_overflow"), "invalid_overflow"),
    ],
)
def test_reasons_are_spelt_as_erlang_terms(reason: Reason, text: str) -> None:
    """Behaviour page 0.5."""
    reply = reply_for(errors.InvalidArgument(key="k", name="q", vhost="/", reason=reason))
    assert reply.text == f"PRECONDITION_FAILED - invalid arg 'k' for queue 'q' in vhost '/': {text}"


@pytest.mark.parametrize(
    "octets, spelt",
    [
        (b"abc", '<<"abc">>'),
        (b"", "<<>>"),
        (b"a\x00", "<<97,0>>"),
        (b"\xe4", '<<"ä">>'),
        (b'"\\\r\n\t', r'<<"\"\\\r\n\t">>'),
        (b"\x80", "<<128>>"),
        ("é".encode(), '<<"é">>'),  # its octets go into the text as they are
        ("č".encode(), "<<196,141>>"),
    ],
)
def test_octets_are_spelt_as_erlang_terms(octets: bytes, spelt: str) -> None:
    """Quoted when all are printable Latin-1, numbers otherwise."""
    assert erlang_binary(octets) == spelt


def test_an_unknown_exception_is_our_fault() -> None:
    """541, the bare constant, the connection."""
    assert reply_for(KeyError("x")) == (541, "INTERNAL_ERROR", Scope.CONNECTION, False)


CHANNEL, CONNECTION = Scope
#: Code, what is closed, whether the close names the method -> errors. 403 ends a connection that is not logged in.
REPLIES = {
    (320, CONNECTION, False): """
        BrokerStopping ConnectionForced Expelled NotLeading UserDeleted VirtualHostDeleted
    """,
    (403, CHANNEL, True): """
        AccessRefused ConsumersMaxReached DefaultExchangeRefused ExclusiveConsumerRefused
        InternalExchangeRefused PermissionRefused ReservedName SystemExchangeRefused TopicRefused
    """,
    (403, CONNECTION, False): """
        LoginThrottled LoginRefused
    """,
    (404, CHANNEL, True): """
        ExchangeNotFound NoQueueDeclared NotFound QueueNotFound QueueNotHosted
    """,
    (405, CHANNEL, True): """
        GetBesideActiveConsumerRefused ResourceLocked
    """,
    (406, CHANNEL, False): """
        AcknowledgementTimedOut ChannelTimedOut
    """,
    (406, CHANNEL, True): """
        AllQueuesMaxReached BindingsMaxReached ConditionsMaxReached ConfirmAfterTx DestinationFull
        HashesContradict InUse InequivalentArgument InequivalentField InvalidArgument InvalidCopies
        InvalidDeadLetterExchange InvalidDelayedType InvalidExpiration InvalidHeadersMatch
        InvalidHeadersMatchType InvalidWeight MessageTooLarge NotEmpty NotTransactional PartialCommit
        PreconditionFailed PrefetchMissing QueuesMaxReached ReplyConsumerAcknowledges ReplyConsumerMissing
        ReplyConsumerTaken SegmentSizeTooLarge ServerNamedRefused TopicStatesMaxReached TransactionTooLarge
        TxAfterConfirm UnackedMaxReached UnknownDeliveryTag UnknownExchangeType UnsupportedArgument
        UnsupportedHashProperty UnsupportedProperty UserIdMismatch
    """,
    (501, CONNECTION, False): """
        FrameEndMissing FrameTooLarge MalformedShortString UnknownFrame
    """,
    (501, CONNECTION, True): """
        ContentBodyTooLong ContentSizeTooLarge MalformedConnectionString UndecodableArguments
    """,
    (502, CONNECTION, True): """
        BadFieldTable
    """,
    (503, CONNECTION, True): """
        UnimplementedMethod
    """,
    (504, CONNECTION, False): """
        NotLoggedIn
    """,
    (504, CONNECTION, True): """
        ChannelAlreadyOpen ChannelNotOpen UnexpectedMethod
    """,
    (505, CONNECTION, False): """
        MethodFrameExpected UnexpectedFrame
    """,
    (505, CONNECTION, True): """
        ContentBodyExpected ContentHeaderExpected ContentHeaderOfOtherClass
    """,
    (506, CONNECTION, False): """
        ParkingExhausted
    """,
    (506, CONNECTION, True): """
        IncompleteTooLarge
    """,
    (530, CONNECTION, False): """
        TooManyChannels UserChannelsMaxReached
    """,
    (530, CONNECTION, True): """
        ConnectionsMaxReached ConsumerTagInUse LimitReached NotAllowed TuneTooHigh TuneTooLow
        UserConnectionsMaxReached VirtualHostNotFound VirtualHostRefused
    """,
    (540, CONNECTION, True): """
        ConditionalDeleteNotSupported FlowNotImplemented GlobalPrefetchNotSupported ImmediateNotImplemented
        NoAckNotSupported NotSupported PrefetchSizeNotImplemented RequeueFalseNotImplemented
        StreamOperationNotSupported
    """,
    (541, CONNECTION, False): """
        EngineError InternalError PropertiesUndecodable
    """,
    (541, CONNECTION, True): """
        TransientQueueRefused
    """,
}


@pytest.mark.parametrize(("row", "names"), REPLIES.items())
def test_which_reply_each_error_has(row: tuple[int, Scope, bool], names: str) -> None:
    """As RabbitMQ closes; a hard code of the specification never closes only the channel (AMQP 0-9-1 1.2)."""
    code, scope, with_ids = row
    here = {kind.__name__ for kind, one in REPLY.items() if (one.code, one.scope, one.with_ids) == row}
    assert here == set(names.split())
    assert scope is CONNECTION or code in (403, 404, 405, 406)


def test_no_error_is_without_a_row_in_the_table() -> None:
    assert sum(len(names.split()) for names in REPLIES.values()) == len(REPLY)


@pytest.mark.parametrize(
    ("field", "spelt"),
    [
        (Field("D", (2, 314)), "{2,314}"),
        (Field("t", True), "true"),
        (Field("t", False), "false"),
        (Field("I", -5), "-5"),
        (Field("d", 1.5), "1.5"),
        (Field("d", 1e300), "1.0e300"),
        (Field("d", 1.5e-7), "1.5e-7"),
        (Field("d", 100.0), "100.0"),
        (Field("d", -1000.0), "-1.0e3"),
        (Field("d", 1230.0), "1230.0"),
        (Field("d", 0.0001), "0.0001"),
        (Field("d", 0.00012), "1.2e-4"),
        (Field("d", -0.0), "-0.0"),
        (Field("d", 9007199254740991.0), "9007199254740991.0"),
        (Field("d", 9007199254740992.0), "9.007199254740992e15"),
        (Field("S", b"text"), "text"),
        (Field("V", None), "undefined"),
        (Field("A", [Field("I", 1), Field("S", b"x")]), '[{signedint,1},{longstr,<<"x">>}]'),
        (Field("F", {"k": Field("I", 1)}), '[{<<"k">>,signedint,1}]'),
    ],
)
def test_values_are_spelt_as_erlang_terms(field: Field, spelt: str) -> None:
    """In the texts of redeclarations, on both sides. Behaviour page 0.4."""
    facts = {"key": "k", "kind": "queue", "name": "q", "vhost": "/"}
    start = "PRECONDITION_FAILED - inequivalent arg 'k' for queue 'q' in vhost '/': received "
    other = Field("I", 7)
    beside = "none" if field.tag == "V" else f"'{spelt}'"  # a void that is compared with a value counts as none
    one = reply_for(errors.InequivalentArgument(received=field, current=other, **facts)).text
    assert one == f"{start}{beside} but current is '7'"
    two = reply_for(errors.InequivalentArgument(received=other, current=field, **facts)).text
    assert two == f"{start}'7' but current is {beside}"
    three = reply_for(errors.InequivalentArgument(received=None, current=field, **facts)).text
    assert three == f"{start}none but current is the value '{spelt}' of type '{field.type_name}'"
