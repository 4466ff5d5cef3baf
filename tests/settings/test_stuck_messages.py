"""`leveret check` on messages that come to no good end."""

import pika
import pytest
from consumers import channel_of

from leveret.settings import load_configuration
from leveret.testing import start_broker

NEWS = '[[address]]\nname = "news"\nrouting-type = "multicast"\n'
KEPT = '[[address.queue]]\nname = "kept"\n'
JOBS = '[[address-setting]]\nmatch = "jobs.#"\nmax-delivery-attempts = 5\ndead-letter-address = "news"\n'
POISON = "a message that is nacked with requeue never leaves: nack-counts is false ("
CIRCLE = (
    '[[address-setting]]\nmatch = "a"\nexpiry-address = "b"\nexpiry-delay = 1000\n'
    '[[address-setting]]\nmatch = "b"\nexpiry-address = "a"\nexpiry-delay = 1000\n'
)
ITSELF = '[[address-setting]]\nmatch = "a"\ndead-letter-address = "a"\nmax-delivery-attempts = 2\n'
DEAD_CIRCLE = ITSELF.replace('s = "a"', 's = "b"') + ITSELF.replace('h = "a"', 'h = "b"')
BACK = '[[address-setting]]\nmatch = "a"\nredelivery-delay = 50\nmax-delivery-attempts = -1\n'
WAITS = '[[address-setting]]\nmatch = "a"\ndefault-consumers-before-dispatch = 3\ndefault-max-consumers = 2\n'


@pytest.mark.parametrize(
    "text, warnings",
    [
        (
            '[broker]\nprofile = "4.3"\n' + JOBS,
            [f"f:5: match 'jobs.#': {POISON}profile rabbitmq-4.3), so that only basic.reject and lost"],
        ),
        (
            "[broker]\nnack-counts = false\n" + JOBS,
            [f"f:5: match 'jobs.#': {POISON}in [broker]), so that only basic.reject and"],
        ),
        (
            "[broker]\nnack-counts = false\nreject-counts = false\n" + JOBS,
            [f"f:6: match 'jobs.#': {POISON}in [broker]), so that only lost connections count"],
        ),
        ('[broker]\nprofile = "4.3"\nnack-counts = true\n' + JOBS, []),
        (JOBS, []),
        ('[broker]\nprofile = "4.3"\n[[address-setting]]\nmatch = "a"\nmax-delivery-attempts = -1\n', []),
        (NEWS + JOBS, ["f:7: dead-letter-address: nothing is bound to 'news', which is declared"]),
        (NEWS + KEPT + JOBS, []),
        (JOBS.replace('"news"', '"amq.dead"'), ["f:4: dead-letter-address: nothing is bound to 'amq.dead': unless"]),
        (
            JOBS + "auto-create-missing-queues = false\n",
            ["f:4: dead-letter-address: nothing is bound to 'news': unless"],
        ),
        (JOBS + 'auto-create-missing-queues = false\n[[queue]]\nname = "news"\n', []),
        (JOBS + "auto-create-missing-queues = false\nauto-create-dead-letter-resources = true\n", []),
        (
            '<address-setting match="a"><dead-letter-address>DLQ</dead-letter-address></address-setting>',
            ["f:1: dead-letter-address: nothing is bound to 'DLQ': unless an application binds a queue, messages"],
        ),
        (
            NEWS + '[[address-setting]]\nmatch = "a"\nexpiry-address = "news"\n',
            ["f:6: expiry-address: nothing is bound to"],
        ),
        (
            CIRCLE,
            ["f:3: expiry-address: expired messages go round in a circle, 'a' -> 'b' -> 'a',", "f:7: expiry-address:"],
        ),
        (CIRCLE.replace("expiry-delay = 1000\n", ""), []),
        (ITSELF, ["f:3: dead-letter-address: a message that always fails never leaves 'a', which is its own"]),
        (ITSELF.replace('"a"', '"#"', 1), []),
        (
            DEAD_CIRCLE,
            ["f:3: dead-letter-address: messages that always fail go round in a circle, 'a' -> 'b' -> 'a',", "f:7: d"],
        ),
        (DEAD_CIRCLE.replace("max-delivery-attempts = 2", "max-delivery-attempts = -1", 1), []),
        ('[[address-setting]]\nmatch = "a"\nexpiry-address = "b"\nexpiry-delay = 1000\n', []),
        (BACK, ["f:4: max-delivery-attempts: a message that always fails comes back for ever, after 50 ms and more"]),
        (BACK.replace("-1", "3"), []),
        (BACK.replace("max-delivery-attempts = -1\n", ""), []),
        (WAITS, ["f:3: default-consumers-before-dispatch: never begins to deliver: waits without a time limit for 3"]),
        (WAITS + "default-delay-before-dispatch = 10\n", []),
        (WAITS.replace("consumers = 2", "consumers = 3"), []),
        (
            '[[queue]]\nname = "q"\nmax-consumers = 1\nconsumers-before-dispatch = 2\n',
            ["f:1: queue 'q': never begins to deliver"],
        ),
    ],
)
def test_warnings(text: str, warnings: list[str]) -> None:
    """Each once, where it is written; nothing where there is a way out."""
    configuration, faults = load_configuration([("f", text)])
    assert not faults
    found = [line for line in configuration.warnings if "limit without dead-letter" not in line]
    assert len(found) == len(warnings), found
    assert all(line.startswith(start) for line, start in zip(found, warnings)), found


def test_a_circle_drops_what_goes_round() -> None:
    """As the warning says."""
    with start_broker(clock="virtual", config=CIRCLE) as broker, channel_of(broker.url) as channel:
        channel.queue_declare("a")
        channel.queue_declare("b")
        channel.basic_publish("", "a", b"x", pika.BasicProperties())
        broker.clock.advance(seconds=10)
        assert [event.subject for event in broker.history("expired")] == ["a", "b"]
        assert not broker.queue("a").messages and not broker.queue("b").messages


def test_a_circle_of_dead_letters_keeps_what_always_fails() -> None:
    """As the warnings say."""
    for text in (DEAD_CIRCLE, ITSELF):
        with start_broker(clock="virtual", config=text) as broker, channel_of(broker.url) as channel:
            channel.queue_declare("a")
            channel.queue_declare("b")
            channel.basic_publish("", "a", b"x")
            for _ in range(6):
                for name in ("a", "b"):
                    method, _properties, _body = channel.basic_get(name)
                    if method is not None:
                        channel.basic_nack(method.delivery_tag)
            channel.queue_declare("a", passive=True)  # after the last nack
            assert len(broker.queue("a").messages) + len(broker.queue("b").messages) == 1
