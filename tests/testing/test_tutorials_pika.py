"""The six RabbitMQ tutorials with pika, as tests: the programs as they are taught, with another URL.

docs/testing-your-application.md walks through these. `running` starts a receiving program in a thread and returns when
it consumes; what the program would print goes into a list.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest

from leveret.testing import RunningBroker

Print = Callable[[str], object]

#: Their queues are not exclusive: they stay, and that is no leak.
pytestmark = pytest.mark.amqp(leaks=True)


def connect(url: str) -> Any:
    """The one line that differs from the tutorials: they say ConnectionParameters(host="localhost")."""
    return pika.BlockingConnection(pika.URLParameters(url))


class Output:
    """What a program in another thread prints.

    Programs with automatic acknowledgement are waited for by it: the broker is done with a message when it has sent it,
    and cannot know when the program has seen it.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()

    def say(self, line: str) -> None:
        """Print a line."""
        with self._changed:
            self._lines.append(line)
            self._changed.notify_all()

    def lines(self, count: int) -> list[str]:
        """All lines, as soon as there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._lines) >= count, 60), self._lines
            return list(self._lines)


@contextmanager
def running(program: Callable[..., Any], url: str, *arguments: Any) -> Iterator[Output]:
    """Run a receiving program until the block ends. It yields its channel when it is set up, then consumes."""
    printed = Output()
    is_set_up = threading.Event()
    channels: list[Any] = []

    def run() -> None:
        channel = program(url, printed.say, *arguments)
        channels.append(channel)
        is_set_up.set()
        channel.start_consuming()
        channel.connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert is_set_up.wait(60)
    try:
        yield printed
    finally:
        channels[0].connection.add_callback_threadsafe(channels[0].stop_consuming)
        thread.join(60)


# -- 1: hello world -------------------------------------------------------------------------------------------------


def send(url: str) -> None:
    """send.py"""
    connection = connect(url)
    channel = connection.channel()
    channel.queue_declare(queue="hello")
    channel.basic_publish(exchange="", routing_key="hello", body="Hello World!")
    connection.close()


def receive(url: str, say: Print) -> Any:
    """receive.py"""
    channel = connect(url).channel()
    channel.queue_declare(queue="hello")

    def callback(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        say(f" [x] Received {body.decode()}")

    channel.basic_consume(queue="hello", on_message_callback=callback, auto_ack=True)
    return channel


def test_hello_world(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """What is sent first is received later."""
    send(amqp_url)
    amqp_broker.assert_queue("hello", ready=["Hello World!"])
    with running(receive, amqp_url) as printed:
        assert printed.lines(1) == [" [x] Received Hello World!"]


# -- 2: work queues -------------------------------------------------------------------------------------------------


def new_task(url: str, message: str) -> None:
    """new_task.py"""
    connection = connect(url)
    channel = connection.channel()
    channel.queue_declare(queue="task_queue", durable=True)
    channel.basic_publish(
        exchange="",
        routing_key="task_queue",
        body=message,
        properties=pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent),
    )
    connection.close()


def worker(url: str, say: Print) -> Any:
    """worker.py, without the sleep for each dot"""
    channel = connect(url).channel()
    channel.queue_declare(queue="task_queue", durable=True)

    def callback(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        say(f" [x] Received {body.decode()}")
        ch.basic_ack(delivery_tag=method.delivery_tag)

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue="task_queue", on_message_callback=callback)
    return channel


def test_work_queues(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """Two workers do each task once; tasks survive a restart of the broker."""
    new_task(amqp_url, "before the restart...")
    amqp_broker.restart()
    with running(worker, amqp_url) as one, running(worker, amqp_url) as two:
        for number in range(10):
            new_task(amqp_url, f"task {number}")
        amqp_broker.settled()
    expected = ["before the restart...", *(f"task {number}" for number in range(10))]
    assert sorted(one.lines(0) + two.lines(0)) == sorted(f" [x] Received {text}" for text in expected)
    assert len(amqp_broker.history("acked")) == 11


# -- 3: publish/subscribe -------------------------------------------------------------------------------------------


def emit_log(url: str, message: str) -> None:
    """emit_log.py"""
    connection = connect(url)
    channel = connection.channel()
    channel.exchange_declare(exchange="logs", exchange_type="fanout")
    channel.basic_publish(exchange="logs", routing_key="", body=message)
    connection.close()


def receive_logs(url: str, say: Print) -> Any:
    """receive_logs.py"""
    channel = connect(url).channel()
    channel.exchange_declare(exchange="logs", exchange_type="fanout")
    queue_name = channel.queue_declare(queue="", exclusive=True).method.queue
    channel.queue_bind(exchange="logs", queue=queue_name)

    def callback(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        say(f" [x] {body.decode()}")

    channel.basic_consume(queue=queue_name, on_message_callback=callback, auto_ack=True)
    return channel


def test_publish_subscribe(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """Everybody who listens gets everything; nobody else gets anything."""
    emit_log(amqp_url, "nobody hears this")
    with running(receive_logs, amqp_url) as one, running(receive_logs, amqp_url) as two:
        emit_log(amqp_url, "info: Hello World!")
        assert one.lines(1) == two.lines(1) == [" [x] info: Hello World!"]
    assert len(amqp_broker.published("logs")) == 2


# -- 4: routing -----------------------------------------------------------------------------------------------------


def emit_log_direct(url: str, severity: str, message: str) -> None:
    """emit_log_direct.py"""
    connection = connect(url)
    channel = connection.channel()
    channel.exchange_declare(exchange="direct_logs", exchange_type="direct")
    channel.basic_publish(exchange="direct_logs", routing_key=severity, body=message)
    connection.close()


def receive_logs_by(url: str, say: Print, exchange: str, exchange_type: str, keys: list[str]) -> Any:
    """receive_logs_direct.py and receive_logs_topic.py"""
    channel = connect(url).channel()
    channel.exchange_declare(exchange=exchange, exchange_type=exchange_type)
    queue_name = channel.queue_declare("", exclusive=True).method.queue
    for key in keys:
        channel.queue_bind(exchange=exchange, queue=queue_name, routing_key=key)

    def callback(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        say(f" [x] {method.routing_key}:{body.decode()}")

    channel.basic_consume(queue=queue_name, on_message_callback=callback, auto_ack=True)
    return channel


def test_routing(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """Each receiver gets the severities that it asked for."""
    arguments = ("direct_logs", "direct")
    with (
        running(receive_logs_by, amqp_url, *arguments, ["warning", "error"]) as to_disk,
        running(receive_logs_by, amqp_url, *arguments, ["info", "warning", "error"]) as to_screen,
    ):
        for severity in ("info", "error", "debug"):
            emit_log_direct(amqp_url, severity, "Run. Run. Or it will explode.")
        line = "Run. Run. Or it will explode."
        assert to_disk.lines(1) == [f" [x] error:{line}"]
        assert to_screen.lines(2) == [f" [x] info:{line}", f" [x] error:{line}"]


# -- 5: topics ------------------------------------------------------------------------------------------------------


def emit_log_topic(url: str, routing_key: str, message: str) -> None:
    """emit_log_topic.py"""
    connection = connect(url)
    channel = connection.channel()
    channel.exchange_declare(exchange="topic_logs", exchange_type="topic")
    channel.basic_publish(exchange="topic_logs", routing_key=routing_key, body=message)
    connection.close()


@pytest.mark.parametrize(
    "keys, expected",
    [
        (["#"], ["kern.critical", "kern.info", "auth.critical", "kern.disk.info"]),
        (["kern.*"], ["kern.critical", "kern.info"]),
        (["*.critical"], ["kern.critical", "auth.critical"]),
        (["kern.*", "*.critical"], ["kern.critical", "kern.info", "auth.critical"]),
    ],
)
def test_topics(amqp_broker: RunningBroker, amqp_url: str, keys: list[str], expected: list[str]) -> None:
    """The tutorial's own four calls of receive_logs_topic.py."""
    with running(receive_logs_by, amqp_url, "topic_logs", "topic", keys) as printed:
        for routing_key in ("kern.critical", "kern.info", "auth.critical", "kern.disk.info"):
            emit_log_topic(amqp_url, routing_key, "A critical kernel error")
        assert printed.lines(len(expected)) == [f" [x] {key}:A critical kernel error" for key in expected]


