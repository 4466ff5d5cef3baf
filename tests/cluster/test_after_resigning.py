"""Of a broker whose node does not lead any more nothing is left, and its journal is as the last turn left it."""

import gc
import os
from pathlib import Path

import pika
import pytest
import trio
import trio.testing
from served_brokers import ask_console, descriptors, process_on, served, threads

from leveret.journal import ClusterJournal
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.serving.composition import DataUnusable
from leveret.serving.served_broker import ServedBroker

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list descriptors")


def won(data: Path, term: int) -> ClusterJournal:
    """The journal of a node that won this term; all that it has is agreed."""
    copied = CopiedJournal.open(str(data))
    if copied.journal_id is None:
        copied.begin(bytes(16))
    copied.set_terms(copied.terms.with_term(term, copied.end))
    return ClusterJournal(copied.hand_over(), copied.end)


def end_of(data: Path) -> int:
    """LSN behind the last record that a node's journal has."""
    copied = CopiedJournal.open(str(data))
    copied.close()
    return copied.end


def test_nothing_is_left_of_a_leadership(tmp_path: Path) -> None:
    """No task, thread, descriptor or object; clients were told 320; nothing was written at the end; the next leads."""
    data = tmp_path / "data"
    process, listeners = process_on(data)
    port = next(iter(listeners.amqp)).getsockname()[1]
    console = next(iter(listeners.console)).getsockname()[1]
    connections: list[pika.BlockingConnection] = []
    written: list[int] = []

    def publish(broker: ServedBroker) -> None:
        connections.append(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)))
        supervisor = broker.built.supervisor
        assert supervisor is not None
        journal = supervisor.journal
        trio.from_thread.run_sync(agree_to_all, broker)
        channel = connections[0].channel()
        channel.queue_declare("later", arguments={"x-message-ttl": 3_600_000})
        channel.basic_publish("", "later", b"one", pika.BasicProperties(delivery_mode=2))
        channel.basic_consume("later", lambda *_: None)
        ask_console(console)
        assert journal.wait(journal.next_lsn)
        written.append(journal.next_lsn)

    def be_closed() -> None:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            while True:
                connections[0].process_data_events(30)
        assert (closed.value.reply_code, "no longer leads" in closed.value.reply_text) == (320, True)

    async def lives() -> None:
        await served(process, lambda _: None, cluster=won(data, 1))  # imports, and threads that are kept
        gc.collect()
        tasks = trio.lowlevel.current_statistics().tasks_living
        before, threads_before = descriptors(), threads()
        parts = await served(process, publish, be_closed, won(data, 2))
        connections.clear()
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert threads() == threads_before
        assert descriptors() == before
        assert [part() for part in parts] == [None] * len(parts)
        assert end_of(data) == written[0]
        await served(process, lambda broker: None, cluster=won(data, 3))

    trio.run(lives)
    listeners.close()


def agree_to_all(broker: ServedBroker) -> None:
    """As if all nodes had every record as soon as this one."""
    supervisor = broker.built.supervisor
    assert supervisor is not None
    journal, cluster = supervisor.journal, supervisor.journal.writer.file.cluster
    assert cluster is not None
    token = trio.lowlevel.current_trio_token()
    cluster.on_synced = lambda lsn: token.run_sync_soon(journal.agree, lsn)
    journal.agree(journal.durable_lsn)


@pytest.mark.parametrize(
    ("where", "answer", "error"),
    [
        ("composition.start_faults", ["queue q: no such recovery point"], DataUnusable),
        ("served_broker.log_flow", ValueError("no such record"), ValueError),  # behind its restored broker
    ],
)
def test_a_takeover_that_fails_unlocks_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, answer: object, error: type[Exception]
) -> None:
    """Whatever failed: this process lives on, and the node follows again."""
    data = tmp_path / "data"
    process, listeners = process_on(data)

    def fail(*_: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(f"leveret.serving.{where}", fail)

    async def build() -> None:
        with pytest.raises(error, match="no such"):
            process.build_broker(won(data, 1))

    trio.run(build)
    end_of(data)  # it can be opened
    listeners.close()
