"""Records the input of clients with its times in a file, and replays it to another broker."""

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
from .tap import FORMAT, Tap

if TYPE_CHECKING:
    from .runtime import WatchedRuntime


class RecordingError(ValueError):
    """The file is not a recording; the message names the line and the reason."""


@nearest_names
class Recording:
    """A recording, from its creation until `stop` or the end of its `with` block. It omits older connections.

    Raises: OSError; RuntimeError: another recording is running.
    """

    def __init__(self, host: Host, path: str) -> None:
        self._host = host
        self._tap = host.ask(lambda: self._begin(path))

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Complete the file. Idempotent."""
        if not self._tap.is_closed:
            self._host.ask(self._end)

    def _begin(self, path: str) -> Tap:
        runtime = self._host.runtime
        if runtime.tap is not None:
            raise RuntimeError("another recording is running, and a broker has one at a time: stop it first")
        file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115  closed by `stop`
        runtime.tap = tap = Tap(file, runtime.clock)
        return tap

    def _end(self) -> None:
        if self._host.runtime.tap is self._tap:
            self._host.runtime.tap = None
        self._tap.close()


@nearest_names
@dataclass(slots=True, frozen=True)
class ReplayReport:
    """The result of a replay. `refusals`: one line for each error with which the broker answered."""

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

    def __init__(self, runtime: "WatchedRuntime", line: dict[str, Any], vhost: str, names: deque[str]) -> None:
        super().__init__(
            runtime.broker,
            runtime.frontend_options,
            Peer(f"recorded connection {line['connection']}", is_loopback=True),
            self.drain,
            clock=runtime.system_clock,
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
        self.login.vhost = runtime.broker.virtual_hosts.create(vhost)
        self.login.client = runtime.broker.connections.open(vhost, user, name=self.login.peer.name, flush=self.drain)

    def make_name(self, prefix: str) -> str:
        return self._names.popleft() if self._names else generated_name(prefix)

    def drain(self) -> None:
        while self.take_output():
            pass
        self.output_sent()


@nearest_names
class Replay:
    """A recording, ready for replay. Raises: RecordingError, OSError."""

    def __init__(self, host: Host, path: str) -> None:
        self._host = host
        with open(path, encoding="utf-8") as file:
            self._lines = _read(path, file)
        self._names: dict[int, deque[str]] = {}
        for line in self._lines:
            if line["event"] == "named":
                self._names.setdefault(line["connection"], deque()).append(line["name"])

    def run(self, *, vhost: str | None = None) -> ReplayReport:
        """Replay the recording at the same intervals of virtual time. `vhost`: replaces the recorded virtual host.

        Connections that the recording leaves open stay open until the next reset. Raises: ClockIsReal.
        """
        clock = self._host.clock
        return self._host.thread.wait(clock.timed(self._run(vhost)), "replay(...).run", "replay(...).run_async")

    async def run_async(self, *, vhost: str | None = None) -> ReplayReport:
        """`run` for trio and asyncio."""
        return await result_of(self._host.thread.submit(self._host.clock.timed(self._run(vhost))))

    def _run(self, vhost: str | None) -> Callable[[Callable[[int], Awaitable[None]]], Awaitable[ReplayReport]]:
        async def run(go_to: Callable[[int], Awaitable[None]]) -> ReplayReport:
            runtime = self._host.runtime
            start_ns = runtime.clock.monotonic_ns()
            sessions: dict[int, Replayed] = {}
            octets = 0
            for line in self._lines:
                await go_to(start_ns + round(line["at"] * 1e9))
                number, event = line["connection"], line["event"]
                if event == "opened":
                    where = line["vhost"] if vhost is None else vhost
                    sessions[number] = Replayed(runtime, line, where, self._names.get(number, deque()))
                elif event == "received":
                    data = base64.b64decode(line["octets"])
                    octets += len(data)
                    handle_bytes(sessions[number], data)
                    runtime.end_turn()
                    while sessions[number].backlog.has_more:
                        handle_bytes(sessions[number], b"")
                        runtime.end_turn()
                    sessions[number].drain()
                elif event == "closed":
                    sessions[number].handle_end()
                    runtime.end_turn()
                await runtime.catch_up()
            duration = (runtime.clock.monotonic_ns() - start_ns) / 1e9
            refusals = tuple(refusal for session in sessions.values() for refusal in session.refusals)
            return ReplayReport(len(sessions), octets, duration, refusals)

        return run


#: Keys of each event's line, besides `at`, `connection` and `event`.
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
            raise RecordingError(f"{path}:{number}: is not an event of a recording")
        if line["event"] == "opened":
            opened.add(line["connection"])
        elif line["connection"] not in opened:
            raise RecordingError(f"{path}:{number}: connection {line['connection']} was not opened")
        lines.append(line)
    return lines
