"""Turns that are taken without a switch to their tasks. Real sockets; nothing waits for time."""

from __future__ import annotations

import functools
import runpy
import select
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from leveret.amqp_frontend.edge import poller as module
from leveret.amqp_frontend.edge.poller import Poller, Wakeup, nothing_to_do, poller_of_this_run, until_readable


def in_trio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run the test in a run of trio of its own, and so with a poller of its own."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        trio.run(functools.partial(test, **arguments))

    return run


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll")


def attached() -> Poller:
    poller = poller_of_this_run()
    assert poller is not None, "this trio has no place for it: see poller.py"
    return poller


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


class Turns:
    """Reads its socket in each turn; the task goes on when `!` comes."""

    def __init__(self, sock: socket.socket, said: list[bytes]) -> None:
        self.socket, self.said = sock, said

    def __call__(self) -> str | None:
        data = self.socket.recv(100)
        self.said.append(data)
        return "over" if b"!" in data else None

    async def run(self, poller: Poller) -> None:
        self.said.append((await poller.until(self.socket.fileno(), self)).encode())


async def rounds(count: int = 5) -> None:
    for _ in range(count):
        await trio.lowlevel.checkpoint()


@in_trio
async def test_turns_until_one_returns_something() -> None:
    poller, said = attached(), list[bytes]()
    with pair() as (ours, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Turns(ours, said).run, poller)
            for data in (b"a", b"b", b"!"):
                theirs.send(data)
                await rounds()
        assert said == [b"a", b"b", b"!", b"over"]
        theirs.send(b"c")
        await rounds()
        assert said[4:] == [], "nobody waits"
        theirs.send(b"!")
        await Turns(ours, said).run(poller)
        assert said[4:] == [b"c!", b"over"]


@in_trio
async def test_one_poller_a_run() -> None:
    assert poller_of_this_run() is attached()


@in_trio
async def test_the_task_raises_what_its_turn_raises() -> None:
    def turn() -> None:
        raise OSError("gone")

    with pair() as (ours, theirs):
        theirs.send(b"a")
        with pytest.raises(OSError, match="gone"):
            await attached().until(ours.fileno(), turn)


@pytest.mark.parametrize("has_more", [False, True])
@in_trio
async def test_a_turn_may_cancel_its_own_task(has_more: bool) -> None:
    with pair() as (ours, theirs), trio.CancelScope() as scope:

        def turn() -> str | None:
            scope.cancel()
            return "over" if has_more else None

        theirs.send(b"a")
        await attached().until(ours.fileno(), turn)
    assert scope.cancelled_caught
    await rounds()


@in_trio
async def test_an_error_of_a_turn_that_cancelled_its_own_task_is_raised() -> None:
    """It would be seen nowhere else."""
    with pair() as (ours, theirs), pytest.raises(RuntimeError, match="broken"), trio.CancelScope() as scope:

        def turn() -> None:
            scope.cancel()
            raise RuntimeError("broken")

        theirs.send(b"a")
        await attached().until(ours.fileno(), turn)


@in_trio
async def test_a_socket_that_another_process_has_too_wakes_nobody_once_it_is_forgotten() -> None:
    poller, said = attached(), list[bytes]()
    with pair() as (ours, theirs):
        copy = ours.dup()  # as a child process has one
        theirs.send(b"!")
        await Turns(ours, said).run(poller)
        number = ours.fileno()
        poller.forget(number)
        ours.close()
        theirs.send(b"a")
        assert number not in dict(poller._epoll.poll(0))
        copy.close()


@pytest.mark.parametrize("has_poller", [True, False])
@in_trio
async def test_one_wait_takes_turns_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, has_poller: bool
) -> None:
    """A number of a descriptor that stays registered would wake the poller for whoever has the file, too."""
    poller, said = attached(), list[bytes]()
    if not has_poller:
        monkeypatch.setattr(module, "poller_of_this_run", lambda: None)
    with pair() as (ours, theirs):
        for data in (b"a", b"!"):
            theirs.send(data)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_readable, ours.fileno(), Turns(ours, said))
                await rounds()
                nursery.cancel_scope.cancel()
            assert poller._waiters == {}
            with pytest.raises(FileNotFoundError):
                poller._epoll.unregister(ours.fileno())
        theirs.send(b"!")
        assert await until_readable(ours.fileno(), Turns(ours, said)) == "over"
    assert said == [b"a", b"!", b"!"]


@in_trio
async def test_what_a_turn_leaves_is_known_to_the_next_one() -> None:
    """Its task runs before the turns of other sockets that were ready at the same time."""
    poller, said = attached(), list[bytes]()
    with pair() as (first, to_first), pair() as (second, to_second):
        async with trio.open_nursery() as nursery:
            for sock in (first, second):
                nursery.start_soon(Turns(sock, said).run, poller)
            await rounds()
            to_first.send(b"1!")
            to_second.send(b"2!")
    assert said in ([b"1!", b"over", b"2!", b"over"], [b"2!", b"over", b"1!", b"over"])


