"""Fixtures of wider scopes, workers that live as long, and resets that spare them."""

import subprocess
import sys
import threading
from pathlib import Path

import pika
import pytest
from consumers import channel_of

from leveret.testing import RunningBroker, WorkerFailed, process_worker, thread_worker

WORKER = """
import pika

def work(url):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("jobs", durable=True)

    def done(channel, method, properties, body):
        channel.basic_publish("", properties.reply_to, body.upper())
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume("jobs", done)
    channel.start_consuming()
    connection.close()

def ask(url, broker, body):
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.queue_declare("answers", exclusive=True)
    channel.basic_publish("", "jobs", body, pika.BasicProperties(reply_to="answers"))
    broker.settled(ignore=["answers"])
    answer = channel.basic_get("answers", auto_ack=True)[2]
    channel.connection.close()
    return answer
"""

MODULE = """
import asyncio
import aio_pika
import pytest
import pytest_asyncio
from worker import ask, work

pytestmark = pytest.mark.amqp(clock="virtual")

@pytest.fixture(scope="module", autouse=True)
def worker(amqp_module_worker, amqp_module_url):
    return amqp_module_worker(work, amqp_module_url, consumes="jobs")

@pytest.mark.parametrize("number", range(3))
def test_the_worker_lives_on(amqp_module_broker, amqp_module_url, worker, number):
    assert ask(amqp_module_url, amqp_module_broker, b"job%d" % number) == b"JOB%d" % number
    assert len(amqp_module_broker.published("", "jobs")) == number + 1
    assert amqp_module_broker.clock.mode == "virtual" and worker.is_alive()

@pytest.mark.parametrize("number", range(2))
def test_beside_it_each_test_is_as_new(amqp_broker, amqp_url, amqp_module_broker, number):
    assert amqp_broker.queues() == () and list(amqp_broker.history("published")) == []
    amqp_broker.inject(body="x")
    amqp_broker.assert_published(count=1)
    amqp_broker.clock.advance(hours=1)
    amqp_broker.reset()
    amqp_broker.assert_not_published()
    amqp_module_broker.assert_queue("jobs", consumers=1)
    assert [queue.name for queue in amqp_broker.queues(vhost=amqp_module_broker.default_vhost)] == ["jobs"]

@pytest.mark.amqp(clock="real")
def test_time_cannot_change(amqp_url): ...

@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def connection(amqp_module_url):
    async with await aio_pika.connect(amqp_module_url) as connection:
        yield connection

@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("number", range(2))
async def test_async_fixtures(connection, amqp_module_broker, number):
    channel = await connection.channel()
    queue = await channel.declare_queue(exclusive=True)
    await channel.default_exchange.publish(aio_pika.Message(b"async", reply_to=queue.name), "jobs")
    await amqp_module_broker.settled_async(ignore=[queue.name])
    assert (await queue.get(no_ack=True)).body == b"ASYNC"
"""

OTHER = """
import pytest

def test_as_new_again(amqp_broker, amqp_url):
    assert amqp_broker.clock.mode == "real" and amqp_broker.clock.elapsed < 3600
    assert len(amqp_broker.runtime.broker.virtual_hosts) == 2  # "/", and the test's own

@pytest.fixture(scope="session")
def made(amqp_session_broker):
    amqp_session_broker.inject(body="for all")

def test_session(made, amqp_broker, amqp_session_broker):
    amqp_session_broker.assert_published(count=1)
    amqp_broker.assert_not_published()

def test_session_again(made, amqp_broker, amqp_session_broker):
    amqp_session_broker.assert_published(count=1)

@pytest.fixture(scope="module")
def left(amqp_module_broker):
    import pika
    return pika.BlockingConnection(pika.URLParameters(amqp_module_broker.url))

def test_a_module_may_leak(left): ...

def test_worker_of_a_test(amqp_worker, amqp_broker, amqp_url):
    from worker import ask, work
    amqp_worker(work, amqp_url, consumes="jobs")
    assert ask(amqp_url, amqp_broker, b"x") == b"X"
"""


def test_scopes(tmp_path: Path) -> None:
    """A worker of a module's scope, tests beside it, async fixtures; then a module without, and a session fixture."""
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "test_a.py").write_text(MODULE)
    (tmp_path / "test_b.py").write_text(OTHER)
    (tmp_path / "test_reset.py").write_text(
        "import pytest\n\ndef test_first(amqp_broker):\n    amqp_broker.vhost('kept').inject(body='x')\n\n"
        "@pytest.mark.amqp(reset=False)\ndef test_spares(amqp_broker):\n"
        "    amqp_broker.assert_published(vhost='kept')\n    amqp_broker.assert_not_published()\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rw"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert "14 passed, 1 warning, 1 error" in done.stdout, done.stdout + done.stderr
    assert "time can't change here, because amqp_module_broker is in use, on virtual time" in done.stdout
    assert "test_b.py: left behind in the broker:" in done.stdout


def test_a_virtual_host_is_reset_and_deleted_alone(broker: RunningBroker) -> None:
    """Its connections, queues, history and faults; another one's stay, and so does time."""
    broker.inject(body="other")
    view = broker.vhost("mine")
    with channel_of(view.url) as channel, channel_of(broker.url) as other:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"x")
        other.queue_declare("q")
        fault = broker.faults.block(vhost="mine")
        elapsed = broker.clock.elapsed
        view.reset()
        assert view.queues() == () and list(view.history("published", "declared")) == []
        assert broker.clock.elapsed > elapsed
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            channel.queue_declare("q")
        other.queue_declare("q", passive=True)
        fault.stop()
        broker.assert_published(body="other")
        view.delete()
        with pytest.raises(LookupError, match="no virtual host 'mine'"):
            view.queues()


