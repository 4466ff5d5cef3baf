"""A broker in a thread of this process: real sockets, time turned by hand.

with SocketBroker(settings) as broker:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    broker.advance_ms(300)
"""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import trio

from leveret.amqp_frontend.edge.server import serve
from leveret.amqp_frontend.options import FrontendOptions
from leveret.configured.configured import ConfiguredObjects
from leveret.configured.options import broker_options
from leveret.engine import Broker, ManualClock, User, Users, hash_password
from leveret.operator.control import ControlTable
from leveret.serving.runtime import Runtime
from leveret.settings import Configuration

TIMEOUT_SECONDS = 60.0
T = TypeVar("T")


class SocketBroker:
    """Made with a configuration; serves on a loopback port from `with` on."""

    def __init__(self, configuration: Configuration) -> None:
        self.clock = ManualClock()
        users = Users([User("guest", hash_password("guest", b"salt"), ("administrator",))])
        self.broker = Broker(
            self.clock, users, settings=configuration.repository, options=broker_options(configuration)
        )
        self._objects = ConfiguredObjects(self.broker, configuration)
        self._objects.apply(configuration)
        self.control = ControlTable()
        self.control.operator.attach(self.broker, self._objects)
        self._runtime = Runtime(self.broker)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="broker")

    def __enter__(self) -> "SocketBroker":
        self._thread.start()
        assert self._ready.wait(TIMEOUT_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._token.run_sync_soon(self._stopping.set)
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stopping = trio.Event()
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.url = f"amqp://guest:guest@127.0.0.1:{listener.getsockname()[1]}/?heartbeat=0"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._runtime.run)

            async def frontend(task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
                options = FrontendOptions()
                await serve(
                    self._runtime, [listener], lambda: options, stopping=self._stopping, task_status=task_status
                )
                nursery.cancel_scope.cancel()

            await nursery.start(frontend)
            self._ready.set()
        listener.close()

    def do(self, action: Callable[[], T]) -> T:
        """Call something in the broker's thread, as a turn of its own."""

        def turn() -> T:
            result = action()
            self._runtime.end_turn()
            return result

        return trio.from_thread.run_sync(turn, trio_token=self._token)

    def apply(self, configuration: Configuration) -> None:
        """The configuration is another one now."""
        self.do(lambda: self._objects.apply(configuration))

    def advance_ms(self, ms: float) -> None:
        """Time passes, deadline by deadline."""
        until_ns = self.clock.monotonic_ns() + int(ms * 1e6)

        def step() -> bool:
            due_ns = self.broker.next_deadline_ns()
            is_last = due_ns is None or due_ns > until_ns
            to_ns = until_ns if is_last or due_ns is None else due_ns
            self.clock.advance_ns(max(0, to_ns - self.clock.monotonic_ns()))
            self.broker.advance()
            return is_last

        while not self.do(step):
            pass

    def wait_for_clients(self, count: int) -> None:
        """Until the broker has noticed who is gone."""

        async def until() -> None:
            with trio.fail_after(TIMEOUT_SECONDS):
                while len(self.broker.connections) > count:
                    await trio.lowlevel.checkpoint()

        trio.from_thread.run(until, trio_token=self._token)