# -- 6: RPC ---------------------------------------------------------------------------------------------------------


def fib(n: int) -> int:
    """The tutorial's, as slow as it is there."""
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def rpc_server(url: str, say: Print) -> Any:
    """rpc_server.py"""
    channel = connect(url).channel()
    channel.queue_declare(queue="rpc_queue")

    def on_request(ch: Any, method: Any, props: Any, body: bytes) -> None:
        n = int(body)
        say(f" [.] fib({n})")
        ch.basic_publish(
            exchange="",
            routing_key=props.reply_to,
            properties=pika.BasicProperties(correlation_id=props.correlation_id),
            body=str(fib(n)),
        )
        ch.basic_ack(delivery_tag=method.delivery_tag)

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue="rpc_queue", on_message_callback=on_request)
    return channel


class FibonacciRpcClient:
    """rpc_client.py"""

    def __init__(self, url: str) -> None:
        self.connection = connect(url)
        self.channel = self.connection.channel()
        self.callback_queue = self.channel.queue_declare(queue="", exclusive=True).method.queue
        self.channel.basic_consume(queue=self.callback_queue, on_message_callback=self.on_response, auto_ack=True)
        self.response: bytes | None = None
        self.corr_id = ""

    def on_response(self, ch: Any, method: Any, props: Any, body: bytes) -> None:
        """A reply, perhaps ours."""
        if self.corr_id == props.correlation_id:
            self.response = body

    def call(self, n: int) -> int:
        """Ask, and wait for the answer."""
        self.response = None
        self.corr_id = str(uuid.uuid4())
        self.channel.basic_publish(
            exchange="",
            routing_key="rpc_queue",
            properties=pika.BasicProperties(reply_to=self.callback_queue, correlation_id=self.corr_id),
            body=str(n),
        )
        while self.response is None:
            self.connection.process_data_events(time_limit=None)
        return int(self.response)


def test_rpc(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """fib(15) by remote call, twice; requests and replies are in the history."""
    with running(rpc_server, amqp_url) as printed:
        client = FibonacciRpcClient(amqp_url)
        assert client.call(15) == 610
        assert client.call(16) == 987
        client.connection.close()
    assert printed.lines(2) == [" [.] fib(15)", " [.] fib(16)"]
    amqp_broker.assert_published(routing_key="rpc_queue", body="15", count=1)
    assert len(amqp_broker.published()) == 4