def test_what_the_configuration_declares_is_there_again() -> None:
    """Also in a virtual host that is reset alone."""
    from leveret.testing import start_broker

    with start_broker(config={"address": [{"name": "a", "queue": [{"name": "a"}]}]}) as broker:
        broker.inject(routing_key="a", body="x")
        broker.vhost("/").reset()
        broker.assert_queue("a", ready=0)


def test_another_default_virtual_host(broker: RunningBroker) -> None:
    """The same broker, seen from there; its clock can't be reset from there."""
    at = broker.at("there")
    at.inject(body="x")
    at.assert_published(vhost="there")
    broker.assert_not_published()
    at.vhost().assert_published()
    assert at.url.endswith("/there") and at.port == broker.port and at.clock is broker.clock
    with at.faults.block() as fault:
        assert fault.scope.vhost == "there"
    with pytest.raises(ValueError, match="the clock belongs to the whole broker"):
        at.reset(clock="virtual")
    at.reset(clock="real")
    at.assert_not_published()
    with pytest.raises(AttributeError, match="'BrokerAt' has no attribute 'asert_queue', did you mean 'assert_queue'"):
        at.asert_queue  # type: ignore[attr-defined]  # noqa: B018


def consume(url: str, queue: str = "jobs") -> None:
    """A worker as pika programs are."""
    with channel_of(url) as channel:
        channel.queue_declare(queue)
        channel.basic_consume(queue, lambda *_: None, auto_ack=True)
        channel.start_consuming()


def test_thread_worker(broker: RunningBroker) -> None:
    """There when the block begins, gone when it ends."""
    with thread_worker(broker, consume, broker.url, queue="q", consumes="q") as thread:
        broker.assert_queue("q", consumers=1)
    assert not thread.is_alive()
    broker.assert_queue("q", consumers=0)
    event = threading.Event()
    with thread_worker(broker, event.wait, stop=event.set):
        pass


def test_thread_workers_that_fail(broker: RunningBroker) -> None:
    """Before they consume, in the block, or not ending: said, with where they are."""
    with (
        pytest.raises(WorkerFailed, match="ended before it consumed queue 'q'"),
        thread_worker(broker, int, consumes="q"),
    ):
        pass
    with (
        pytest.raises(WorkerFailed, match="worker int raised ValueError: invalid literal"),
        thread_worker(broker, int, "x") as thread,
    ):
        thread.join()
    with (
        pytest.raises(WorkerFailed, match=r"has no consumer after 0.2 s \(there are: "),
        thread_worker(broker, consume, broker.url, consumes="q", timeout=0.2, stop=lambda: broker.reset()),
    ):
        pass
    forever = threading.Event()
    with (
        pytest.raises(WorkerFailed, match="(?s)did not end within 0.1 s; it is here:.*wait"),
        thread_worker(broker, forever.wait, timeout=0.1),
    ):
        pass
    forever.set()


def test_process_worker(broker: RunningBroker) -> None:
    """It finds the URL in its environment and in its command; it is terminated at the end."""
    said = "print(os.environ['AMQP_URL'] == sys.argv[1] == os.environ['U'][1:])"
    script = f"import os, sys, threading; {said}; threading.Event().wait()"
    command = [sys.executable, "-c", script, "{url}"]
    with process_worker(broker, command, says="True", environment={"U": "={url}"}) as process:
        assert process.poll() is None
    assert process.poll() is not None
    with (
        pytest.raises(WorkerFailed, match="(?s)ended with code 3, and wrote:\nwhy\\\\x1b"),
        process_worker(broker, [sys.executable, "-c", "import sys; print('why\\x1b'); sys.exit(3)"], consumes="q"),
    ):
        pass
    with (
        pytest.raises(WorkerFailed, match="'ready' is not in its output"),
        process_worker(broker, [sys.executable, "-c", ""], says="ready"),
    ):
        pass
    with (
        pytest.raises(WorkerFailed, match="it ended with an error"),
        process_worker(broker, [sys.executable, "-c", "raise SystemExit(1)"]) as process,
    ):
        process.wait()
