"""The output of a connection to a broker whose records have to be agreed on by other nodes of a cluster.

Agreement takes some milliseconds, or much longer if a node does not answer. So output that waits for it delays only
its own channel: each channel has a queue of pieces, and each piece waits for its own LSN. Confirms and returns are sent
ahead of waiting deliveries. Without a cluster, the whole connection waits (`JournalWait`).
Source: docs/decisions/0027-agreed-deliveries.md.
"""

from collections import deque
from collections.abc import Callable, Iterable

from pamqp import commands

from ...engine import UNTIL_CAUGHT_UP, Broker, ConsumerCancelled, SessionFailed
from ..ended import nothing
from ..wire.codec import Method, answer_frame
from ..wire.frames import Connection
from ..wire.large_output import AVERAGE_MIN, Octets
from .deliveries import ConsumerWire
from .login import Login
from .output import Output, renderer_of

_ENDS_CHANNEL = frozenset({commands.Channel.Close, commands.Channel.CloseOk})
_ENDS_CONNECTION = frozenset({commands.Connection.Close, commands.Connection.CloseOk})


class Piece:
    """Output of one channel that waits for an LSN. `octets`: its size; `reply_size`: that of its answers.

    `is_open`: until the turn ends, output of the channel is added to it. `is_passable`: it has only deliveries, so
    confirms and returns may be sent ahead of it.
    """

    __slots__ = ("is_open", "is_passable", "lsn", "octets", "parts", "reply_size")

    def __init__(self, lsn: int, *, is_passable: bool) -> None:
        self.lsn = lsn
        self.is_passable = is_passable
        self.is_open = True
        self.parts: list[Octets] = []
        self.octets = self.reply_size = 0