@in_trio
async def test_what_nobody_waits_for_does_not_wake_the_poller_again() -> None:
    """Octets of a peer whose task is busy: they would be an event of each poll, without end."""
    poller, said = attached(), list[bytes]()
    with pair() as (ours, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Turns(ours, said).run, poller)
            await rounds()
            theirs.send(b"!")
        theirs.send(b"more")
        await rounds()
        assert poller._epoll.poll(0) == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Turns(ours, said).run, poller)
            await rounds()
            theirs.send(b"!")
    assert b"".join(said) == b"!overmore!over"


@in_trio
async def test_a_number_of_a_closed_socket_is_used_again() -> None:
    poller, said = attached(), list[bytes]()
    with pair() as (ours, _), trio.CancelScope() as scope:
        scope.cancel()
        await poller.until(ours.fileno(), Turns(ours, said))
    with pair() as (again, theirs):
        theirs.send(b"!")
        await Turns(again, said).run(poller)
    assert said == [b"!", b"over"]


@in_trio
async def test_tasks_and_sockets_of_trio_go_on_beside_turns_without_end() -> None:
    """A socket that is always readable, beside one of trio's, and a deadline."""
    poller = attached()
    with pair() as (ours, theirs), pair() as (trios, to_trio):
        theirs.send(b"a")  # and nothing reads it
        count = 0

        def turn() -> None:
            nonlocal count
            count += 1
            if count == 3:
                to_trio.send(b"b")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.until, ours.fileno(), turn)
            await trio.lowlevel.wait_readable(trios)
            with trio.move_on_after(0.001):
                await trio.sleep_forever()
            nursery.cancel_scope.cancel()
    assert count >= 3


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


@in_trio
async def test_another_thread_has_a_function_called_without_a_step_of_a_task() -> None:
    steps, called, done = Steps(), threading.Semaphore(0), trio.Event()
    wakeup, token = Wakeup(attached(), called.release), trio.lowlevel.current_trio_token()

    def ask() -> None:
        for _ in range(50):
            wakeup.request()
            assert called.acquire(timeout=30)
        token.run_sync_soon(done.set)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wakeup.run)
        await rounds()
        trio.lowlevel.add_instrument(steps)
        thread = threading.Thread(target=ask)
        thread.start()
        await done.wait()
        trio.lowlevel.remove_instrument(steps)
        thread.join()
        nursery.cancel_scope.cancel()
    assert steps.count < 10


@in_trio
async def test_requests_before_the_call_are_one() -> None:
    calls = list[int]()
    wakeup = Wakeup(attached(), lambda: calls.append(1))
    wakeup.request()  # nobody listens yet
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wakeup.run)
        await rounds()
        assert calls == [1]
        wakeup.request()
        wakeup.request()
        await rounds()
        assert calls == [1, 1]
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_request_after_the_end_is_written_nowhere() -> None:
    """Another file may have its number by then."""
    wakeup = Wakeup(attached(), list)
    number = wakeup.eventfd
    with trio.CancelScope() as scope:
        scope.cancel()
        await wakeup.run()
    with pair() as (ours, theirs):
        assert number in (ours.fileno(), theirs.fileno())
        wakeup.request()
        for sock in (ours, theirs):
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)


@in_trio
async def test_a_wakeup_raises_what_its_function_raises() -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    wakeup = Wakeup(attached(), broken)
    wakeup.request()
    with pytest.raises(RuntimeError, match="broken"):
        await wakeup.run()


@pytest.mark.parametrize("has", [{"is_guest": True}, {"io_manager": object()}])
@in_trio
async def test_without_a_place_for_it_there_is_none(monkeypatch: pytest.MonkeyPatch, has: dict[str, Any]) -> None:
    """Endpoints then wait through trio, as those of the test broker do."""
    from trio._core import _run

    class Runner:
        runner = type("", (), {"is_guest": False, "io_manager": _run.GLOBAL_RUN_CONTEXT.runner.io_manager, **has})

    with monkeypatch.context() as patch:
        patch.setattr(_run, "GLOBAL_RUN_CONTEXT", Runner)
        assert module._attach() is None


def test_systems_without_epoll_can_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll")
    assert "Poller" in runpy.run_path(module.__file__)


@in_trio
async def test_work_before_a_wait_limits_it() -> None:
    """It is done before each wait, and again when its time has come, though nothing else happens."""
    poller, done, calls = attached(), trio.Event(), list[float]()

    def before_wait() -> float:
        calls.append(0)
        if len(calls) == 5:
            trio.lowlevel.current_trio_token().run_sync_soon(done.set)
        return 0.001

    poller.before_wait = before_wait
    with trio.fail_after(30):
        await done.wait()
    poller.before_wait = nothing_to_do
    assert len(calls) >= 5
