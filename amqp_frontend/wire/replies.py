"""The table of reply codes and texts: the close for each error, word for word.

Each error of the engine and of the frontend has a row; `{...}` names fields of the error, filled in by `Fields`. A test
fails when a class has no row. RabbitMQ's texts have values as Erlang writes them, and clients and their tests compare
whole texts. Source: behaviour page 0 to 2; tests/spec/error_cases.json.
"""

from collections.abc import Callable
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple

from ...engine import Field, Reason
from ...engine import errors as engine
from . import peer_errors as peer


class Fields(dict[str, Any]):
    """The fields of an error, and the texts that are derived from them."""

    def __init__(self, error: Exception) -> None:
        super().__init__(vars(error))

    def __missing__(self, key: str) -> str:
        return DERIVED_TEXTS[key](self)


def _difference(fields: Fields) -> str:
    received, current = fields["received"], fields["current"]
    if isinstance(received, Field) and isinstance(current, Field):
        return f"received {_quoted(received)} but current is {_quoted(current)}"
    return f"received {_described(received)} but current is {_described(current)}"


def _quoted(field: Field) -> str:
    return "none" if field.tag == "V" else f"'{_value(field)}'"


def _described(field: object) -> str:
    return f"the value '{_value(field)}' of type '{field.type_name}'" if isinstance(field, Field) else "none"


def _value(field: Field) -> str:
    return field.text if isinstance(field.value, bytes) else _term_of(field)


def _term_of(field: Field) -> str:
    """A value as Erlang writes it, without the line breaks that Erlang puts into long terms."""
    match field.value:
        case bytes():
            return erlang_binary(field.value)
        case bool():
            return str(field.value).lower()
        case float():
            return _float_term(field.value)
        case tuple():
            return f"{{{field.value[0]},{field.value[1]}}}"
        case list():
            return f"[{','.join(f'{{{item.type_name},{_term_of(item)}}}' for item in field.value)}]"
        case dict():
            items = (f"{{{erlang_binary(k.encode())},{v.type_name},{_term_of(v)}}}" for k, v in field.value.items())
            return f"[{','.join(items)}]"
        case None:
            return "undefined"
        case number:
            return str(number)


def _float_term(value: float) -> str:
    """A float as Erlang writes it: with an exponent if that is shorter, and from 2^53 on."""
    if not isfinite(value):
        return repr(value)
    from decimal import Decimal  # loaded only for refusals

    shortest = Decimal(repr(value)).normalize()
    sign, digits, _ = shortest.as_tuple()
    first, *rest = map(str, digits)
    scientific = f"{'-' * sign}{first}.{''.join(rest) or '0'}e{shortest.adjusted()}"
    plain = f"{shortest:f}"
    plain = plain if "." in plain else f"{plain}.0"
    return scientific if abs(value) >= 2**53 or len(scientific) < len(plain) else plain


def _reason(fields: Fields) -> str:
    reason: Reason = fields["reason"]
    if reason.kind == "type":
        return f'"expected integer, got {reason.word}"'
    if reason.kind == "unacceptable":
        return f"{{unacceptable_type,{reason.word}}}"
    if reason.kind == "text":
        return f'"{reason.word}"'
    return f"{{{reason.word},{reason.value}}}" if reason.kind == "tuple" else reason.word


def _octets(fields: Fields) -> str:
    payload: bytes = fields["payload"]
    if len(payload) <= 16:
        return f"all octets = {erlang_binary(payload)}"
    return f"first 16 octets = {erlang_binary(payload[:16])}"


def _weight_fault(fields: Fields) -> str:
    if fields["is_integer"]:
        return "The binding key must be greater than 0"
    return f"The binding key must be an integer: {erlang_binary(fields['value'])}"


DERIVED_TEXTS: dict[str, Callable[[Fields], str]] = {
    "difference": _difference,
    "reason_text": _reason,
    "octets": _octets,
    "arguments_term": lambda fields: _numbers(fields["arguments"]),
    "value_term": lambda fields: erlang_binary(fields["value"]),
    "field_term": lambda fields: _term_of(fields["field"]),
    "weight_fault": _weight_fault,
}

_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_PRINTABLE = frozenset([*range(32, 127), *range(160, 256), 9, 10, 13])


