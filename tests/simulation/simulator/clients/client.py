"""A connection that is made again whenever it is lost, with its handshake, heartbeats and outstanding questions.

What it does is the business of its channels (`channel.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leveret.interop.wire.raw_codec import PROTOCOL_HEADER, Method, decode_method, method_frame

from ..answers import Answers
from ..books import Books
from ..disk import Disk
from ..ledger import Broken, Ledger
from ..loop import SECOND
from ..network import Link, Network
from ..parts import NORMAL_PACE
from ..plan import ClientPlan, Plan
from ..schedule import Schedule
from .knowledge import Knowledge
from .wire import (  # fmt: skip
    ACK,
    BODY,
    DELIVER,
    GET_OK,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    NACK,
    RETURN,
    WITH_CONTENT,
    address_of,
    frames_in,
    read_delivery,
    read_settled,
)

if TYPE_CHECKING:
    from .channel import Channel

#: What clients ask for: seconds between heartbeats, octets of a frame, channels. Some ask for something else.
HEARTBEAT_S = 10
FRAME_MAX = 16 * 1024
CHANNEL_MAX = 2047
#: While none of these disturbs it, a connection never goes without heartbeats.
SILENCING = frozenset(
    {
        *("pause", "latency", "stalled client", "one-way stall", "slow reader", "half-open", "half-closed"),
        "site goes",
    }
)
#: What ends no connection.
HARMLESS = frozenset(
    {
        *("slow disk", "short writes", "clock jump", "operator sets a policy", "operator clears a policy"),
        *("operator sets a parameter", "operator looks", "operator changes the configuration", "operator traces"),
        *("operator changes lease periods", "operator moves messages", "operator discards messages"),
        *("operator purges a queue", "operator pauses a queue", "operator changes what is scheduled"),
        *("operator changes what is explored", "operator settles tenants"),
    }
)
#: Answers to methods that do not wait behind publishes that are held (queues page E.5).
PASSING = frozenset({"channel.flow-ok", "basic.cancel-ok"})
#: How often the time between two tries to connect doubles: to half a minute on average.
TRIES_MAX = 6
#: How likely a client closes a channel instead of what that would do, where it closes any.
LEAVES = 0.1

Answered = Callable[[Method], object]


class Question(NamedTuple):
    """A method that is to be answered. `answer`: the names of the answers, with | between them."""

    channel: int
    answer: str
    then: Answered
    asked_ns: int


class State(Enum):
    """Of a connection."""

    OFFLINE = auto()
    OPENING = auto()
    RUNNING = auto()
    CLOSING = auto()


OFFLINE, OPENING, RUNNING, CLOSING = State


def is_silenced(plan: Plan) -> bool:
    """Whether connections of this world may go without heartbeats."""
    return any(fault.kind in SILENCING for fault in plan.faults)


class Mood(Enum):
    """Of all clients: they do what they like; they wait and see; they finish what they have begun and settle all."""

    BUSY = auto()
    PAUSING = auto()
    ENDING = auto()


BUSY, PAUSING, ENDING = Mood


class Surroundings(Protocol):
    """What a client is given."""

    plan: Plan
    schedule: Schedule
    network: Network
    disk: Disk
    answers: Answers
    knowledge: Knowledge
    books: Books
    ledger: Ledger
    host: Any  # None between two lives of the broker


class Client:
    """Opens its channels, one after the other, whenever it is connected."""

    def __init__(self, world: Surroundings, plan: ClientPlan, make: Callable[[Client], list[Channel]]) -> None:
        self.world = world
        self.number = plan.number
        self.chance = Random(plan.seed)
        self.state = OFFLINE
        self.user = plan.options.get("user", "guest")
        self.vhost = plan.options.get("vhost", "/")
        self.site: str | None = plan.options.get("site")  # where it is connected; None: wherever the broker is
        self.announces: bool = plan.options.get("announces", True)  # that it wants to hear when it is blocked
        self._hears_cancels: bool = plan.options.get("hears_cancels", True)
        self.frame_max: int = plan.options.get("frame_max", FRAME_MAX)
        self._heartbeat_s: int = plan.options.get("heartbeat", HEARTBEAT_S)
        self._beat_ns = self._heartbeat_s * SECOND * 45 // 100  # half of it would be a multiple of `QUIET_S`
        self.channel_max: int = plan.options.get("channel_max", CHANNEL_MAX)
        self.link: Link | None = None
        self.waiting: deque[Question] = deque()
        self.blocked = False
        self.mood = BUSY
        self._buffer = bytearray()
        self._contents: dict[int, tuple[bytes, list[bytes], int]] = {}  # channel -> method, body so far, octets left
        self._heard_ns = 0
        self.header = b""  # of the content that came last
        self.address = b""  # exchange and routing key of the delivery that came last
        self.closes = (0, 0)  # class and method that the broker's last close says failed
        self.life = 0  # number of the connection
        self._tries = 0  # of connecting, since one succeeded; each waits twice as long as the one before
        self.channels = {channel.number: channel for channel in make(self)}
        self._may_be_lost = any(fault.kind not in HARMLESS for fault in world.plan.faults) or any(
            channel.connection_ends for channel in self.channels.values()
        )
        self.comes_and_goes = any(channel.comes_and_goes for channel in self.channels.values())

    # -- life ---------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open a connection, or try again soon."""
        world = self.world
        if self.state is not OFFLINE:
            return
        if self.comes_and_goes and self.mood is not BUSY:
            self._connect_later()
            return
        self.link = world.network.connect(self, self.site)
        if self.link is None:
            self._connect_later()
            return
        self.life += 1
        self.state = OPENING
        self._buffer.clear()
        self._contents.clear()
        self.blocked = False
        self._heard_ns = world.schedule.now_ns
        self.opened_ns = world.schedule.now_ns
        life = self.life
        world.schedule.after(self._beat_ns, lambda: self._beat(life))
        self.send(PROTOCOL_HEADER)

    def _connect_later(self) -> None:
        self._tries = min(self._tries + 1, TRIES_MAX)
        after_ns = self.chance.randrange(SECOND // 100, SECOND) << self._tries
        self.world.schedule.after(int(after_ns * NORMAL_PACE / self.world.plan.pace), self.connect)

    def disconnected(self) -> None:
        """Raises: Broken, where nothing in the world ends connections."""
        if self.state is RUNNING and self.mood is not ENDING and not self._may_be_lost:
            raise Broken(f"client {self.number} lost its connection, and nobody said why")
        self._gone()

    def _gone(self) -> None:
        if self.state is OFFLINE:
            return
        self.state = OFFLINE
        if self.link is not None:
            self.link.close()  # it may have been an earlier link that ended: this one would end the next connection
        self.waiting.clear()
        for channel in self.channels.values():
            channel.is_open = False
            channel.lost()
        self._connect_later()

    def give_up(self) -> None:
        """Drop the connection without a word."""
        if self.link is not None and self.state is not OFFLINE:
            self.link.close()
            self._gone()

    def _beat(self, life: int) -> None:
        if life != self.life or self.state is OFFLINE:
            return
        schedule = self.world.schedule
        if schedule.now_ns - self._heard_ns > 2 * self._heartbeat_s * SECOND:
            if self.state is RUNNING and not is_silenced(self.world.plan):
                raise Broken(f"client {self.number} got no heartbeat, and its connection is whole")
            self.give_up()
            return
        if self.state is RUNNING:
            self.send(HEARTBEAT_FRAME)
        schedule.after(self._beat_ns, lambda: self._beat(life))

    def close(self) -> None:
        """Say goodbye; the connection is made again later."""
        if self.state is RUNNING:
            self.state = CLOSING
            self.ask(0, "connection.close", "connection.close-ok", self._closed, reply_code=200, reply_text="bye")

    def _closed(self, _: Method) -> None:
        for channel in self.channels.values():
            channel.said_goodbye()
        assert self.link is not None
        self.link.close()
        self._gone()

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Octets to the broker."""
        assert self.link is not None
        self.link.send(data)

    def ask(self, channel: int, name: str, answer: str, then: Answered, **arguments: Any) -> None:
        """A method that is answered."""
        self.waiting.append(Question(channel, answer, then, self.world.schedule.now_ns))
        self.world.knowledge.operations += 1
        self.send(method_frame(channel, name, **arguments))

    # -- receiving ----------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._heard_ns = self.world.schedule.now_ns
        buffer = self._buffer
        buffer += data
        for kind, channel, payload in frames_in(buffer):
            if len(payload) > self.frame_max - 8:
                raise Broken(f"client {self.number} got a frame of {len(payload)} octets, and was to get none")
            if kind == METHOD:
                self._method(channel, payload)
            elif kind == HEADER:
                self._header(channel, payload)
            elif kind == BODY:
                self._body(channel, payload)
            elif kind != HEARTBEAT:
                raise Broken(f"a frame of the unknown type {kind}")
            if self.state is OFFLINE:
                return

    def _method(self, channel: int, payload: bytes) -> None:
        name = payload[:4]
        if channel in self._contents:
            raise Broken(f"a method came before a content of channel {channel} was whole")
        if name in WITH_CONTENT:
            self._contents[channel] = payload, [], -1
        elif name == ACK:
            self.channels[channel].confirmed(*read_settled(payload), is_ack=True)
        elif name == NACK:
            self.channels[channel].confirmed(*read_settled(payload), is_ack=False)
        else:
            self._other_method(decode_method(payload, channel))

    def _header(self, channel: int, payload: bytes) -> None:
        content = self._contents.get(channel)
        if content is None or content[2] != -1:
            raise Broken("a content header without its method")
        self.header = payload
        size = int.from_bytes(payload[4:12], "big")
        self._contents[channel] = content[0], [], size
        if not size:
            self._whole(channel)

    def _body(self, channel: int, payload: bytes) -> None:
        content = self._contents.get(channel)
        if content is None or len(payload) > content[2]:
            raise Broken("a body frame that nobody announced")
        method, pieces, left = content
        pieces.append(payload)
        self._contents[channel] = method, pieces, left - len(payload)
        if left == len(payload):
            self._whole(channel)

    def _whole(self, channel: int) -> None:
        method, pieces, _ = self._contents.pop(channel)
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        name = method[:4]
        if name != RETURN:
            self.address = address_of(method)
        if name == DELIVER:
            self.world.knowledge.deliveries += 1
            self.channels[channel].delivered(*read_delivery(method), body)
        elif name == GET_OK:
            self._answer(decode_method(method, channel), body)
        elif name == RETURN:
            self.channels[channel].returned(decode_method(method, channel), body)

    def _other_method(self, method: Method) -> None:
        handler = _HANDLERS.get(method.name)
        if handler is not None:
            handler(self, method)
        else:
            self._answer(method)

    def _answer(self, method: Method, body: bytes | None = None) -> None:
        for index, (channel, answer, then, _) in enumerate(self.waiting):
            if channel == method.channel:
                if method.name not in answer.split("|"):
                    if method.name in PASSING and self.channels[channel].may_be_held:
                        continue
                    raise Broken(f"client {self.number} expected {answer} and got {method.name}")
                del self.waiting[index]
                self.asked_ns = self.world.schedule.now_ns
                if body is not None:
                    method.arguments["body"] = body
                then(method)
                return
        raise Broken(f"client {self.number} got {method.name} without a question")

    # -- the handshake ------------------------------------------------------------------------------------------------

    def _start(self, _: Method) -> None:
        response = f"\0{self.user}\0{self.user}".encode()
        capabilities = {
            "connection.blocked": self.announces, "consumer_cancel_notify": self._hears_cancels, "basic.nack": True
        }  # fmt: skip
        properties = {"capabilities": capabilities, "product": self.product}
        self.send(
            method_frame(
                0, "connection.start-ok",
                client_properties=properties, mechanism="PLAIN", response=response, locale="en_US",
            )
        )  # fmt: skip

    def _tune(self, method: Method) -> None:
        assert method["frame_max"] >= self.frame_max
        asked = {"channel_max": self.channel_max, "frame_max": self.frame_max, "heartbeat": self._heartbeat_s}
        self.send(method_frame(0, "connection.tune-ok", **asked))
        self.ask(0, "connection.open", "connection.open-ok", self._open, virtual_host=self.vhost)

    def _open(self, _: Method) -> None:
        self.state = RUNNING
        self._tries = -1
        for number in self.channels:
            self.open_channel(number)

    def open_channel(self, number: int) -> None:
        """Its channel of that number; `opened` when it is there."""
        self.ask(number, "channel.open", "channel.open-ok", lambda _: self._channel_opened(number))

    def close_channel(self, number: int) -> None:
        """Its channel of that number, which is opened again."""
        self.channels[number].is_open = False
        ends = {"reply_code": 200, "reply_text": "", "class_id": 0, "method_id": 0}
        self.ask(number, "channel.close", "channel.close-ok", lambda _: self._channel_closed(number), **ends)

    def _channel_closed(self, number: int) -> None:
        channel = self.channels[number]
        channel.ended()
        channel.lost()
        self.world.books.deliveries.closed(self.product, number)
        self.world.knowledge.happened["channel closed by its client"] += 1
        self.open_channel(number)

    def _channel_opened(self, number: int) -> None:
        channel = self.channels[number]
        channel.is_open = True
        channel.opened()

    def _close_of_connection(self, method: Method) -> None:
        self.send(method_frame(0, "connection.close-ok"))
        self.closes = method["class_id"], method["method_id"]
        self.closed(method["reply_code"], method["reply_text"])
        self.give_up()

    def _close_of_channel(self, method: Method) -> None:
        channel = self.channels[method.channel]
        asked = [one for one in self.waiting if one.channel == channel.number]
        self.waiting = deque(one for one in self.waiting if one.channel != channel.number)
        self.send(method_frame(channel.number, "channel.close-ok"))
        self.closes = method["class_id"], method["method_id"]
        channel.is_open = False
        channel.closed(method["reply_code"], method["reply_text"])
        channel.lost()
        closing = [one for one in asked if one.answer == "channel.close-ok"]
        if closing:  # both closed it at once: the broker answers this client's close, too
            self.waiting.append(closing[0]._replace(then=lambda _: self.open_channel(channel.number)))
        else:
            self.open_channel(channel.number)

    def _blocked(self, _: Method) -> None:
        if self.blocked or not self.announces:
            raise Broken(f"client {self.number} hears that it is blocked, twice or without having asked for it")
        self.blocked = True
        self.world.knowledge.happened["connection.blocked"] += 1

    def _unblocked(self, _: Method) -> None:
        if not self.blocked:
            raise Broken(f"client {self.number} hears that it is not blocked any more, and was not")
        self.blocked = False
        self.world.knowledge.happened["connection.unblocked"] += 1

    def _cancelled(self, method: Method) -> None:
        if not self._hears_cancels:
            raise Broken(f"client {self.number} hears that a consumer was cancelled, and does not know what that is")
        self.channels[method.channel].cancelled(method["consumer_tag"])

    # -- what it does -------------------------------------------------------------------------------------------------

    @property
    def product(self) -> str:
        """What this connection calls itself, which no other one does."""
        return f"simulated {self.number}.{self.life}"

    def act(self) -> None:
        """It is this client's turn to do something."""
        chance = self.chance
        if self.state is not RUNNING or self.mood is PAUSING:
            return
        if self.mood is BUSY and chance.random() < 0.002:
            self.close()
            return
        for channel in self.channels.values():
            if channel.is_open and (len(self.channels) == 1 or chance.random() < 0.5 or self.mood is ENDING):
                if self.mood is not BUSY:
                    channel.finish()
                elif channel.leaves and not self._is_asked(channel.number) and chance.random() < LEAVES:
                    self.close_channel(channel.number)
                else:
                    channel.act()

    def _is_asked(self, channel: int) -> bool:
        return any(question.channel == channel for question in self.waiting)

    def unanswered(self) -> Question | None:
        """The oldest question that nobody has answered yet; None: it waits for nothing."""
        if self.waiting:
            return self.waiting[0]
        if self.state in (OPENING, CLOSING):
            return Question(0, self.state.name, lambda _: None, self.opened_ns)
        questions = [one for channel in self.channels.values() if (one := channel.unanswered()) is not None]
        return min(questions, key=lambda one: one.asked_ns) if questions else None

    def closed(self, code: int, text: str) -> None:
        """The broker closed the connection, and says why."""
        is_stall = code == 506 and "[flow]" in self.world.plan.configuration
        ended = [channel for channel in self.channels.values() if code in channel.connection_ends]
        for channel in ended:
            channel.connection_closed(code, text)
        if is_stall or ended:
            self.world.knowledge.happened[f"connection closed: {code}"] += 1
        elif code != 320 and (code != 541 or not self.world.disk.is_troubled):  # what it did will never be durable
            raise Broken(f"client {self.number} was closed: {code} {text}")


_HANDLERS: dict[str, Callable[[Client, Method], None]] = {
    "connection.start": Client._start,
    "connection.tune": Client._tune,
    "connection.close": Client._close_of_connection,
    "channel.close": Client._close_of_channel,
    "connection.blocked": Client._blocked,
    "connection.unblocked": Client._unblocked,
    "basic.cancel": Client._cancelled,
}
