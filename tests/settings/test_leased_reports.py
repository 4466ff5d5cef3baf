"""What `explain` and `diff` say of leased queues and logged topics. Source: interfaces page; queues page A.3."""

import pytest

from leveret.settings import Configuration, load_configuration
from leveret.settings.difference import differences
from leveret.settings.explain import explain
from leveret.settings.leases.leased_settings import ELEMENTS
from leveret.settings.lifetime import ARRIVAL, LIVE, RESTART

QUEUE = '[[queue]]\nname = "Q"\ntype = "amps"\n'


def load(*texts: str) -> Configuration:
    """Texts without faults."""
    files = [("f.xml" if text.startswith("<") else "f.toml", text) for text in texts]
    configuration, faults = load_configuration(files)
    assert not faults, faults
    return configuration


def rules(configuration: Configuration, name: str = "Q") -> dict[str, tuple[object, str]]:
    """Setting -> value and rule."""
    (one,) = explain(configuration, name)
    assert one.kind == "queue"
    names = [row.name for row in one.rows]
    assert len(set(names)) == len(names)
    return {row.name: (row.value, row.rule) for row in one.rows}


def test_every_setting_of_a_leased_queue_is_explained() -> None:
    """Each element with its value and the line that gave it; defaults that follow from others say so."""
    text = QUEUE + 'underlying-topic = "Orders"\nlease-period = "30s"\nmax-deliveries = 2\nmessage-ttl = 5\n'
    found = rules(load(text))
    assert {element.argument.removeprefix("x-") for element in ELEMENTS} <= found.keys()
    assert found["underlying-topic"] == ("Orders", "f.toml:4: queue 'Q' (x-underlying-topic)")
    assert found["lease-period"] == (30_000, "f.toml:5: queue 'Q' (x-lease-period)")
    assert found["max-deliveries"] == (2, "f.toml:6: queue 'Q' (x-max-deliveries)")
    assert found["message-ttl"] == (5, "f.toml:7: queue 'Q' (x-message-ttl)")
    assert found["max-backlog-per-consumer"] == (1, "default")
    assert found["max-backlog-total"] == (None, "default")
    assert found["default-publish-target"] == ("Orders", "default: underlying-topic")
    assert found["fairness"] == ("proportional", "default of the semantics")
    assert found["x-queue-type"][0] == "amps"
    assert rules(load(QUEUE))["underlying-topic"] == ("Q", "default: the queue's name")


def test_settings_that_no_leased_queue_looks_at_are_not_shown() -> None:
    """Those of an address that its own replace; its dead letters and limits are."""
    entry = '[[address-setting]]\nmatch = "#"\nredelivery-delay = 5\ndead-letter-address = "D"\nmax-size-messages = 3\n'
    found = rules(load(entry + QUEUE))
    for name in ("redelivery-delay", "max-delivery-attempts", "default-ring-size", "pending-message-limit"):
        assert name not in found
    assert found["dead-letter-address"] == ("D", "f.toml:4: match '#'")
    assert found["max-size-messages"] == (3, "f.toml:5: match '#'")


def test_the_same_of_xml() -> None:
    """The rule names the line of the element."""
    text = "<LocalQueue><Name>Q</Name>\n<MessageType>json</MessageType>\n<LeasePeriod>1m</LeasePeriod></LocalQueue>"
    assert rules(load(text))["lease-period"] == (60_000, "f.xml:3: queue 'Q' (x-lease-period)")


def test_a_topic_says_who_captures_it() -> None:
    """By name and by pattern, with the filter; and what has it logged. A queue's own name is a queue."""
    text = """
[[queue]]
name = "Q"
type = "amps"
underlying-topic = "Orders"
queue-filter = "/a = 1"
[[queue]]
name = "R"
type = "amps"
underlying-topic = "^Ord"
default-publish-target = "Orders"
[[queue]]
name = "S"
type = "amps"
[[logged-topic]]
pattern = "."
"""
    (address,) = explain(load(text), "Orders")
    assert [(row.name, row.value, row.rule) for row in address.rows if row.name.endswith("-by")] == [
        ("captured-by", "Q", "f.toml:5: underlying-topic 'Orders', if /a = 1"),
        ("captured-by", "R", "f.toml:10: underlying-topic '^Ord'"),
        ("logged-by", ".", "f.toml:15: logged topic '.' (pattern)"),
    ]
    (other,) = explain(load(text), "Other")
    assert [row.name for row in other.rows if row.name.endswith("-by")] == ["logged-by"]
    (elsewhere,) = explain(load(text), "Orders", "v")
    assert [row.name for row in elsewhere.rows if row.name.endswith("-by")] == []