def erlang_binary(octets: bytes) -> str:
    """Octets as an Erlang binary: quoted if all are printable Latin-1; as numbers otherwise, and if there are none.

    RabbitMQ puts quoted octets into the text as they are. What is no UTF-8 is spelt as Latin-1 here.
    """
    if octets and all(octet in _PRINTABLE for octet in octets):
        try:
            quoted = octets.decode()
        except UnicodeDecodeError:
            quoted = octets.decode("latin-1")
        return f'<<"{quoted.translate(_ESCAPES)}">>'
    return _numbers(octets)


def _numbers(octets: bytes) -> str:
    """Octets as an Erlang binary of numbers."""
    return f"<<{','.join(map(str, octets))}>>"


TEXT_MAX = 255
#: End of a text that was cut to `TEXT_MAX` octets.
CUT = "..."


class Scope(Enum):
    """The scope of a close."""

    CHANNEL = "channel"
    CONNECTION = "connection"


CHANNEL, CONNECTION = Scope

#: Reply codes and their names (AMQP 0-9-1 1.2).
CONSTANTS = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}


class Row(NamedTuple):
    """The reply to an error. `text` None: only the constant. `with_ids`: whether the close names the handled method.

    `constant`: the name at the beginning of the text; empty: the name of the code.
    """

    code: int
    scope: Scope
    text: str | None
    with_ids: bool = True
    constant: str = ""


_RESOURCE = "{kind} '{name}' in vhost '{vhost}'"

_LOGIN_REFUSED = Row(
    403,
    CONNECTION,
    "Login was refused using authentication mechanism {mechanism}. For details see the broker logfile.",
    False,
)

