"""The harness: a broker on virtual time that tests drive by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import NotFound
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Harness

FULL = '[[address-setting]]\nmatch = "q"\nmax-size-messages = 2\naddress-full-policy = "DROP"\n'
PERSISTENT = {"delivery_mode": 2}


def test_publish_and_get() -> None:
    """Bodies in order; what no queue takes is returned."""
    harness = Harness()
    harness.queue()
    harness.publish(*"ABCD")
    assert harness.bodies() == [b"A", b"B", b"C", b"D"]
    assert harness.take(2) == [b"A", b"B"]
    assert harness.all() == "CD"
    assert harness.publish("E", key="nowhere", mandatory=True) == [b"E"]
    with pytest.raises(NotFound):
        harness.get("nowhere")


@pytest.mark.parametrize("is_toml", [True, False], ids=["toml", "rows"])
def test_settings(is_toml: bool) -> None:
    """TOML or a repository; both can be replaced."""

    def settings(count: int) -> str | SettingsRepository:
        if is_toml:
            return FULL.replace("2", str(count))
        return SettingsRepository([entry("q", max_size_messages=count, address_full_policy="DROP")])

    harness = Harness(settings(2))
    harness.queue()
    harness.publish(*"ABC")
    harness.reload(settings(3))
    harness.publish(*"DE")
    assert harness.all() == "ABD"


def test_arguments_and_properties_are_python_values() -> None:
    """Underscores for dashes in the names of arguments; tables of headers too."""
    harness = Harness(kind="quorum")
    queue = harness.queue(x_max_length=2, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    assert queue.type == "quorum" and queue.rules.max_length == 2
    assert harness.queue("dead", x_queue_type="classic").type == "classic"
    harness.publish("A", headers={"n": 1, "deep": {"s": "x"}}, priority=3)
    harness.publish(*"BC")
    got = harness.get("dead")
    assert got is not None
    headers = got[1].envelope.headers(got[1].content)
    assert got[1].body == b"A" and headers["n"].value == 1 and headers["deep"].value["s"].text == "x"  # type: ignore[index, call-overload]


def test_consumers_and_what_they_get() -> None:
    """Deliveries by tag; the prefetch holds; a client that does not read holds up nobody else."""
    harness = Harness(unsent_max=300)
    harness.queue()
    slow = harness.connect("slow")
    harness.stalled.add(slow.client)
    harness.consume(tag="slow", by=slow, no_ack=True)
    harness.consume(tag="quick", prefetch=2)
    harness.publish(*(str(number) * 100 for number in range(6)))
    assert {one.consumer.tag for one in harness.deliveries} == {"slow", "quick"}
    assert len(harness.taken("quick")) == 200 and harness.taken() and harness.taken() == ""
    harness.session.ack(0, multiple=True)
    harness.stalled.clear()
    slow.client.drained()
    harness.end_turn()
    assert harness.taken() and harness.all() == ""


def test_confirms() -> None:
    """A letter for each publish, in order, however they are combined."""
    harness = Harness()
    harness.session.select_confirms()
    harness.queue(x_max_length=2, x_overflow="reject-publish")
    harness.publish(*"ABC")
    assert harness.confirms() == "AAN"
    harness.publish("D")
    assert harness.confirms() == "N" and harness.confirms() == ""


def test_time_passes_deadline_by_deadline() -> None:
    """What is due happens at its time, and not before."""
    harness = Harness()
    harness.queue(x_message_ttl=100, x_dead_letter_exchange="", x_dead_letter_routing_key="later")
    harness.queue("later", x_message_ttl=100)
    harness.publish("A")
    harness.advance(99)
    assert (harness.bodies(), harness.bodies("later")) == ([b"A"], [])
    harness.advance(1)
    assert (harness.bodies(), harness.bodies("later")) == ([], [b"A"])
    harness.advance(100)
    assert harness.bodies("later") == []


def test_turns_one_at_a_time() -> None:
    """Verbs that leave the turn open, and how much each turn does."""
    harness = Harness()
    harness.ends_turns = False
    harness.queue()
    harness.publish("A")
    harness.consume()
    assert harness.taken() == ""
    assert list(harness.turns(lambda: len(harness.deliveries))) == [1]


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize(
    ("where", "ends"),
    [("directory", "restart"), ("directory", "kill"), ("files", "restart"), ("files", "kill"), ("files", "power cut")],
)
def test_lives_on_a_journal(where: str, ends: str, memory: int | None, tmp_path: Path) -> None:
    """What is durable is there in the next life; a kill loses only what was not written."""
    harness = Harness(journal=tmp_path if where == "directory" else SimulatedFiles(), memory=memory)
    harness.queue()
    harness.publish(*"AB", **PERSISTENT)
    harness.publish("C")
    assert any(record.name == "published" for record in harness.records())
    harness.writes = False
    harness.publish("D", **PERSISTENT)
    if ends == "restart":
        harness.writes = True
        harness.restart()
    else:
        harness.kill(power_cut=ends == "power cut")
    assert harness.all() == ("ABD" if ends == "restart" else "AB")
    harness.close()


def test_memory_without_a_journal() -> None:
    """Messages leave memory, transient ones to a temp store; all of them come back in order."""
    harness = Harness(memory=0)
    queue = harness.queue()
    bodies = [f"{number} " for number in range(400)]
    for body in bodies:
        harness.publish(body * 20, delivery_mode=1 + len(body) % 2)
    assert len(harness.bodies()) < 400 == queue.ready_count
    assert harness.all() == "".join(body * 20 for body in bodies)


def test_a_checkpoint_leaves_what_is_there() -> None:
    """Segments go that it made useless."""
    harness = Harness(journal=SimulatedFiles())
    harness.queue()
    harness.publish(*"ABC", **PERSISTENT)
    assert harness.take() == [b"A"]
    harness.checkpoint(reclaims=True)
    harness.kill()
    assert harness.all() == "BC"


@pytest.mark.contradicts
def test_invariants_are_checked() -> None:
    """After each turn, where a test wants it."""
    harness: Any = Harness()
    harness.checks = True
    harness.queue()
    harness.publish("A")
    harness.named().events.unacked += 1
    with pytest.raises(AssertionError):
        harness.publish("B")
