"""A process serves one broker after another on the same listeners, and nothing is left of the one before."""

import gc
import os
import sys
from pathlib import Path

import pika
import pytest
import trio
import trio.testing
from served_brokers import ask_console, descriptors, process_on, served, threads

from leveret.serving.served_broker import ServedBroker


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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the journal's thread commits everything")
def test_stored_messages_that_come_alone_need_no_thread(tmp_path: Path) -> None:
    """The kernel syncs, unless the thread has begun to write; the next broker has what was confirmed."""
    process, listeners = process_on(tmp_path / "data")
    port = next(iter(listeners.amqp)).getsockname()[1]
    thread_commits = list[int]()

    def publish(broker: ServedBroker) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            assert broker.built.supervisor is not None
            writer = broker.built.supervisor.journal.writer
            commit, before = writer.commit_taken, writer.commit_count
            writer.commit_taken = lambda: (thread_commits.append(1), commit())[1]  # type: ignore[method-assign]
            for number in range(10):
                channel.basic_publish("", "orders", b"%d" % number, pika.BasicProperties(delivery_mode=2))
                method, _, body = channel.basic_get("orders")
                assert body == b"%d" % number
                channel.basic_ack(method.delivery_tag)
            channel.basic_publish("", "orders", b"last", pika.BasicProperties(delivery_mode=2))
            assert len(thread_commits) < writer.commit_count - before
            writer.commit_taken = commit  # type: ignore[method-assign]

    def get(broker: ServedBroker) -> None:
        (queue,) = broker.built.broker.virtual_hosts["/"].queues.values()
        assert len(queue.store) == 1

    async def lives() -> None:
        await served(process, publish)
        await served(process, get)

    trio.run(lives)
    listeners.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list descriptors")
def test_nothing_is_left_of_a_start_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, descriptor or lock: the next start of the same process succeeds."""

    def fail(*_: object, **__: object) -> int:
        raise MemoryError

    process, listeners = process_on(tmp_path / "data")
    process.build_broker().built.close()  # imports
    before, threads_before = descriptors(), threads()
    with monkeypatch.context() as patch:
        patch.setattr("leveret.serving.supervisor.restore", fail)
        with pytest.raises(MemoryError):
            process.build_broker()
    assert (descriptors(), threads()) == (before, threads_before)
    process.build_broker().built.close()
    listeners.close()