REPLY: dict[type[Exception], Row] = {
    # the engine's errors
    engine.EngineError: Row(541, CONNECTION, None, False),
    engine.NotFound: Row(404, CHANNEL, "not found"),
    engine.AccessRefused: Row(403, CHANNEL, "access refused"),
    engine.PreconditionFailed: Row(406, CHANNEL, "precondition failed"),
    engine.NotAllowed: Row(530, CONNECTION, "not allowed"),
    engine.VirtualHostNotFound: Row(530, CONNECTION, "vhost {vhost} not found"),
    engine.VirtualHostRefused: Row(530, CONNECTION, "access to vhost '{vhost}' refused for user '{user}'"),
    engine.LoginRefused: _LOGIN_REFUSED,
    engine.LoginThrottled: _LOGIN_REFUSED,
    engine.PermissionRefused: Row(403, CHANNEL, "{action} access to " + _RESOURCE + " refused for user '{user}'"),
    engine.TopicRefused: Row(
        403,
        CHANNEL,
        "{action} access to topic '{topic}' in exchange '{name}' in vhost '{vhost}' refused for user '{user}'",
    ),
    engine.QueueNotFound: Row(404, CHANNEL, "no queue '{name}' in vhost '{vhost}'"),
    engine.QueueNotHosted: Row(404, CHANNEL, "no queue '{name}' in vhost '{vhost}' at this node: {why}"),
    engine.ExchangeNotFound: Row(404, CHANNEL, "no exchange '{name}' in vhost '{vhost}'"),
    engine.ReservedName: Row(403, CHANNEL, "{kind} name '{name}' contains reserved prefix 'amq.*'"),
    engine.DefaultExchangeRefused: Row(403, CHANNEL, "operation not permitted on the default exchange"),
    engine.SystemExchangeRefused: Row(
        403, CHANNEL, "deletion of system exchange '{name}' in vhost '{vhost}' not allowed"
    ),
    engine.InternalExchangeRefused: Row(
        403, CHANNEL, "cannot publish to internal exchange '{name}' in vhost '{vhost}'"
    ),
    engine.ExclusiveConsumerRefused: Row(403, CHANNEL, "queue '{name}' in vhost '{vhost}' in exclusive use"),
    engine.ConsumersMaxReached: Row(
        403, CHANNEL, "queue '{name}' in vhost '{vhost}' has reached its maximum of {limit} consumers"
    ),
    engine.ResourceLocked: Row(
        405,
        CHANNEL,
        "cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. It could be originally declared "
        "on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    engine.UnknownExchangeType: Row(406, CHANNEL, "invalid exchange type '{type}'"),
    engine.InequivalentField: Row(
        406,
        CHANNEL,
        "inequivalent arg '{field}' for " + _RESOURCE + ": received '{received}' but current is '{current}'",
    ),
    engine.InequivalentArgument: Row(406, CHANNEL, "inequivalent arg '{key}' for " + _RESOURCE + ": {difference}"),
    engine.InvalidArgument: Row(
        406, CHANNEL, "invalid arg '{key}' for queue '{name}' in vhost '{vhost}': {reason_text}"
    ),
    engine.UnsupportedArgument: Row(
        406,
        CHANNEL,
        "invalid arg '{key}' for queue '{name}' in vhost '{vhost}' of queue type rabbit_{queue_type}_queue",
    ),
    engine.SegmentSizeTooLarge: Row(406, CHANNEL, "Exceeded max value for {key}"),
    engine.InvalidDelayedType: Row(
        406, CHANNEL, "Invalid argument, 'x-delayed-type' must be an existing exchange type"
    ),
    engine.InvalidDeadLetterExchange: Row(406, CHANNEL, "invalid type '{type}' for arg '{key}' in " + _RESOURCE),
    engine.UnsupportedProperty: Row(
        406, CHANNEL, "invalid property '{property}' for queue '{name}' in vhost '{vhost}'"
    ),
    engine.TransientQueueRefused: Row(
        541,
        CONNECTION,
        "Feature `transient_nonexcl_queues` is deprecated.\nBy default, this feature is not permitted anymore.",
    ),
    engine.ServerNamedRefused: Row(
        406, CHANNEL, "Cannot declare a server-named queue for type rabbit_{queue_type}_queue"
    ),
    engine.InvalidHeadersMatch: Row(
        406, CHANNEL, "Invalid x-match field value {value_term}; expected all, any, all-with-x, or any-with-x"
    ),
    engine.InvalidHeadersMatchType: Row(
        406, CHANNEL, "Invalid x-match field type {type} (value {field_term}); expected longstr"
    ),
    engine.InvalidWeight: Row(406, CHANNEL, "{weight_fault}"),
    engine.HashesContradict: Row(406, CHANNEL, "hash-header and hash-property are mutually exclusive"),
    engine.UnsupportedHashProperty: Row(406, CHANNEL, "Unsupported property: {property}"),
    engine.ReplyConsumerMissing: Row(406, CHANNEL, "fast reply consumer does not exist"),
    engine.ReplyConsumerTaken: Row(406, CHANNEL, "reply consumer already set"),
    engine.ReplyConsumerAcknowledges: Row(406, CHANNEL, "reply consumer cannot acknowledge"),
    engine.InvalidCopies: Row(406, CHANNEL, 'invalid message: {{unacceptable_type_in_header,"{header}",{type}}}'),
    engine.AcknowledgementTimedOut: Row(
        406, CHANNEL, "delivery acknowledgement timed out. Timeout value used: {timeout_ms} ms", False
    ),
    engine.InvalidExpiration: Row(406, CHANNEL, "invalid expiration '{value}': {reason}"),
    engine.PartialCommit: Row(406, CHANNEL, "partial tx completion"),
    engine.InUse: Row(406, CHANNEL, _RESOURCE + " in use"),
    engine.NotEmpty: Row(406, CHANNEL, "queue '{name}' in vhost '{vhost}' not empty"),
    engine.UnknownDeliveryTag: Row(406, CHANNEL, "unknown delivery tag {tag}"),
    engine.NotTransactional: Row(406, CHANNEL, "channel is not transactional"),
    engine.ConfirmAfterTx: Row(406, CHANNEL, "cannot switch from tx to confirm mode"),
    engine.TxAfterConfirm: Row(406, CHANNEL, "cannot switch from confirm to tx mode"),
    engine.MessageTooLarge: Row(406, CHANNEL, "message size {size} is larger than configured max size {limit}"),
    engine.ConsumerTagInUse: Row(530, CONNECTION, "attempt to reuse consumer tag '{tag}'"),
    engine.LimitReached: Row(530, CONNECTION, "reached maximum ({limit}) of {what}"),
    engine.ConnectionsMaxReached: Row(
        530, CONNECTION, "access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached"
    ),
    engine.UserConnectionsMaxReached: Row(
        530, CONNECTION, "connection refused for user '{user}': user connection limit ({limit}) is reached"
    ),
    engine.UserChannelsMaxReached: Row(
        530,
        CONNECTION,
        "number of channels opened for user '{user}' has reached the maximum allowed user limit of ({limit})",
        False,
    ),
    engine.QueuesMaxReached: Row(
        406, CHANNEL, "cannot declare queue '{name}': queue limit in vhost '{vhost}' ({limit}) is reached"
    ),
    engine.AllQueuesMaxReached: Row(
        406, CHANNEL, "cannot declare queue '{name}': queue limit in cluster ({limit}) is reached"
    ),
    engine.BindingsMaxReached: Row(406, CHANNEL, "cannot bind {kind} '{name}': binding limit ({limit}) is reached"),
    engine.ConditionsMaxReached: Row(
        406, CHANNEL, "cannot bind to exchange '{name}' in vhost '{vhost}': condition limit ({limit}) is reached"
    ),
    engine.TopicStatesMaxReached: Row(
        406, CHANNEL, "cannot bind to exchange '{name}' in vhost '{vhost}': limit of topic states ({limit}) is reached"
    ),
    # AMQP's code for this is 506, which closes the connection. 406 closes one channel: other channels can continue.
    engine.DestinationFull: Row(406, CHANNEL, "{destination}: {limit} limit", constant="RESOURCE_ERROR"),
    engine.TransactionTooLarge: Row(406, CHANNEL, "transaction is larger than configured max size {limit}"),
    engine.UnackedMaxReached: Row(
        406, CHANNEL, "cannot get from queue '{name}': limit of unacknowledged deliveries ({limit}) is reached"
    ),
    engine.Expelled: Row(320, CONNECTION, "Closed via management plugin", False),
    engine.ConnectionForced: Row(320, CONNECTION, "{reason}", False),
    engine.UserDeleted: Row(320, CONNECTION, "user '{user}' is deleted", False),
    engine.VirtualHostDeleted: Row(320, CONNECTION, "vhost '{vhost}' is deleted", False),
    engine.NotSupported: Row(540, CONNECTION, "not supported"),
    engine.GlobalPrefetchNotSupported: Row(
        540, CONNECTION, "queue '{name}' in vhost '{vhost}' does not support global qos"
    ),
    engine.ConditionalDeleteNotSupported: Row(
        540,
        CONNECTION,
        "cannot delete queue '{name}' in vhost '{vhost}'. queue.delete operations with {flag} flag set are not "
        "supported by quorum queues",
    ),
    engine.NoAckNotSupported: Row(
        540, CONNECTION, "automatic acknowledgement not supported by stream queues queue '{name}' in vhost '{vhost}'"
    ),
    engine.StreamOperationNotSupported: Row(
        540, CONNECTION, "{operation} not supported by stream queues queue '{name}' in vhost '{vhost}'"
    ),
    engine.PrefetchMissing: Row(
        406, CHANNEL, "consumer prefetch count is not set for 'queue '{name}' in vhost '{vhost}''"
    ),
    engine.GetBesideActiveConsumerRefused: Row(
        405,
        CHANNEL,
        "cannot obtain access to locked queue '{name}' in vhost '{vhost}'. basic.get operations are not supported by "
        "quorum queues with single active consumer",
    ),
    # the frontend's own errors
    peer.UnknownFrame: Row(501, CONNECTION, "type {type}, {octets}: unknown_frame", False),
    peer.FrameEndMissing: Row(501, CONNECTION, "type {type}, {octets}: {{invalid_frame_end_marker,{end}}}", False),
    peer.FrameTooLarge: Row(
        501, CONNECTION, "type {type}, all octets = <<>>: {{frame_too_large,{size},{limit}}}", False
    ),
    peer.UnexpectedFrame: Row(505, CONNECTION, "type {type}, {octets}", False),
    peer.UndecodableArguments: Row(501, CONNECTION, "cannot decode {arguments_term}"),
    peer.MalformedShortString: Row(501, CONNECTION, "Malformed UTF-8 in shortstr", False),
    peer.MalformedConnectionString: Row(501, CONNECTION, "Malformed UTF-8 in shortstr"),
    peer.BadFieldTable: Row(502, CONNECTION, "{why}"),
    peer.UnimplementedMethod: Row(503, CONNECTION, "unimplemented method"),
    peer.UnexpectedMethod: Row(504, CONNECTION, "unexpected method in connection state {state}"),
    peer.ChannelNotOpen: Row(504, CONNECTION, "expected 'channel.open'"),
    peer.ChannelAlreadyOpen: Row(504, CONNECTION, "second 'channel.open' seen"),
    peer.TooManyChannels: Row(
        530, CONNECTION, "number of channels opened ({count}) has reached the negotiated channel_max ({limit})", False
    ),
    peer.IncompleteTooLarge: Row(506, CONNECTION, "incomplete messages of more than {limit} octets on this connection"),
    peer.ParkingExhausted: Row(506, CONNECTION, "{destination}: {limit} limit, no room for {waited_ms} ms", False),
    peer.MethodFrameExpected: Row(505, CONNECTION, "expected method frame, got non method frame instead", False),
    peer.ContentHeaderExpected: Row(
        505, CONNECTION, "expected content header for class 60, got non content header frame instead"
    ),
    peer.ContentHeaderOfOtherClass: Row(
        505, CONNECTION, "expected content header for class 60, got one for class {found} instead"
    ),
    peer.ContentBodyExpected: Row(505, CONNECTION, "expected content body, got non content body frame instead"),
    peer.ContentBodyTooLong: Row(501, CONNECTION, "content body frame exceeds remaining content size"),
    peer.ContentSizeTooLarge: Row(501, CONNECTION, "content body size {size} exceeds maximum allowed size {limit}"),
    peer.PropertiesUndecodable: Row(541, CONNECTION, None, False),
    peer.TuneTooLow: Row(
        530, CONNECTION, "negotiated {what} = {value} is lower than the minimum allowed value ({limit})"
    ),
    peer.TuneTooHigh: Row(
        530, CONNECTION, "negotiated {what} = {value} is higher than the maximum allowed value ({limit})"
    ),
    peer.NoQueueDeclared: Row(404, CHANNEL, "no previously declared queue"),
    peer.ImmediateNotImplemented: Row(540, CONNECTION, "immediate=true"),
    peer.ChannelTimedOut: Row(
        406,
        CHANNEL,
        "delivery acknowledgement on channel {channel} timed out. Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more",
        False,
    ),
    peer.UserIdMismatch: Row(406, CHANNEL, "user_id property set to '{claimed}' but authenticated user was '{user}'"),
    peer.PrefetchSizeNotImplemented: Row(540, CONNECTION, "prefetch_size!=0 ({size})"),
    peer.RequeueFalseNotImplemented: Row(540, CONNECTION, "requeue=false"),
    peer.FlowNotImplemented: Row(540, CONNECTION, "active=false"),
    peer.BrokerStopping: Row(320, CONNECTION, "broker forced connection closure with reason 'shutdown'", False),
    peer.NotLeading: Row(320, CONNECTION, "this node no longer leads", False),
    peer.NotLoggedIn: Row(504, CONNECTION, "{why}", False),
    peer.InternalError: Row(541, CONNECTION, None, False),
}


class Reply(NamedTuple):
    """Code and text of a close, and its scope."""

    code: int
    text: str
    scope: Scope
    with_ids: bool


#: Fields that are octets of the peer: they may hold a password or a body.
_SECRET = frozenset({"payload", "arguments"})


def text_for_log(error: Exception, text: str) -> str:
    """The text of a reply as it is logged: octets of the peer are replaced by the class of the error and their number.

    It also says if a login was refused before the password was checked. The peer must not learn that.
    """
    if isinstance(error, engine.LoginThrottled):
        return f"{text} (too many failed logins: no password is checked for {error.wait_ns // 1_000_000} ms)"
    for name in _SECRET & vars(error).keys():
        return f"{text.partition(' - ')[0]} - {type(error).__name__}, {len(vars(error)[name])} octets"
    return text


def describe(error: Exception) -> str:
    """An error without a reply, for the log."""
    fields = (
        f"{key}={f'{len(value)} octets' if key in _SECRET else repr(value)}" for key, value in vars(error).items()
    )
    return f"{type(error).__name__} {', '.join(fields)}".rstrip()


def reply_for(error: Exception) -> Reply:
    """The reply to an error; an exception without a row is a broker error (541)."""
    row = REPLY.get(type(error), REPLY[peer.InternalError])
    constant = row.constant or CONSTANTS[row.code]
    if row.text is None:
        return Reply(row.code, constant, row.scope, row.with_ids)
    text = fitting(f"{constant} - {row.text.format_map(Fields(error))}")
    return Reply(row.code, text, row.scope, row.with_ids)


def fitting(text: str) -> str:
    """A reply text, cut to `TEXT_MAX` octets."""
    raw = text.encode()
    return text if len(raw) <= TEXT_MAX else raw[: TEXT_MAX - len(CUT)].decode(errors="ignore") + CUT
