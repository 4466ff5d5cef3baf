"""Starting and stopping: options, event loops, many rounds, several processes, no Unix-only ways."""

import ast
import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from urllib.parse import clear_cache  # type: ignore[attr-defined]  # not in its stubs

import aio_pika
import pytest
import trio
from consumers import channel_of

from leveret.testing import BrokerOptionsError, BrokerStopped, WouldBlockTheLoop, open_broker, start_broker
from leveret.testing.loop_thread import LoopThread
from leveret.testing.options import read_options

ROOT = Path(__file__).resolve().parents[2]


def test_it_accepts_when_it_returns_and_is_gone_afterwards() -> None:
    """No polling before, nothing left behind."""
    before = set(threading.enumerate())  # those of other tests may end meanwhile
    with start_broker() as broker:
        assert broker.url == f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
        socket.create_connection(("127.0.0.1", broker.port)).close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port))
    with pytest.raises(BrokerStopped):
        broker.queues()


def test_a_call_while_it_ends_is_told_so() -> None:
    """Also in the moment between the end of its last task and that of its loop."""

    async def main(started: Callable[[trio.Nursery], None], stopping: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            started(nursery)
        await stopping.wait()

    async def ask() -> None:
        pass

    thread = LoopThread(main)
    thread.begin().result(60)
    with pytest.raises(BrokerStopped):
        thread.submit(ask).result(60)
    thread.end().result(60)
    thread.join()


def test_it_stops_with_clients_connected() -> None:
    """They hear connection.close 320, or, when they are deaf, nothing."""
    with start_broker() as broker:
        deaf = socket.create_connection(("127.0.0.1", broker.port))
        deaf.sendall(b"AMQP\x00\x00\x09\x01")
        broker.faults.half_open()
    deaf.close()


def test_several_brokers_at_once() -> None:
    """Each with its own port and its own queues."""
    with start_broker() as one, start_broker() as two:
        assert one.port != two.port
        with channel_of(one.url) as channel:
            channel.queue_declare("q")
        assert [queue.name for queue in one.queues()] == ["q"]
        assert two.queues() == ()


@pytest.mark.parametrize(
    "config",
    [
        {"address-setting": [{"match": "jobs.#", "redelivery-delay": "5s", "max-delivery-attempts": 3}]},
        '[[address-setting]]\nmatch = "jobs.#"\nredelivery-delay = "5s"\nmax-delivery-attempts = 3\n',
    ],
)
def test_configuration_as_dict_or_text(config: "dict[str, object] | str") -> None:
    """Address-settings by wildcard, as in a file."""
    with start_broker(clock="virtual", config=config, quiet_ms=20) as broker, channel_of(broker.url) as channel:
        channel.queue_declare("jobs.mail")
        channel.basic_publish("", "jobs.mail", b"x")
        channel.basic_nack(channel.basic_get("jobs.mail")[0].delivery_tag)
        broker.assert_queue("jobs.mail", scheduled=[b"x"])
        broker.clock.advance(seconds=5)
        broker.assert_queue("jobs.mail", ready=[b"x"])


def test_configuration_from_a_file(tmp_path: Path) -> None:
    """Configured queues are there from the start, and again after each reset."""
    file = tmp_path / "broker.toml"
    file.write_text('[[address]]\nname = "orders"\n[[address.queue]]\nname = "orders"\n')
    with start_broker(config=file) as broker:
        assert [queue.name for queue in broker.queues()] == ["orders"]
        broker.reset()
        assert [queue.name for queue in broker.queues()] == ["orders"]


def test_a_profile_is_followed() -> None:
    """rabbitmq-3.10 refuses channel.flow; every profile starts."""
    for profile in ("leveret", "rabbitmq-3.10", "rabbitmq-3.13", "rabbitmq-4.0", "rabbitmq-4.3"):
        with start_broker(profile=profile) as broker, channel_of(broker.url) as channel:
            assert channel.queue_declare("q", durable=True).method.queue == "q"


@pytest.mark.parametrize(
    "name, profile",
    [
        ("rabbitmq-4.2", "rabbitmq-4.0"),
        ("4.1", "rabbitmq-4.0"),
        ("4.0.9", "rabbitmq-4.0"),
        ("rabbitmq-3.12", "rabbitmq-3.10"),
        ("rabbitmq-3.13.7", "rabbitmq-3.13"),
        ("4.3.1", "rabbitmq-4.3"),
    ],
)
def test_a_version_between_two_profiles_follows_the_one_before(name: str, profile: str) -> None:
    """Nothing that profiles are about changed between them."""
    assert read_options(profile=name).configuration.broker.profile == profile


@pytest.mark.parametrize(
    "options, message",
    [
        ({"clock": "stopped"}, "expected one of 'real', 'virtual'"),
        ({"quiet_ms": -1}, "quiet_ms: -1 is invalid"),
        ({"profile": "rabbitmq-2"}, "expected one of leveret, rabbitmq-3.10"),
        ({"profile": "rabbitmq-4.4"}, "did you mean 'rabbitmq-4.3'"),
        ({"profile": "3.8.1"}, "did you mean 'rabbitmq-3.10'"),
        ({"profile": "4"}, "did you mean 'rabbitmq-4.3'"),
        ({"profile": "5"}, "did you mean 'rabbitmq-4.3'"),
        ({"profile": "3"}, "did you mean 'rabbitmq-3.13'"),
        ({"profile": "artemis"}, "leave profile out"),
        ({"profile": "rabitmq-4.0"}, "did you mean 'rabbitmq-4.0'"),
        ({"data": __file__}, "data: .*Not a directory"),
        ({"config": {"limits": {"memroy": 1}}}, "memroy"),
        ({"config": {"limits": {"memory": None}}}, "config: None is not a value of a configuration"),
        ({"config": "no-such-file.toml"}, "no-such-file.toml cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(options: "dict[str, object]", message: str) -> None:
    """Before anything is started."""
    with pytest.raises(BrokerOptionsError, match=message), start_broker(**options):  # type: ignore[arg-type]
        pass


def test_in_asyncio() -> None:
    """Starting, waiting and virtual time leave the loop running, so that its own clients can react."""

    async def main() -> None:
        async with (
            open_broker(clock="virtual", quiet_ms=20) as broker,
            await aio_pika.connect(broker.url) as connection,
        ):
            channel = await connection.channel()
            queue = await channel.declare_queue("q", arguments={"x-redelivery-delay": 60_000})
            seen: list[float] = []

            async def fail_once(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                seen.append(broker.clock.elapsed)
                await (message.ack() if message.redelivered else message.nack())

            await queue.consume(fail_once)
            await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
            await broker.clock.advance_async(minutes=5)
            await broker.settled_async()
            assert seen == [0, 60]
            with pytest.raises(WouldBlockTheLoop, match="advance_async"):
                broker.clock.advance(seconds=1)
            with pytest.raises(WouldBlockTheLoop, match="settled_async"):
                broker.settled()

    asyncio.run(main())


def test_in_trio() -> None:
    """The same from a trio loop, which is not the broker's."""

    async def main() -> None:
        async with open_broker(clock="virtual") as broker:
            async with await trio.open_tcp_stream("127.0.0.1", broker.port) as stream:
                await stream.send_all(b"AMQP\x00\x00\x09\x01")
                assert (await stream.receive_some(4096))[7:11] == b"\x00\x0a\x00\x0a"
            await broker.clock.advance_async(hours=1)
            assert broker.clock.elapsed == 3600
            await broker.settled_async()

    trio.run(main)


def test_an_async_broker_ends_with_its_block_whatever_happens() -> None:
    """Also when the block is cancelled."""

    async def main() -> None:
        with trio.move_on_after(0):
            async with open_broker() as broker:
                ports.append(broker.port)
                await trio.sleep_forever()

    ports: list[int] = []
    before = set(threading.enumerate())  # the session's own broker may be among them
    trio.run(main)
    assert [one for one in threading.enumerate() if one.name == "leveret broker" and one not in before] == []


def descriptors() -> int:
    """How many are open in this process."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_rounds_leave_nothing() -> None:
    """No thread, no descriptor, no growth beyond noise."""

    def rounds(count: int) -> None:
        for _ in range(count):
            with start_broker() as broker, channel_of(broker.url) as channel:
                channel.queue_declare("q")
                channel.basic_publish("", "q", b"x" * 1000)
                assert broker.queue("q").bodies

    def collect() -> None:
        gc.collect()
        clear_cache()  # of the URLs that the client parsed: 128 entries

    rounds(20)
    collect()
    threads, files = threading.active_count(), descriptors()
    tracemalloc.start()
    try:
        rounds(10)
        collect()
        before, _ = tracemalloc.get_traced_memory()
        rounds(50)
        collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One a round would be 60; what other tests left in this process may have ended, or been collected, meanwhile.
    assert threading.active_count() < threads + 10
    assert descriptors() < files + 10
    assert after - before < 50_000, "octets that 50 rounds left behind"


PROCESS = """
import pika
from leveret.testing import start_broker
with start_broker() as broker:
    channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
    channel.queue_declare("q")
    print(broker.port, [queue.name for queue in broker.queues()], flush=True)
    input()
"""


def test_several_processes_at_once() -> None:
    """Four test runs on one machine, at the same time."""
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        lines = [process.stdout.readline().split(" ", 1) for process in processes if process.stdout is not None]
        assert len({port for port, _ in lines}) == 4
        assert {names for _, names in lines} == {"['q']\n"}
    finally:
        for process in processes:
            process.communicate("\n", timeout=180)
    assert [process.returncode for process in processes] == [0] * 4


#: Names that are not on every system; `os.name`-guarded uses and those behind hasattr or getattr are fine.
UNIX_ONLY_MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog"}
UNIX_ONLY_NAMES = {
    "os": {
        *("pread", "pwrite", "fdatasync", "posix_fallocate", "posix_fadvise", "sync", "mkfifo", "openpty"),
        *("fork", "forkpty", "getuid", "geteuid", "setsid", "killpg", "getpgid"),
    },
    "signal": {"SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGCHLD", "SIGALRM", "alarm", "setitimer", "pthread_kill"},
    "socket": {"AF_UNIX", "SO_REUSEPORT", "SCM_RIGHTS", "socketpair", "SO_PEERCRED"},
    "select": {"epoll", "poll", "kqueue"},
    "trio": {"open_signal_receiver"},
}


def unix_only_uses(path: Path) -> list[str]:
    """Where a file relies on Unix without asking first."""
    tree = ast.parse(path.read_text())
    guarded = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If | ast.IfExp) and any(word in ast.dump(test.test) for word in ("hasattr", "'name'"))
        for node in ast.walk(test)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in guarded:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{path.name}: import {name}" for name in names if name.split(".")[0] in UNIX_ONLY_MODULES]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and id(node) not in guarded
            and node.attr in UNIX_ONLY_NAMES.get(node.value.id, ())
        ):
            found.append(f"{path.name}: {node.value.id}.{node.attr}")
    return found


def test_nothing_unix_only_is_on_this_path(tmp_path: Path) -> None:
    """What a test broker loads works on any system that has sockets (ruling 28); proven nowhere but on Linux."""
    script = (
        "import sys, leveret.testing, leveret.pytest_plugin\n"
        "with leveret.testing.start_broker() as broker: broker.faults, leveret.testing.BrokerTestMixin\n"
        "with leveret.testing.start_broker(data=sys.argv[1]) as broker: broker.restart()\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'leveret' and m.__file__), sep='\\n')"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    paths = [Path(file) for file in done.stdout.splitlines()]
    assert len(paths) > 100
    assert "supervisor.py" in [path.name for path in paths]
    found = [use for path in paths for use in unix_only_uses(path)]
    # Not called by the test broker: unix:PATH, which asks before the listener is made. Descriptors are not counted
    # where there is no module for it. Where there is no epoll, connections wait through trio. What only `leveret serve`
    # needs is not loaded at all.
    assert set(found) == {
        "addresses.py: socket.AF_UNIX",
        "descriptors.py: import resource",
        "poller.py: select.epoll",
    }


FORKING = """
import os
from leveret.testing import start_broker
from leveret.testing.loop_thread import BrokerStopped

with start_broker() as broker:
    child = os.fork()
    if child == 0:
        try:
            broker.queues()
        except BrokerStopped as error:
            print(error, flush=True)
        broker.stop()
        os._exit(0)
    os.waitpid(child, 0)
    assert broker.queues() == ()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_is_told_that_the_broker_runs_in_another_one() -> None:
    """It would wait for a thread that it does not have; the broker goes on in the process that started it."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "the broker is not running in this process\n"), done.stderr
