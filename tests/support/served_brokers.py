"""Brokers that one process serves one after the other, and what may be left of them."""

import os
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import trio

from leveret.journal import ClusterJournal
from leveret.operator.control import ControlTable
from leveret.serving.addresses import Address, ConsoleAddresses
from leveret.serving.app import ServingProcess
from leveret.serving.frontends import find_frontend
from leveret.serving.listeners import Listeners
from leveret.serving.options import ServeOptions
from leveret.serving.served_broker import ServedBroker
from leveret.settings import load_configuration

LOOPBACK = Address("127.0.0.1", 0)
#: The console loads these in a thread while the broker loads others. Pytest parses each module that it loads, and two
#: threads that parse at once fail before Python 3.11.5: "AST constructor recursion depth mismatch"
#: (python/cpython#106905).
for _name in ("console.connection", "serving.console", "configured.host_capacity"):
    import_module(f"leveret.{_name}")
ControlTable().load()


def process_on(data: Path | None) -> tuple[ServingProcess, Listeners]:
    """A process with bound listeners, and no broker yet."""
    configuration, faults = load_configuration([("f.toml", "[journal]\nreserve = 0\n")])
    assert not faults
    options = ServeOptions(configuration, [LOOPBACK], None if data is None else str(data))
    options.console = ConsoleAddresses([LOOPBACK])
    listeners = Listeners.bind(options)
    return ServingProcess(options, find_frontend("amqp"), listeners), listeners


async def served(
    process: ServingProcess,
    use: Callable[[ServedBroker], object],
    at_end: Callable[[], object] = int,
    cluster: ClusterJournal | None = None,
) -> list["weakref.ref[object]"]:
    """Serve a broker while `use` runs in a thread; stop it while `at_end` does. Returns references to its parts.

    `cluster`: it leads, and resigns at the end.
    """
    broker = process.build_broker(cluster)
    accepts = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, accepts.set, lambda: None)
        await accepts.wait()
        await trio.to_thread.run_sync(use, broker)
        nursery.start_soon(trio.to_thread.run_sync, at_end)
        if cluster is None:
            broker.stop()
        else:
            broker.runtime.resign()
            broker.abandon()
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


def ask_console(port: int) -> None:
    """Ask for a page, which loads what the console keeps."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/api/overview", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
    assert connection.getresponse().status == 200
    connection.close()