def changes(before: str, after: str) -> list[str]:
    """What `diff` prints."""
    return [str(change) for change in differences(load(before), load(after))]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", []),
        ("lease-period = 60000", 'lease-period = "1m"', []),
        ("", 'replication = "local"\nfairness = "proportional"\nmax-deliveries = 0', []),
        (
            "",
            'underlying-topic = "a"',
            [
                f'underlying-topic: "Q" -> "a" ({ARRIVAL.value})',
                f'default-publish-target: "Q" -> "a" ({ARRIVAL.value})',
            ],
        ),
        (
            "",
            'semantics = "at-most-once"',
            [
                f'semantics: "at-least-once" -> "at-most-once" ({RESTART.value})',
                f'fairness: "proportional" -> "round-robin" ({RESTART.value})',  # which follows from the semantics
            ],
        ),
        (
            "",
            'semantics = "at-most-once"\nfairness = "fast"',
            [
                'fairness: "proportional" -> "fast" (at once)',
                f'semantics: "at-least-once" -> "at-most-once" ({RESTART.value})',
            ],
        ),
        ('fairness = "fast"', "", ['fairness: "fast" -> "proportional" (at once)']),
        ("", "lease-period = 5", ["lease-period: unset -> 5 (at once)"]),
        ("max-deliveries = 2", "max-deliveries = 3", ["max-deliveries: 2 -> 3 (at once)"]),
        ("", "max-backlog-per-consumer = 5", ["max-backlog-per-consumer: 1 -> 5 (new consumers only)"]),
        ("", "message-ttl = 5", ["message-ttl: unset -> 5 (messages that arrive later)"]),
        ("", "file-backed = true", ["file-backed: false -> true (never: it means nothing here)"]),
    ],
)
def test_changes_of_a_leased_queue(before: str, after: str, expected: list[str]) -> None:
    """By what its settings are, however they are written, and when each acts."""
    said = [line for line in changes(QUEUE + before, QUEUE + after) if not line.startswith("exchange ")]
    assert said == [f"queue 'Q': {line}" for line in expected]


def test_settings_that_leased_queues_do_not_use() -> None:
    """A changed match tells nothing of them at the queue; of a setting that it uses, it does."""
    entry = '[[address-setting]]\nmatch = "Q"\nredelivery-delay = 5\nexpiry-address = "e"\n'
    of_queue = [line for line in changes(QUEUE, QUEUE + entry) if line.startswith("queue")]
    assert of_queue == ['queue \'Q\': expiry-address: "" -> "e" (at once)']


def test_a_queue_that_becomes_a_leased_one() -> None:
    """And back: not on the queue that is there."""
    (line,) = changes('[[queue]]\nname = "Q"\n', QUEUE)
    assert line == "queue 'Q': x-queue-type: unset -> \"amps\" (not on a queue that exists: delete it first)"
    (line,) = changes(QUEUE, '[[queue]]\nname = "Q"\n')
    assert line.startswith("queue 'Q': x-queue-type: \"amps\" -> unset (")


def test_exchanges_of_topics_come_and_go() -> None:
    """With the queues that name them."""
    topic = 'underlying-topic = "a"\n'
    assert "exchange 'a': declared (at once)" in changes("", QUEUE + topic)
    assert "exchange 'a': no longer declared: stays, with config-delete-addresses OFF" in changes(QUEUE + topic, "")


def test_changes_of_logged_topics() -> None:
    """Declared, gone, kept for another time."""
    one, other = '[[logged-topic]]\nname = "a"\n', '[[logged-topic]]\npattern = "^b"\nvhost = "v"\n'
    assert changes("", one + other) == [
        f"logged topic '^b' (pattern) in vhost 'v': declared ({LIVE.value})",
        f"logged topic 'a': declared ({LIVE.value})",
        "virtual host 'v': declared (at once)",
    ]
    assert changes(one, "") == [
        f"logged topic 'a': no longer declared: logged only for queues that select it ({LIVE.value})"
    ]
    one_kept = "logged topic 'a': messages of any type, kept 86400000 ms"
    assert changes(one, one + 'retain = "1h"\nmessage-type = "json"\n') == [
        f"{one_kept} -> json, kept 3600000 ms ({LIVE.value})"
    ]
    assert changes(one, one + 'retain = "24h"\n') == [], "that is the default"
    (unkept,) = changes(one, one + "retain = 0\n")
    assert unkept == f"{one_kept} -> messages of any type, kept 0 ms ({LIVE.value})"
