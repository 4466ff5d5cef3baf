"""A leader that stood still: what clients sent before, and what came due, waits until it is known whether it leads."""

import trio
import trio.testing
from configured_broker import load
from rawclient import Client
from socket_broker import SocketBroker

from leveret.engine import Deadlines
from leveret.serving.runtime import DeadlineTimer, SystemClock


def test_what_lies_in_a_socket_after_a_pause_is_not_served() -> None:
    """Nor is it lost when this node still leads."""
    with SocketBroker(load("")) as broker:
        runtime = broker._runtime
        stood_still = False
        looks = 0

        def look() -> None:
            nonlocal looks
            looks += 1
            if stood_still and runtime.suspended is None:
                runtime.suspend()

        broker.do(lambda: setattr(runtime, "check_standstill", look))
        client = Client.open("127.0.0.1", int(broker.url.rpartition(":")[2].partition("/")[0]))
        client.call("queue.declare", queue="q")
        stood_still, looks = True, 0
        client.publish("", "q", b"1")

        async def until_looked() -> None:
            while runtime.suspended is None:
                await trio.lowlevel.checkpoint()
            for _ in range(200):
                await trio.lowlevel.checkpoint()

        trio.from_thread.run(until_looked, trio_token=broker._token)
        assert broker.do(lambda: broker.broker.virtual_hosts["/"].queues.named("q").ready_count) == 0
        stood_still = False
        broker.do(runtime.resume)
        assert client.take("q").body == b"1"


def test_what_comes_due_in_a_pause_is_not_done() -> None:
    """An expiry, a lease or a delay may be the next leader's."""
    due: list[int] = []

    class Late(Deadlines):
        def next_ns(self) -> int:
            return 0

        def advance(self, now_ns: int) -> None:
            due.append(now_ns)

    async def wake() -> None:
        clock = SystemClock()
        looked = trio.Event()

        def look() -> None:
            timer.watch(clock, None)
            looked.set()

        timer = DeadlineTimer(clock, Late(), lambda: None, look)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timer.run)
            await looked.wait()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(wake)
    assert due == []
