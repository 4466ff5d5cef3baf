"""The states of connections, channels and parkings as tables, and the methods that a peer may send in each state.

docs/states.md is drawn from them. A step that is missing in a state is an error.
Source: AMQP 0-9-1 2.2.4, 2.2.5; behaviour page 1.1, 1.12; queues page E.5.
"""

from enum import Enum, auto


class _Key(Enum):
    """Keys of the tables below. They have the hash of `object`, in C: `Enum` would call Python for each look-up."""

    __hash__ = object.__hash__


class ConnectionState(_Key):
    """State of a connection, from the server's side."""

    HEADER = auto()  # waiting for the protocol header
    STARTING = auto()  # start sent, waiting for start-ok
    TUNING = auto()  # tune sent, waiting for tune-ok
    OPENING = auto()  # tuned, waiting for open
    RUNNING = auto()
    CLOSING = auto()  # the broker sent close, waiting for close-ok
    CLOSED = auto()  # close-ok was sent or received: waiting for the peer to disconnect
    REFUSED = auto()  # an error without an answer: silence, then the socket is closed


class ConnectionStep(_Key):
    """Events that change the state of a connection."""

    HEADER = auto()
    LOGIN = auto()
    TUNE = auto()
    OPEN = auto()
    CLOSE = auto()  # the peer's close
    CLOSE_SENT = auto()
    CLOSE_OK = auto()
    REFUSE = auto()


_S, _E = ConnectionState, ConnectionStep
_ERRORS = {_E.CLOSE_SENT: _S.CLOSING, _E.REFUSE: _S.REFUSED}

CONNECTION_NEXT: dict[ConnectionState, dict[ConnectionStep, ConnectionState]] = {
    _S.HEADER: {_E.HEADER: _S.STARTING, _E.REFUSE: _S.REFUSED},
    _S.STARTING: {_E.LOGIN: _S.TUNING, **_ERRORS},
    _S.TUNING: {_E.TUNE: _S.OPENING, **_ERRORS},
    _S.OPENING: {_E.OPEN: _S.RUNNING, **_ERRORS},
    _S.RUNNING: {_E.CLOSE: _S.CLOSED, **_ERRORS},
    _S.CLOSING: {_E.CLOSE: _S.CLOSING, _E.CLOSE_OK: _S.CLOSED, _E.CLOSE_SENT: _S.CLOSING},
    _S.CLOSED: {},
    _S.REFUSED: {},
}


#: Methods that a peer may send on channel 0. While the connection is closing, others are ignored; after that, all.
CONNECTION_METHODS: dict[ConnectionState, tuple[str, ...]] = {
    _S.HEADER: (),
    _S.STARTING: ("connection.start-ok",),
    _S.TUNING: ("connection.tune-ok",),
    _S.OPENING: ("connection.open",),
    _S.RUNNING: ("connection.close", "connection.update-secret"),
    _S.CLOSING: ("connection.close", "connection.close-ok"),
    _S.CLOSED: (),
    _S.REFUSED: (),
}


class ChannelState(_Key):
    """State of a channel; a number without a channel is closed."""

    OPEN = auto()
    CLOSING = auto()  # the broker sent close: everything but close and close-ok is ignored
    CROSSED = auto()  # as CLOSING, and the peer sent close, too: it may open the number again at once
    CLOSED = auto()


class ChannelStep(_Key):
    """Events that change the state of a channel."""

    CLOSE = auto()
    CLOSE_SENT = auto()
    CLOSE_OK = auto()


_C, _D = ChannelState, ChannelStep

CHANNEL_NEXT: dict[ChannelState, dict[ChannelStep, ChannelState]] = {
    _C.OPEN: {_D.CLOSE: _C.CLOSED, _D.CLOSE_SENT: _C.CLOSING},
    _C.CLOSING: {_D.CLOSE: _C.CROSSED, _D.CLOSE_OK: _C.CLOSED},
    _C.CROSSED: {_D.CLOSE: _C.CROSSED, _D.CLOSE_OK: _C.CLOSED},
    _C.CLOSED: {},
}

#: Methods that a peer may send on a channel of a running connection. While the channel is closing, others are ignored.
CHANNEL_METHODS: dict[ChannelState, tuple[str, ...]] = {
    _C.OPEN: (
        *("channel.close", "channel.flow", "channel.flow-ok"),
        "access.request",
        *("exchange.declare", "exchange.delete", "exchange.bind", "exchange.unbind"),
        *("queue.declare", "queue.bind", "queue.unbind", "queue.purge", "queue.delete"),
        *("basic.qos", "basic.consume", "basic.cancel", "basic.cancel-ok", "basic.publish", "basic.get"),
        *("basic.ack", "basic.nack", "basic.reject", "basic.recover-async", "basic.recover"),
        "confirm.select",
        *("tx.select", "tx.commit", "tx.rollback"),
    ),
    _C.CLOSING: ("channel.close", "channel.close-ok"),
    _C.CROSSED: ("channel.close", "channel.close-ok", "channel.open"),
    _C.CLOSED: ("channel.open",),
}


class ParkingState(_Key):
    """State of a connection's parking."""

    OPEN = auto()  # nothing is parked
    PARKING = auto()  # work is parked; the peer is read, and events that may pass are handled
    NOTIFIED = auto()  # as PARKING, and connection.blocked was sent
    STALLED = auto()  # as PARKING, but the peer is not read, because too much is parked
    NOTIFIED_STALLED = auto()  # as STALLED, and connection.blocked was sent


class ParkingStep(_Key):
    """Events that change the state of a parking."""

    PARK = auto()  # the first publish is parked
    NOTIFY = auto()  # connection.blocked is sent
    STALL = auto()  # the parking is full
    RESUME = auto()  # it is half empty again
    UNBLOCK = auto()  # connection.unblocked is sent while work is parked
    UNBLOCK_EMPTY = auto()  # connection.unblocked is sent, and nothing is parked
    EMPTY = auto()  # the last parked work is gone


_H, _K = ParkingState, ParkingStep

PARKING_NEXT: dict[ParkingState, dict[ParkingStep, ParkingState]] = {
    _H.OPEN: {_K.PARK: _H.PARKING},
    _H.PARKING: {_K.NOTIFY: _H.NOTIFIED, _K.STALL: _H.STALLED, _K.EMPTY: _H.OPEN},
    _H.NOTIFIED: {_K.STALL: _H.NOTIFIED_STALLED, _K.UNBLOCK: _H.PARKING, _K.UNBLOCK_EMPTY: _H.OPEN},
    _H.STALLED: {_K.RESUME: _H.PARKING, _K.NOTIFY: _H.NOTIFIED_STALLED},
    _H.NOTIFIED_STALLED: {_K.RESUME: _H.NOTIFIED, _K.UNBLOCK: _H.STALLED},
}
