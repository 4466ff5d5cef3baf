"""Record and replay: the input of clients, with its time, in a file; and a replay of it to another broker.

A file is JSON lines. The first is {"leveret-recording": 1}; then one line an event: `at` (seconds since the
recording began, by the broker's clock), `connection` (a number), `event`:

    opened    vhost, user, name, frame_max, channel_max, capabilities: a client has logged in
    received  octets (base64): its input, exactly as received
    named     name: a name that the broker generated for a queue or a consumer, used again in the replay
    closed

Logins are not recorded, so no file holds a password.
"""

import base64
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from ..amqp_frontend.peer.login import Peer
from ..amqp_frontend.session.closing import Closing
from ..amqp_frontend.session.handling import handle_bytes
from ..amqp_frontend.session.session import AmqpSession, generated_name
from ..amqp_frontend.wire.events import NO_IDS
from ..amqp_frontend.wire.states import ConnectionState
from ..engine import Deadlines, User
from .host import Host
from .loop_thread import result_of
from .nearest_names import nearest_names

if TYPE_CHECKING:
    from .edge import Edge

FORMAT = 1


class RecordingError(ValueError):
    """The file is no recording; the message names the line and the reason."""


@nearest_names
class Recording:
    """A recording, from its creation until its `with` block ends or `stop`. Connections opened before it are left
    out.
    """

    def __init__(self, broker: Host, path: str) -> None:
        self._broker = broker
        self._edge = broker.edge
        self._numbers: dict[int, int] = {}  # id of session -> number, while the session lives
        self._next = 1
        self._file: TextIO | None = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115  closed by `stop`
        self._origin_ns = 0
        broker.ask(self._begin)

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Complete the file. Idempotent."""
        if self._file is not None:
            self._broker.ask(self._end)

    def _begin(self) -> None:
        self._origin_ns = self._edge.clock.monotonic_ns()
        assert self._file is not None
        self._file.write(json.dumps({"leveret-recording": FORMAT}) + "\n")
        self._edge.tap = self

    def _end(self) -> None:
        if self._edge.tap is self:
            self._edge.tap = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, session: AmqpSession, event: str, **more: Any) -> None:
        number = self._numbers.get(id(session))
        if number is not None and self._file is not None:
            at = round((self._edge.clock.monotonic_ns() - self._origin_ns) / 1e9, 6)
            self._file.write(json.dumps({"at": at, "connection": number, "event": event, **more}) + "\n")

    # -- called in the broker's loop ----------------------------------------------------------------------------------

    def opened(self, session: AmqpSession) -> None:
        """Record a client that has logged in and opened its virtual host."""
        assert session.login.client is not None
        self._numbers[id(session)] = self._next
        self._next += 1
        self._write(
            session,
            "opened",
            vhost=session.login.client.vhost.name,
            user=session.login.client.user.name,
            name=session.login.peer.name,
            frame_max=session.connection.frame_max,
            channel_max=session.channel_max,
            capabilities=sorted(session.login.capabilities),
        )

    def received(self, session: AmqpSession, data: bytes) -> None:
        """Record input of a logged-in client."""
        self._write(session, "received", octets=base64.b64encode(data).decode())

    def named(self, session: AmqpSession, name: str) -> None:
        """Record a name that the broker generated for a queue or a consumer."""
        self._write(session, "named", name=name)

    def closed(self, session: AmqpSession) -> None:
        """Record the end of a connection."""
        self._write(session, "closed")
        self._numbers.pop(id(session), None)


@nearest_names
@dataclass(slots=True, frozen=True)
class ReplayReport:
    """The result of a replay. `refusals`: refusals that the recording did not have, one line each."""

    connections: int
    octets: int
    duration: float
    refusals: tuple[str, ...]


class RecordedClosing(Closing):
    """Remembers refusals."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.refusals: list[str] = []

    def refuse(self, error: Exception, channel: Any, ids: tuple[int, int] = NO_IDS) -> None:
        what = type(error).__name__ + (f" ({error})" if str(error) else "")
        self.refusals.append(f"{self._login.peer.name}: {what}")
        super().refuse(error, channel, ids)


