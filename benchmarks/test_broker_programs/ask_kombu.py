"""The eight questions to kombu's memory transport, by kombu's own API; prints the answers as JSON."""

import json
import queue as queues
import time

import kombu
from kombu import Connection, Exchange, Queue

TTL_MS, SECONDS_MAX = 300, 2


class No(Exception):
    pass


def require(fact, otherwise):
    if not fact:
        raise No(otherwise)


def get(queue, within=SECONDS_MAX, **more):
    deadline = time.monotonic() + within
    while True:
        message = queue.get(**more)
        if message is not None or time.monotonic() > deadline:
            return message
        time.sleep(0.01)


def declared(channel, name, **more):
    queue = Queue(name, **more)(channel)
    queue.declare()
    return queue


def publish(channel, key, body, exchange="", **more):
    kombu.Producer(channel).publish(body, routing_key=key, exchange=exchange, **more)


def publish_and_get(connection, channel):
    queue = declared(channel, "basic")
    publish(channel, "basic", "body", headers={"n": 1})
    message = get(queue)
    require(message is not None and message.payload == "body" and message.headers == {"n": 1}, "another message")


def topic_exchanges(connection, channel):
    topics = Exchange("topics", "topic")
    one = declared(channel, "one", exchange=topics, routing_key="a.*")
    every = declared(channel, "all", exchange=topics, routing_key="#")
    publish(channel, "a.b", "1", topics)
    publish(channel, "a.b.c", "2", topics)
    require([getattr(get(every), "payload", None) for _ in range(2)] == ["1", "2"], "no `#`")
    require(getattr(get(one), "payload", None) == "1", "no `*`")
    require(get(one, within=0.1) is None, "`*` takes two words")


def unroutable(connection, channel):
    returned = []
    producer = kombu.Producer(channel, on_return=lambda *told: returned.append(told))
    producer.publish("lost", routing_key="nobody", exchange=Exchange("empty", "direct"), mandatory=True)
    require(returned, "no return")


def dead_letters(connection, channel):
    dead = declared(channel, "dead")
    arguments = {"x-message-ttl": TTL_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    short = declared(channel, "short", queue_arguments=arguments)
    publish(channel, "short", "old")
    message = get(dead)
    if message is None:
        raise No("not dead-lettered" if get(short, within=0.1) is None else "neither: it stays where it was")
    require(message.headers.get("x-death"), "no `x-death`")


def redelivered(connection, channel):
    queue = declared(channel, "nacked")
    publish(channel, "nacked", "again")
    message = get(queue)
    require(not message.delivery_info.get("redelivered"), "marked at first")
    message.requeue()
    message = get(queue)
    require(message is not None, "gone")
    require(message.delivery_info.get("redelivered"), "not marked")


def prefetch(connection, channel):
    queue = declared(channel, "held")
    for number in range(5):
        publish(channel, "held", str(number))
    got = []
    consumer = kombu.Consumer(channel, [queue], on_message=got.append)
    consumer.qos(prefetch_count=2)
    consumer.consume()
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            connection.drain_events(timeout=0.1)
        except (TimeoutError, queues.Empty):
            if got:
                break
    require(len(got) == 2, f"{len(got)} of 5 with a prefetch of 2")


def other_arguments(connection, channel):
    declared(channel, "long", queue_arguments={"x-max-length": 5})
    try:
        declared(channel, "long", queue_arguments={"x-max-length": 6})
    except Exception as error:
        require("406" in str(error) or getattr(error, "reply_code", None) == 406, type(error).__name__)
        return
    raise No("taken")


def given_back(connection, channel):
    queue = declared(channel, "back")
    publish(channel, "back", "held")
    other = connection.channel()
    message = get(Queue("back", channel=other))
    require(message is not None, "not delivered")
    other.close()
    message = get(queue)
    require(message is not None, "gone")
    require(message.delivery_info.get("redelivered"), "back, not marked")


QUESTIONS = {
    "publish, get": publish_and_get,
    "topic exchanges": topic_exchanges,
    "unroutable messages come back": unroutable,
    "TTL and dead letters, `x-death`": dead_letters,
    "a nacked message is marked redelivered": redelivered,
    "prefetch holds back": prefetch,
    "declared again with other arguments: 406": other_arguments,
    "a consumer that is gone gives back": given_back,
}


def answer(question):
    try:
        with Connection("memory://") as connection:
            question(connection, connection.channel())
    except No as no:
        return str(no)
    except Exception as error:
        return f"refused: {type(error).__name__}"
    return "yes"


started = time.perf_counter()
with Connection("memory://") as connection:
    connection.channel()
ready = time.perf_counter() - started
said = {name: answer(question) for name, question in QUESTIONS.items()}
print(json.dumps({"version": kombu.__version__, "ready": ready, "said": said}))
