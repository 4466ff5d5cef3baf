"""Policies of a running broker: files that change, the command line, definitions, explain, slices. Virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from broker_process import leveret_serve
from desk import VirtualDesk

from leveret.__main__ import main
from leveret.engine.queues.bounds import TRIM_SLICE
from leveret.engine.reloading import CONCERNED_SLICE
from leveret.operator.command_error import CommandError

LIMIT = """
[[policy]]
name = "limit"
pattern = "^q"
definition = { max-length = 2 }
"""


def test_a_file_that_changes() -> None:
    """A policy comes, changes and goes with its entry; what was changed by hand holds until the entry changes."""
    desk = VirtualDesk()
    desk.declare()
    desk.publish(*"ABCDE")
    desk.reload(LIMIT)
    assert desk.counts()[0] == 2
    desk.command("policies", action="set", name="limit", pattern="^q", definition={"max-length": 4})
    desk.reload(LIMIT + '[[vhost]]\nname = "other"\n')
    desk.publish(*"FGH")
    assert desk.counts()[0] == 4
    desk.reload(LIMIT.replace("2", "3"))
    assert desk.counts()[0] == 3
    desk.reload("")
    desk.publish(*"IJKL")
    assert desk.counts()[0] == 7
    assert desk.command("policies") == []


def test_our_keys_are_live() -> None:
    """A redelivery delay, attempts and a dead-letter address come by policy, go with it, and yield to arguments."""
    desk = VirtualDesk()
    for queue in ("q", "failed"):
        desk.declare(queue)
    desk.declare("own", x_redelivery_delay=7)
    definition = {"redelivery-delay": "1s", "max-delivery-attempts": 2, "dead-letter-address": "failed"}
    desk.command("policies", action="set", name="p", pattern="^(q|own)$", definition=definition)
    for queue, delay_ms in (("q", 1000), ("own", 7)):
        desk.publish("A", key=queue)
        desk.nack(desk.must_get(queue))
        assert desk.get(queue) is None
        desk.advance_ms(delay_ms)
        desk.nack(desk.must_get(queue))
        assert desk.all("failed") == "A"
    desk.command("policies", action="clear", name="p")
    desk.publish("B")
    for _ in range(5):
        desk.nack(desk.must_get())
    assert desk.all() == "B"


def test_a_ring_by_policy() -> None:
    """It begins with the next arrival, as resizing one does, and ends when it is cleared."""
    desk = VirtualDesk()
    desk.declare()
    desk.publish(*"ABCD")
    desk.command("policies", action="set", name="p", pattern="", definition={"ring-size": 2})
    assert desk.counts()[0] == 4
    desk.publish(*"EF")
    assert desk.counter("replaced") == 2
    desk.command("policies", action="clear", name="p")
    desk.publish(*"GH")
    assert desk.all() == "CDEFGH"


def test_a_consumer_timeout_by_policy() -> None:
    """Of a queue that has consumers already, from its next delivery on."""
    desk = VirtualDesk()
    desk.declare()
    desk.command("policies", action="set", name="p", pattern="", definition={"consumer-timeout": 1000})
    desk.publish("A")
    desk.consume(prefetch=1)
    assert [one.body for one in desk.taken()] == ["A"]
    desk.advance_ms(1500)
    assert desk.counts() == (1, 0, 0)


def test_streams_follow_theirs() -> None:
    """max-length-bytes of a stream, at once and for what comes."""
    desk = VirtualDesk()
    desk.declare(x_queue_type="stream", x_stream_max_segment_size_bytes=300)
    desk.publish(*["x" * 100] * 20)
    desk.command("policies", action="set", name="p", pattern="", definition={"max-length-bytes": 1000})
    bounded = desk.counts()[0]
    assert bounded < 12
    desk.publish(*["x" * 100] * 20)
    assert desk.counts()[0] <= bounded + 3


def test_many_are_dropped_in_slices() -> None:
    """Others are served meanwhile; every one that goes is counted."""
    desk = VirtualDesk()
    desk.declare()
    count = 5 * TRIM_SLICE
    desk.publish(*["A"] * count)
    broker = desk.pair.broker
    desk._control.run("policies", {"action": "set", "name": "p", "pattern": "", "definition": {"max-length": 10}})
    left = [broker.virtual_hosts["/"].queues["q"].ready_count]
    while broker.end_turn():
        left.append(broker.virtual_hosts["/"].queues["q"].ready_count)
    assert left[0] == count - TRIM_SLICE and all(one - other <= TRIM_SLICE for one, other in zip(left, left[1:]))
    assert desk.counts()[0] == 10 and desk.counter("dropped") == count - 10


def test_queues_tell() -> None:
    """`leveret ctl queues` and `explain`: which policies hold, and for which value."""
    desk = VirtualDesk(LIMIT)
    desk.declare(x_max_length=9)
    cap = {"message-ttl": 5}
    desk.command("operator-policies", action="set", name="cap", pattern="", definition=cap, **{"apply-to": "queues"})
    facts = desk._facts("q")
    assert (facts["policy"], facts["operator_policy"]) == ("limit", "cap")
    assert facts["effective_policy_definition"] == {"max-length": 2, "message-ttl": 5}
    (one,) = desk.command("explain", name="q")
    assert one["policies"] == ("harness.toml:2: policy 'limit'", "operator policy 'cap'")
    rows = {row["name"]: (row["value"], row["rule"]) for row in one["rows"]}
    assert rows["x-max-length"] == (2, "harness.toml:2: policy 'limit', below 9 of queue argument")
    assert rows["x-message-ttl"] == (5, "operator policy 'cap'")


def test_an_exchange_tells() -> None:
    """`explain` of an exchange: its alternate exchange."""
    desk = VirtualDesk()
    desk.exchange("x")
    desk.exchange("own", alternate_exchange="declared")
    desk.command("policies", action="set", name="p", pattern="", definition={"alternate-exchange": "ae"})
    for name, expected in (("x", ("ae", "policy 'p'")), ("own", ("declared", "exchange argument"))):
        (one,) = desk.command("explain", name=name)
        rows = {row["name"]: (row["value"], row["rule"]) for row in one["rows"]}
        assert rows["alternate-exchange"] == expected
        assert one["policies"] == ("policy 'p'",)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"pattern": "", "definition": {"max-length": 1}}, "policies set: expected name=NAME"),
        ({"name": "p", "definition": {"max-length": 1}}, "policies set: expected pattern=PATTERN"),
        ({"name": "p", "pattern": 5, "definition": {"max-length": 1}}, "pattern should be a binary but was 5"),
        ({"name": "p", "pattern": "", "definition": "{"}, "definition: is not JSON"),
        ({"name": "p", "pattern": "", "definition": "[" * 100_000}, "definition: is not JSON"),
        ({"name": "p", "pattern": "", "definition": {"max-length": 1}, "priority": "high"}, "priority: is not JSON"),
        ({"name": "p", "pattern": "", "definition": {"max-length": 1}, "vhost": "no"}, "no virtual host 'no'"),
        ({"name": "p", "pattern": "", "definition": {"max-length": 1}, "what": 1}, "unknown argument 'what'"),
        ({"name": "p", "pattern": "(a|b)" * 1000, "definition": {"max-length": 1}}, "is invalid: "),
        ({"name": "p", "pattern": r"(a)\1", "definition": {"max-length": 1}}, "is invalid: "),
    ],
)
def test_what_cannot_be_set(arguments: dict[str, Any], text: str) -> None:
    """Is refused, and nothing is other than before."""
    desk = VirtualDesk(LIMIT)
    before = desk.command("policies")
    with pytest.raises(CommandError) as refused:
        desk.command("policies", action="set", **arguments)
    assert text in str(refused.value)
    assert desk.command("policies") == before


def test_definitions_bring_and_take_them() -> None:
    """RabbitMQ's form: operator policies are parameters there. One that cannot be is named."""
    desk = VirtualDesk()
    desk.declare()
    desk.publish(*"ABCD")
    policy = {"vhost": "/", "name": "p", "pattern": "^q", "apply-to": "queues", "definition": {"max-length": 3}}
    policy["priority"] = 2
    value = {"pattern": "", "apply-to": "queues", "definition": {"max-length": 1}, "priority": 0}
    operator = {"vhost": "/", "component": "operator_policy", "name": "o", "value": value}
    document = {"policies": [policy], "parameters": [operator]}
    bad = {"policies": [policy, {**policy, "name": "bad", "definition": {"foo": 1}}]}
    with pytest.raises(CommandError, match=r'policies\[1\]: \[{<<"foo">>,1}\] are not recognised policy settings'):
        desk.command("definitions", action="import", definitions=bad, **{"all-or-nothing": True})
    assert desk.counts()[0] == 4
    desk.command("definitions", action="import", definitions=document)
    assert desk.counts()[0] == 1
    exported = desk.command("definitions", action="export")
    assert exported["policies"] == [policy]
    assert exported["parameters"] == [operator]


