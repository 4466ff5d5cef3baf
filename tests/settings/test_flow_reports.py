"""What `leveret explain` and `leveret diff` say of flow control. Source: interfaces page; queues page E."""

import subprocess
import sys
from pathlib import Path

import pytest

from leveret.settings import Configuration, load_configuration
from leveret.settings.difference import differences
from leveret.settings.explain import Explanation, explain

TOML = """\
[[address-setting]]
match = "#"
memory-limit = "1MiB"

[[address-setting]]
match = "held"
address-full-policy = "BLOCK"
send-fail-if-no-space = true
"""
XML = """\
<policyEntries>
<policyEntry queue="A.>" memoryLimit="2 mb" producerFlowControl="true"/>
<policyEntry topic="A.*" memoryLimit="3 mb"/>
</policyEntries>"""
NONE = (
    "none: neither [system-usage] nor an entry with memory-limit, producer-flow-control, cursor, "
    "send-fail-if-no-space or BLOCK"
)


def load(*texts: str) -> Configuration:
    """Texts without faults."""
    files = [("f.xml" if text.startswith("<") else "f.toml", text) for text in texts]
    configuration, faults = load_configuration(files)
    assert not faults, faults
    return configuration


def rules(one: Explanation) -> dict[str, tuple[object, str]]:
    """Setting -> value and rule."""
    return {row.name: (row.value, row.rule) for row in one.rows}


@pytest.mark.parametrize(
    "texts, name, flow",
    [
        (("",), "q", NONE),
        (("[system-usage]",), "q", "by [system-usage]"),
        ((TOML,), "q", "by memory-limit (f.toml:3: match '#')"),
        (
            (TOML,),
            "held",
            "by memory-limit (f.toml:3: match '#'), send-fail-if-no-space (f.toml:8: match 'held'), "
            "address-full-policy (f.toml:7: match 'held')",
        ),
        (
            (TOML, XML, "[system-usage]"),
            "A",
            "by [system-usage], memory-limit (f.xml:2: queue policy 'A.>'), "
            "producer-flow-control (f.xml:2: queue policy 'A.>')",
        ),
        (('[[address-setting]]\nmatch = "q"\npending-message-limit = 5',), "q", NONE),
        (('[[address-setting]]\nmatch = "q"\naddress-full-policy = "DROP"\nmax-size-bytes = 5',), "q", NONE),
    ],
)
def test_why_flow_control_applies(texts: tuple[str, ...], name: str, flow: str) -> None:
    """Each entry by its line."""
    (one,) = explain(load(*texts), name)
    assert one.flow == flow


def test_a_topic_is_explained_where_an_entry_of_its_own_applies() -> None:
    """Beside the queue of that name, with what the entries set."""
    as_queue, as_topic = explain(load(TOML, XML), "A.B")
    assert (as_queue.kind, as_queue.policies) == ("address", ("queue policy 'A.>'",))
    assert rules(as_queue)["memory-limit"] == (2 * 1024**2, "f.xml:2: queue policy 'A.>'")
    assert (as_topic.kind, as_topic.policies) == ("topic", ("topic policy 'A.*'",))
    assert rules(as_topic) == {"memory-limit": (3 * 1024**2, "f.xml:3: topic policy 'A.*'")}
    assert as_topic.flow == "by memory-limit (f.xml:3: topic policy 'A.*')"
    (both,) = explain(load('<defaultEntry><policyEntry memoryLimit="1"/></defaultEntry>'), "any")
    assert both.policies == ("default policy '>'",)


def test_a_queue_has_the_destination_policy_of_its_name() -> None:
    """Not that of its address."""
    declared = '[[address]]\nname = "orders"\n[[address.queue]]\nname = "A.jobs"\n'
    as_queue, as_topic = explain(load(declared, XML), "A.jobs")
    assert (as_queue.kind, as_queue.address) == ("queue", "orders")
    assert rules(as_queue)["memory-limit"] == (2 * 1024**2, "f.xml:2: queue policy 'A.>'")
    assert as_topic.kind == "topic"


def test_what_system_usage_gives() -> None:
    """How publishes are refused, where no entry says."""
    (one,) = explain(load("[system-usage]\nsend-fail-if-no-space = true"), "q")
    assert rules(one)["send-fail-if-no-space"] == (True, "default: [system-usage]")
    (one,) = explain(load(TOML, "[system-usage]"), "held")
    assert rules(one)["send-fail-if-no-space"] == (True, "f.toml:8: match 'held'")


@pytest.mark.parametrize(
    ("text", "name", "rule"),
    [
        ("default-max-delivery-attempts = 4", "max-delivery-attempts", (4, "default-max-delivery-attempts")),
        ("id-cache-size = 9", "id-cache-size", (9, "id-cache-size")),
    ],
)
def test_a_default_of_the_broker_names_its_key(text: str, name: str, rule: tuple[int, str]) -> None:
    (one,) = explain(load(f"[broker]\n{text}"), "q")
    assert rules(one)[name] == (rule[0], f"default: [broker] {rule[1]}")


