"""A process serves one broker after another on the same listeners, and nothing is left of the one before."""

import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
import trio
import trio.testing

from leveret.serving.addresses import Address
from leveret.serving.app import ServingProcess
from leveret.serving.frontends import find_frontend
from leveret.serving.listeners import Listeners
from leveret.serving.options import ConsoleAddresses, ServeOptions
from leveret.serving.served_broker import ServedBroker
from leveret.settings import load_configuration

LOOPBACK = Address("127.0.0.1", 0)


def process_on(data: Path | None) -> tuple[ServingProcess, Listeners]:
    """A process with bound listeners, and no broker yet."""
    configuration, faults = load_configuration([("f.toml", "[journal]\nreserve = 0\n")])
    assert not faults
    options = ServeOptions(configuration, [LOOPBACK], None if data is None else str(data))
    options.console = ConsoleAddresses([LOOPBACK])
    listeners = Listeners.bind(options)
    return ServingProcess(options, find_frontend("amqp"), listeners), listeners


async def served(
    process: ServingProcess, use: Callable[[ServedBroker], object], at_end: Callable[[], object] = int
) -> list["weakref.ref[object]"]:
    """Serve a broker while `use` runs in a thread; stop it while `at_end` does. Returns references to its parts."""
    broker = process.build_broker()
    accepts = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, accepts.set, lambda: None)
        await accepts.wait()
        await trio.to_thread.run_sync(use, broker)
        nursery.start_soon(trio.to_thread.run_sync, at_end)
        broker.stop()
    parts: list[object] = [broker, broker.runtime, broker.built.broker, broker.built.control]
    if broker.built.supervisor is not None:
        parts += [broker.built.supervisor, broker.built.supervisor.journal, broker.built.supervisor.recorder]
    return [weakref.ref(part) for part in parts]


def threads() -> set[str]:
    """The threads of this process, except those that trio keeps for the next call."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


def descriptors() -> set[str]:
    """What the descriptors of this process are open on."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            pass  # of the listing
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list descriptors")
@pytest.mark.parametrize("has_journal", [True, False])
def test_nothing_is_left_of_a_broker(tmp_path: Path, *, has_journal: bool) -> None:
    """No task, thread, descriptor or object; the next broker has what is durable, and the same port."""
    process, listeners = process_on(tmp_path / "data" if has_journal else None)
    port = next(iter(listeners.amqp)).getsockname()[1]
    console = next(iter(listeners.console)).getsockname()[1]
    connections: list[pika.BlockingConnection] = []

    def connected() -> pika.channel.Channel:
        connections.append(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)))
        return connections[-1].channel()

    def publish(_: ServedBroker) -> None:
        channel = connected()
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("later", arguments={"x-message-ttl": 3_600_000})
        channel.confirm_delivery()
        for queue in ("orders", "later"):
            channel.basic_publish("", queue, b"one", pika.BasicProperties(delivery_mode=2))
        channel.basic_consume("later", lambda *_: None)
        ask_console(console)

    def get(broker: ServedBroker) -> None:
        if has_journal:
            assert connected().basic_get("orders")[2] == b"one"
        else:
            assert not broker.built.broker.virtual_hosts["/"].queues

    def be_closed() -> None:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            while True:
                connections[0].process_data_events(30)
        assert closed.value.reply_code == 320

    async def lives() -> None:
        await served(process, lambda _: None)  # imports, and threads that are kept
        gc.collect()
        tasks = trio.lowlevel.current_statistics().tasks_living
        before, threads_before = descriptors(), threads()
        parts = await served(process, publish, be_closed)
        connections.clear()
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert threads() == threads_before
        assert descriptors() == before
        assert [part() for part in parts] == [None] * len(parts)
        await served(process, get)

    trio.run(lives)
    listeners.close()


def ask_console(port: int) -> None:
    """Ask for a page, which loads what the console keeps."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/api/overview", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
    assert connection.getresponse().status == 200
    connection.close()