class AgreedOutput(Output):
    """Output that can wait, channel by channel, for LSNs. `waiting_octets`: the size of all waiting output.

    `waiting`: channel number -> its waiting output, oldest first, never empty.
    """

    __slots__ = ("_broker", "_waiting_reply_size", "_last", "waiting", "waiting_octets")

    def __init__(self, broker: Broker, login: Login, connection: Connection, wake: Callable[[], None]) -> None:
        super().__init__(login, connection, wake)
        self._broker = broker
        self._waiting_reply_size = 0  # of the waiting answers; `reply_size` is that of all
        self._last: tuple[int, list[Octets], Octets] | None = None  # the last answer: channel, list it is in, octets
        self.waiting_octets = 0
        self.waiting: dict[int, deque[Piece]] = {}

    # -- waiting output ---------------------------------------------------------------------------------------------

    def delay(self, number: int, lsn: int, *, is_passable: bool = True) -> None:
        """Make the deliveries in the outbox, and later output of this turn on the channel, wait for an LSN."""
        pieces = self.waiting.get(number)
        if pieces is None:
            pieces = self._begin(number)
        elif (piece := pieces[-1]).is_open:
            piece.lsn = max(piece.lsn, lsn)
            piece.is_passable &= is_passable
            return
        pieces.append(Piece(lsn, is_passable=is_passable))

    def forget_answer(self) -> None:
        """Forget the last answer: `delay_answer` is about later ones."""
        self._last = None

    def delay_answer(self, number: int, lsn: int) -> bool:
        """Make the last answer wait for an LSN, if it was on this channel. Returns: whether it was."""
        if self._last is None or self._last[0] != number:
            return False  # with nowait there is no answer
        _, parts, raw = self._last
        if not parts or parts[-1] is not raw:
            return False  # there are deliveries behind it
        parts.pop()
        pieces = self.waiting.get(number)
        if pieces is None:
            pieces = self._begin(number)
            self.reply_size -= len(raw)
        else:
            self._shrink(pieces[-1], len(raw))
        piece = Piece(lsn, is_passable=False)
        piece.is_open = False
        pieces.append(piece)
        self._grow(piece, (raw,), len(raw))
        self._last = (number, piece.parts, raw)
        return True

    def _begin(self, number: int) -> deque[Piece]:
        """Make output of a channel wait. The connection is flushed when the journal has made progress."""
        client = self._login.client
        if client is not None:
            self._broker.context.awaiting[client] = None
        pieces = self.waiting[number] = deque()
        return pieces

    def delay_all(self, lsn: int) -> None:
        """Make all output of this turn, earlier and later, wait for an LSN."""
        for number in self._connection.channels:
            self.delay(number, lsn, is_passable=False)

    def _grow(self, piece: Piece, parts: Iterable[Octets], reply_size: int) -> None:
        before = len(piece.parts)
        piece.parts += parts
        octets = sum(map(len, piece.parts[before:]))
        piece.octets += octets
        piece.reply_size += reply_size
        self.waiting_octets += octets
        self._waiting_reply_size += reply_size
        self.reply_size += reply_size

    def _shrink(self, piece: Piece, reply_size: int) -> None:
        piece.octets -= reply_size
        piece.reply_size -= reply_size
        self.waiting_octets -= reply_size
        self._waiting_reply_size -= reply_size
        self.reply_size -= reply_size

    def _drop(self, number: int) -> None:
        for piece in self.waiting.pop(number, ()):
            self._subtract(piece)
            self.reply_size -= piece.reply_size

    def _drop_deliveries(self, number: int) -> None:
        """Drop the pieces without answers: answers are sent before the end of their channel."""
        for piece in self.waiting.pop(number, ()):
            if piece.reply_size:
                self.waiting.setdefault(number, deque()).append(piece)
            else:
                self._subtract(piece)

    def _subtract(self, piece: Piece) -> None:
        """Subtract the size of a piece that no longer waits."""
        self.waiting_octets -= piece.octets
        self._waiting_reply_size -= piece.reply_size

    # -- output -----------------------------------------------------------------------------------------------------

    def send(self, number: int, method: type[Method], *values: object) -> None:
        self.render()
        if method in _ENDS_CHANNEL:
            self._drop_deliveries(number)  # they are requeued
        elif method in _ENDS_CONNECTION:
            for other in list(self.waiting):
                self._drop(other)
        raw = answer_frame(number, method, *values)
        self._last = (number, self._answer(number, (raw,)), raw)

    def send_raw(self, number: int, *parts: Octets) -> None:
        self._last = (number, self._answer(number, parts), parts[-1])

    def _answer(self, number: int, parts: tuple[Octets, ...]) -> list[Octets]:
        """Add an answer behind the waiting output of its channel. Returns: the list that it was added to."""
        size = sum(map(len, parts))
        pieces = self.waiting.get(number)
        if pieces is None:
            self.parts += parts
            self.reply_size += size
            return self.parts
        pieces[-1].is_passable = False
        self._grow(pieces[-1], parts, size)
        return pieces[-1].parts

    def send_ahead(self, number: int, *parts: Octets) -> None:
        pieces = self.waiting.get(number)
        size = sum(map(len, parts))
        if pieces is None or all(piece.is_passable for piece in pieces):
            self.parts += parts
            self.reply_size += size
        else:
            pieces[-1].is_passable = False  # later confirms stay behind these: a confirm behind the return it follows
            self._grow(pieces[-1], parts, size)

    def render(self) -> None:
        if not self.waiting:
            super().render()
            return
        client = self._login.client
        if client is None or not client.outbox:
            return
        effects, client.outbox = client.outbox, []
        frame_max, waiting = self._connection.frame_max, self.waiting
        for effect in effects:
            if type(effect) is SessionFailed:
                self.on_session_failed(effect)
                continue
            assert not isinstance(effect, SessionFailed)
            wire = effect.consumer.opaque
            assert isinstance(wire, ConsumerWire)
            pieces = waiting.get(wire.number)
            if isinstance(effect, ConsumerCancelled):
                parts = self.rendered_cancel(effect)
            else:
                parts = renderer_of(type(effect))(effect, frame_max)
            if pieces is None:
                self.parts += parts
            else:
                self._grow(pieces[-1], parts, 0)

    def take(self) -> list[Octets]:
        taken = super().take()
        self._last = None  # it is being sent
        self.reply_size = self._waiting_reply_size
        if self.waiting:
            self._release(taken)
        return taken

    def _release(self, taken: list[Octets]) -> None:
        """Add the pieces whose wait is over. The others ask for a flush when the journal has made progress."""
        durability = self._broker.context.storage.durability
        assert durability is not None
        safe_lsn, is_behind = durability.safe_lsn, durability.is_behind
        waiting_before = self.waiting_octets
        for number, pieces in list(self.waiting.items()):
            pieces[-1].is_open = False
            while pieces and (pieces[0].lsn <= safe_lsn or (pieces[0].lsn == UNTIL_CAUGHT_UP and not is_behind)):
                piece = pieces.popleft()
                taken += piece.parts
                self._subtract(piece)
            if not pieces:
                del self.waiting[number]
        self.reply_size = self._waiting_reply_size
        self.is_large = sum(map(len, taken)) > len(taken) * AVERAGE_MIN
        client, context = self._login.client, self._broker.context
        if client is not None:
            if self.waiting:
                context.awaiting[client] = None
            if client.paused and self.waiting_octets < waiting_before:  # the deadline begins a turn that dispatches
                context.deadlines.set(context.clock.monotonic_ns(), nothing)

    def clear(self) -> None:
        super().clear()
        self.waiting.clear()
        self.waiting_octets = self._waiting_reply_size = self.reply_size = 0
        self._last = None