def test_a_virtual_host_takes_its_policies_with_it() -> None:
    """Another one of its name has none."""
    desk = VirtualDesk()
    desk.command("vhosts", action="add", name="shop")
    desk.command("policies", action="set", name="p", vhost="shop", pattern="", definition={"max-length": 1})
    desk.command("vhosts", action="delete", name="shop")
    desk.command("vhosts", action="add", name="shop")
    assert desk.command("policies") == []


def test_the_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """rabbitmqctl's words, with a pattern and JSON as they stand."""
    with leveret_serve(tmp_path) as process:
        ctl = ("ctl", "--url", process.url)
        for kind, kinds in (("policy", "policies"), ("operator_policy", "operator_policies")):
            words = ["p", "^a=b", '{"max-length": 5}', "priority=3", "apply-to=queues"]
            assert main([*ctl, f"set_{kind}", *words]) == 0
            capsys.readouterr()
            assert main([*ctl, "--json", f"list_{kinds}"]) == 0
            (listed,) = json.loads(capsys.readouterr().out)
            assert listed == {
                "vhost": "/",
                "name": "p",
                "pattern": "^a=b",
                "apply-to": "queues",
                "definition": {"max-length": 5},
                "priority": 3,
            }
            assert main([*ctl, f"clear_{kind}", "p"]) == 0
            assert main([*ctl, f"clear_{kind}", "p"]) == 1
            assert "Parameter does not exist" in capsys.readouterr().err


def test_many_queues_hear_of_it_in_slices() -> None:
    """Each of them in the end, those that are declared meanwhile at once, and two changes that overlap both."""
    desk = VirtualDesk()
    vhost = desk.vhost
    count = 3 * CONCERNED_SLICE
    for number in range(count):
        vhost.queues.declare(f"q{number}", client=None, durable=True)
    for name, length in (("a", 5), ("b", 3)):
        arguments = {"action": "set", "name": name, "pattern": "^q", "definition": {"max-length": length}}
        desk._control.run("policies", {**arguments, "priority": int(length == 3)})
    limits = [queue.rules.max_length for queue in vhost.queues.values()]
    assert limits.count(None) > 0
    late = vhost.queues.declare("q-late", client=None, durable=True)
    assert late.rules.max_length == 3
    while desk.pair.broker.end_turn():
        pass
    assert {queue.rules.max_length for queue in vhost.queues.values()} == {3}
    desk.command("policies", action="clear", name="b")
    while desk.pair.broker.end_turn():
        pass
    assert {queue.rules.max_length for queue in vhost.queues.values()} == {5}