def test_dead_letters_of_a_destination_policy_limit_the_attempts() -> None:
    """As those of an address-setting do."""
    text = "<policyEntry queue='Q'><deadLetterStrategy><sharedDeadLetterStrategy/></deadLetterStrategy></policyEntry>"
    (one,) = explain(load(text), "Q")
    said = rules(one)
    assert said["max-delivery-attempts"] == (10, "default where a match sets redelivery or dead letters")
    assert said["dead-letter-address"] == ("ActiveMQ.DLQ", "f.xml:1: queue policy 'Q'")


def test_the_command_says_it(tmp_path: Path) -> None:
    """One line above the settings."""
    (tmp_path / "f.xml").write_text(XML)
    command = [sys.executable, "-m", "leveret", "explain", "f.xml", "A.B"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:5] == [
        "address A.B (address A.B, vhost /)",
        "matches, most specific first: none",
        "policies: queue policy 'A.>'",
        "flow control: by memory-limit (f.xml:2: queue policy 'A.>'), "
        "producer-flow-control (f.xml:2: queue policy 'A.>')",
        "paged out: beyond 70 % of memory-limit 2097152, or its low mark; beyond its part of [limits] memory",
    ]
    assert done.stdout.splitlines()[-6:] == [
        "topic A.B (address A.B, vhost /)",
        "matches, most specific first: none",
        "policies: topic policy 'A.*'",
        "flow control: by memory-limit (f.xml:3: topic policy 'A.*')",
        "paged out: beyond 70 % of memory-limit 3145728, or its low mark; beyond its part of [limits] memory",
        "  memory-limit = 3145728  f.xml:3: topic policy 'A.*'",
    ]


@pytest.mark.parametrize(
    ("text", "paging"),
    [
        ("", ""),
        ("memory-limit = 1000", "beyond 70 % of memory-limit 1000, or its low mark; "),
        (
            "memory-limit = 1000\nproducer-flow-control = false\ncursor-memory-high-water-mark = 50",
            "beyond 50 % of memory-limit 1000; ",
        ),
        ("memory-limit = 1000\ncursor = 'vm'", "nothing: cursor is vm"),
        ("max-size-bytes = 0", "beyond max-size-bytes 0; "),
        ("max-size-bytes = 1000\nmax-size-messages = 3", "beyond max-size-bytes 1000; beyond max-size-messages 3; "),
        ("max-size-messages = 3\naddress-full-policy = 'BLOCK'", ""),
        (
            "max-size-bytes = 3\naddress-full-policy = 'DROP'",
            "nothing: with DROP the size of an address counts its messages in memory",
        ),
        ("max-size-bytes-reject-threshold = 3", ""),
        (
            "max-size-bytes-reject-threshold = 3\naddress-full-policy = 'BLOCK'",
            "nothing: with BLOCK the size of an address counts its messages in memory",
        ),
        ("producer-flow-control = false", ""),
        ("producer-flow-control = false\n[system-usage]", "beyond 70 % of [system-usage] memory; "),
        ("cursor = 'file'\n[system-usage]", "beyond 70 % of [system-usage] memory, or its low mark; "),
    ],
)
def test_what_is_paged_out(text: str, paging: str) -> None:
    """By which limit messages leave memory."""
    (one,) = explain(load(f"[[address-setting]]\nmatch = 'q'\n{text}"), "q")
    assert one.paging == (paging if paging.startswith("nothing") else f"{paging}beyond its part of [limits] memory")


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("", "[system-usage]", ["[system-usage]: added: flow control everywhere (at once)"]),
        (
            "[system-usage]",
            "",
            ["[system-usage]: removed: flow control only where an entry asks for it (at once)"],
        ),
        (
            "[system-usage]",
            '[system-usage]\nmemory = "70%"\nstore = 0',
            ['[system-usage] memory: 67108864 -> "70%" (at once)', "[system-usage] store: 107374182400 -> 0 (at once)"],
        ),
        (
            "",
            '[flow]\nuse-channel-flow = ["RabbitMQ"]\nlow-mark = "90%"',
            ["[flow] low-mark: unset -> 90 (at once)", '[flow] use-channel-flow: [] -> ["RabbitMQ"] (at once)'],
        ),
        (
            TOML,
            TOML.replace("1MiB", "2MiB").replace('"BLOCK"', '"FAIL"'),
            [
                "match '#': memory-limit: 1048576 -> 2097152 (at once)",
                'match \'held\': address-full-policy: "BLOCK" -> "FAIL" (messages that arrive later)',
            ],
        ),
        (
            XML,
            XML.replace("3 mb", "1 mb"),
            ["topic policy 'A.*': memory-limit: 3145728 -> 1048576 (at once)"],
        ),
        (
            '<policyEntry queue="A.>" memoryLimit="1"/>',
            '<policyEntry queue="A" memoryLimit="1"/>',
            [
                "queue policy 'A': added: memory-limit 1 (at once)",
                "queue policy 'A.>': removed: memory-limit 1 (at once)",
            ],
        ),
    ],
)
def test_differences(old: str, new: str, expected: list[str]) -> None:
    """Every key of flow control, and when it acts."""
    assert [str(change) for change in differences(load(old), load(new))] == expected
