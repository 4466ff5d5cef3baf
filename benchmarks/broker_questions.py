"""Eight questions to a test broker, asked by pika through a socket. `yes`, or what happened instead, in a few words."""

import signal
import time
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel as Channel

TTL_MS = 300
#: Whoever has not answered a question by then is said to hang; of which waiting for one message may take.
SECONDS_MAX, GET_SECONDS_MAX = 30, 5

Wait = Callable[[], object]


class No(Exception):
    """The answer, in a few words."""


def _get(channel: Channel, queue: str, **more: Any) -> tuple[Any, Any, bytes | None]:
    """The next message, until a deadline."""
    deadline = time.monotonic() + GET_SECONDS_MAX
    while True:
        got = channel.basic_get(queue, **more)
        if got[0] is not None or time.monotonic() > deadline:
            return got  # type: ignore[no-any-return]


def _require(fact: object, otherwise: str) -> None:
    if not fact:
        raise No(otherwise)


def publish_and_get(channel: Channel, wait: Wait) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"body", pika.BasicProperties(headers={"n": 1}))
    _, properties, body = _get(channel, "q", auto_ack=True)
    _require(body == b"body" and properties.headers == {"n": 1}, "another message")


def topic_exchanges(channel: Channel, wait: Wait) -> None:
    channel.exchange_declare("topics", "topic")
    for queue, pattern in (("one", "a.*"), ("all", "#")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "topics", pattern)
    channel.basic_publish("topics", "a.b", b"1")
    channel.basic_publish("topics", "a.b.c", b"2")
    _require([_get(channel, "all", auto_ack=True)[2] for _ in range(2)] == [b"1", b"2"], "no `#`")
    _require(_get(channel, "one", auto_ack=True)[2] == b"1", "no `*`")
    _require(channel.basic_get("one", auto_ack=True)[0] is None, "`*` takes two words")


def unroutable(channel: Channel, wait: Wait) -> None:
    channel.confirm_delivery()
    try:
        channel.basic_publish("", "nobody", b"lost", mandatory=True)
    except pika.exceptions.UnroutableError:
        return
    raise No("no return")


def dead_letters(channel: Channel, wait: Wait) -> None:
    channel.queue_declare("dead")
    arguments = {"x-message-ttl": TTL_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("short", arguments=arguments)
    channel.basic_publish("", "short", b"old")
    wait()
    _, properties, body = _get(channel, "dead", auto_ack=True)
    _require(body == b"old", "not dead-lettered")
    deaths = (properties.headers or {}).get("x-death")
    _require(deaths and deaths[0]["reason"] == "expired" and deaths[0]["queue"] == "short", "no `x-death`")


def redelivered(channel: Channel, wait: Wait) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"again")
    method, _, _ = _get(channel, "q")
    _require(method is not None and not method.redelivered, "marked at first")
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, _ = _get(channel, "q", auto_ack=True)
    _require(method is not None, "gone")
    _require(method.redelivered, "not marked")


def prefetch(channel: Channel, wait: Wait) -> None:
    channel.queue_declare("q")
    for number in range(5):
        channel.basic_publish("", "q", b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    got: list[bytes] = []
    channel.basic_consume("q", lambda _, method, properties, body: got.append(body))
    deadline = time.monotonic() + GET_SECONDS_MAX
    while len(got) < 2 and time.monotonic() < deadline:
        channel.connection.process_data_events(0.05)
    channel.connection.process_data_events(0.3)  # what else would come
    _require(len(got) == 2, f"{len(got)} of 5 with a prefetch of 2")


def other_arguments(channel: Channel, wait: Wait) -> None:
    channel.queue_declare("q", arguments={"x-max-length": 5})
    try:
        channel.queue_declare("q", arguments={"x-max-length": 6})
    except pika.exceptions.ChannelClosedByBroker as error:
        _require(error.reply_code == 406, f"{error.reply_code}")
        return
    raise No("taken")


def given_back(channel: Channel, wait: Wait) -> None:
    """The consumer's channel ends with a message that it has not acknowledged."""
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"held")
    other = channel.connection.channel()
    got: list[bytes] = []
    other.basic_consume("q", lambda _, method, properties, body: got.append(body))
    deadline = time.monotonic() + GET_SECONDS_MAX
    while not got and time.monotonic() < deadline:
        channel.connection.process_data_events(0.05)
    _require(got, "not delivered")
    other.close()
    method, _, _ = _get(channel, "q", auto_ack=True)
    _require(method is not None, "gone")
    _require(method.redelivered, "not marked")


#: In the order of the page. The programs for brokers without a socket answer the same ones.
QUESTIONS: dict[str, Callable[[Channel, Wait], None]] = {
    "publish, get": publish_and_get,
    "topic exchanges": topic_exchanges,
    "unroutable messages come back": unroutable,
    "TTL and dead letters, `x-death`": dead_letters,
    "a nacked message is marked redelivered": redelivered,
    "prefetch holds back": prefetch,
    "declared again with other arguments: 406": other_arguments,
    "a consumer that is gone gives back": given_back,
}
_USED = ("q", "one", "all", "dead", "short")


def ask(url: str, *, wait: Wait = lambda: None, only: str | None = None) -> dict[str, str]:
    """Each question on a connection of its own, or one `only`. `wait` brings about what is due in two seconds, where
    the broker's time does not pass by itself."""
    said = {}
    for name, question in QUESTIONS.items():
        if only in (None, name):
            said[name] = _asked(url, question, wait)
            if only is None:
                _clean(url)
    return said


def _asked(url: str, question: Callable[[Channel, Wait], None], wait: Wait) -> str:
    parameters = pika.URLParameters(url)
    before = signal.signal(signal.SIGALRM, _hangs)  # pika waits for some answers for ever
    signal.alarm(SECONDS_MAX)
    try:
        connection = pika.BlockingConnection(parameters)
        question(connection.channel(), wait)
    except No as answer:
        return str(answer)
    except TimeoutError:
        return "hangs"
    except (pika.exceptions.AMQPError, OSError) as error:
        return f"refused: {type(error).__name__}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    connection.close()
    return "yes"


def _hangs(*_: object) -> None:
    raise TimeoutError


def _clean(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for queue in _USED:
            channel.queue_delete(queue)
        channel.exchange_delete("topics")
