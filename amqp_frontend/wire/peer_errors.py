"""Errors by which this frontend ends a channel or a connection, most of them faults of the peer. Each has a class.

replies.py has the reply code and text of each class. The fields in the text are attributes, as with the engine's
errors; the docstrings name them. Source: behaviour page 0 to 2.
"""


class PeerError(Exception):
    """Ends a channel or a connection; fields are attributes, as with the engine's errors.

    `ids`: class and method id that a close names as its cause; None: those of the event that was being handled.
    """

    __slots__ = ("ids",)  # so it is not in __dict__

    def __init__(self, *, ids: tuple[int, int] | None = None, **fields: object) -> None:
        self.ids = ids
        super().__init__(", ".join(f"{key}={value!r}" for key, value in fields.items()))
        self.__dict__.update(fields)


class UnknownFrame(PeerError):
    """A frame type that does not exist, or a frame that cannot be one of its type. Fields: type, payload."""


class FrameEndMissing(PeerError):
    """The octet after the payload is not 206. Fields: type, payload, end."""


class FrameTooLarge(PeerError):
    """A frame is larger than frame-max. Fields: type, size, limit."""


class UnexpectedFrame(PeerError):
    """A frame that its channel or the connection's state does not allow. Fields: type, payload."""


class UndecodableArguments(PeerError):
    """Method arguments are cut short, or other octets follow them. Fields: arguments."""


class MalformedShortString(PeerError):
    """A short string of a method is not UTF-8."""


class MalformedConnectionString(PeerError):
    """A malformed short string on channel 0, where the close names the method."""


class BadFieldTable(PeerError):
    """A field table with an unknown tag or nested too deep. Fields: why."""


class UnimplementedMethod(PeerError):
    """A method that does not exist, that only a server sends, or that is not allowed on its channel."""


class UnexpectedMethod(PeerError):
    """A method on channel 0 that does not fit the connection's state. Fields: state."""


class ChannelNotOpen(PeerError):
    """A method on a channel that is not open."""


class ChannelAlreadyOpen(PeerError):
    """channel.open on an open channel."""


class TooManyChannels(PeerError):
    """channel.open beyond channel-max. Fields: count, limit."""


class IncompleteTooLarge(PeerError):
    """Incomplete messages of all channels exceed the limit. Fields: limit (octets)."""


class MethodFrameExpected(PeerError):
    """Content on a channel where no content was announced."""


class ContentHeaderExpected(PeerError):
    """Anything but a content header after basic.publish."""


class ContentHeaderOfOtherClass(PeerError):
    """A content header of a class that has no content. Fields: found."""


class ContentBodyExpected(PeerError):
    """Anything but body frames until the body is whole."""


class ContentBodyTooLong(PeerError):
    """Body frames carry more octets than the header announced."""


class ContentSizeTooLarge(PeerError):
    """The header announces more than any message may have. Fields: size, limit."""


class PropertiesUndecodable(PeerError):
    """The property list of a content header cannot be read."""


class TuneTooLow(PeerError):
    """tune-ok asks for less than the minimum. Fields: what, value, limit."""


class TuneTooHigh(PeerError):
    """tune-ok asks for more than was offered, or for no limit. Fields: what, value, limit."""


class NoQueueDeclared(PeerError):
    """An empty queue name on a channel that has declared none."""


class ImmediateNotImplemented(PeerError):
    """basic.publish with immediate."""


class ParkingExhausted(PeerError):
    """The parking is full, and no parked publish was accepted for long. Fields: destination, limit, waited_ms."""


class UserIdMismatch(PeerError):
    """The user-id property names another user. Fields: claimed, user."""


class ChannelTimedOut(PeerError):
    """The engine's AcknowledgementTimedOut, with the channel's number. Fields: channel, timeout_ms."""


class PrefetchSizeNotImplemented(PeerError):
    """basic.qos with a prefetch-size. Fields: size."""


class RequeueFalseNotImplemented(PeerError):
    """basic.recover without requeue."""


class FlowNotImplemented(PeerError):
    """channel.flow(active=false) in profiles that refuse it."""


class NotLoggedIn(PeerError):
    """An error before the login: it is logged, and the peer gets no answer. Fields: why."""


class BrokerStopping(PeerError):
    """The broker ends all connections."""


class NotLeading(PeerError):
    """Another node of the cluster leads, or may lead: all connections end."""


class InternalError(PeerError):
    """A broker error, without details for the peer."""