class Replayed(AmqpSession):
    """A session whose client is a recording."""

    closing_type = RecordedClosing

    def __init__(self, edge: "Edge", line: dict[str, Any], vhost: str, names: deque[str]) -> None:
        super().__init__(
            edge.broker,
            edge.frontend_options,
            Peer(f"recorded connection {line['connection']}", is_loopback=True),
            self.drain,
            clock=edge.edge_clock,
            deadlines=Deadlines(),  # never served: heartbeats are not replayed
        )
        self._names = names
        assert isinstance(self.closing, RecordedClosing)
        self.refusals = self.closing.refusals
        self.connection.frame_max = line["frame_max"]
        self.connection.state = ConnectionState.RUNNING
        self.channel_max = line["channel_max"]
        self.login.capabilities = frozenset(line["capabilities"])
        user = User(line["user"], tags=("administrator",))
        self.login.vhost = edge.broker.virtual_hosts.create(vhost)
        self.login.client = edge.broker.connections.open(vhost, user, name=self.login.peer.name, flush=self.drain)

    def make_name(self, prefix: str) -> str:
        return self._names.popleft() if self._names else generated_name(prefix)

    def drain(self) -> None:
        while self.take_output():
            pass
        self.output_sent()


@nearest_names
class Replay:
    """A recording, ready for replay. Raises: RecordingError, OSError."""

    def __init__(self, broker: Host, path: str) -> None:
        self._broker = broker
        with open(path, encoding="utf-8") as file:
            self._lines = _read(path, file)
        self._names: dict[int, deque[str]] = {}
        for line in self._lines:
            if line["event"] == "named":
                self._names.setdefault(line["connection"], deque()).append(line["name"])

    def run(self, *, vhost: str | None = None) -> ReplayReport:
        """Replay the recording at the same intervals of virtual time. `vhost`: the virtual host to use instead of the
        recorded one.

        Connections that the recording leaves open stay open until the next reset. Raises: ClockIsReal.
        """
        clock = self._broker.clock
        return self._broker.thread.wait(clock.timed(self._run(vhost)), "replay(...).run", "replay(...).run_async")

    async def run_async(self, *, vhost: str | None = None) -> ReplayReport:
        """`run` for trio and asyncio."""
        return await result_of(self._broker.thread.submit(self._broker.clock.timed(self._run(vhost))))

    def _run(self, vhost: str | None) -> Callable[[Callable[[int], Awaitable[None]]], Awaitable[ReplayReport]]:
        async def run(go_to: Callable[[int], Awaitable[None]]) -> ReplayReport:
            edge = self._broker.edge
            start_ns = edge.clock.monotonic_ns()
            sessions: dict[int, Replayed] = {}
            octets = 0
            for line in self._lines:
                await go_to(start_ns + round(line["at"] * 1e9))
                number, event = line["connection"], line["event"]
                if event == "opened":
                    where = line["vhost"] if vhost is None else vhost
                    sessions[number] = Replayed(edge, line, where, self._names.get(number, deque()))
                elif event == "received":
                    data = base64.b64decode(line["octets"])
                    octets += len(data)
                    handle_bytes(sessions[number], data)
                    edge.end_turn()
                    while sessions[number].backlog.has_more:
                        handle_bytes(sessions[number], b"")
                        edge.end_turn()
                    sessions[number].drain()
                elif event == "closed":
                    sessions[number].handle_end()
                    edge.end_turn()
                await edge.catch_up()
            duration = (edge.clock.monotonic_ns() - start_ns) / 1e9
            refusals = tuple(refusal for session in sessions.values() for refusal in session.refusals)
            return ReplayReport(len(sessions), octets, duration, refusals)

        return run


#: Keys of each event's line, beside `at`, `connection` and `event`.
_KEYS: dict[object, dict[str, type]] = {
    "opened": {"vhost": str, "user": str, "frame_max": int, "channel_max": int, "capabilities": list},
    "received": {"octets": str},
    "named": {"name": str},
    "closed": {},
}


def _read(path: str, file: TextIO) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    opened: set[int] = set()
    for number, text in enumerate(file, 1):
        try:
            line = json.loads(text)
        except ValueError:
            raise RecordingError(f"{path}:{number}: is not JSON") from None
        if number == 1:
            if not isinstance(line, dict) or line.get("leveret-recording") != FORMAT:
                raise RecordingError(f'{path}:1: expected {{"leveret-recording": {FORMAT}}}')
            continue
        keys = _KEYS.get(line.get("event")) if isinstance(line, dict) else None
        if keys is None or not all(isinstance(line.get(key), kind) for key, kind in keys.items()):
            raise RecordingError(f"{path}:{number}: is no event of a recording")
        if line["event"] == "opened":
            opened.add(line["connection"])
        elif line["connection"] not in opened:
            raise RecordingError(f"{path}:{number}: connection {line['connection']} was not opened")
        lines.append(line)
    return lines
