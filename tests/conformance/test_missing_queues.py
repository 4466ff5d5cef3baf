"""A dead-letter or expiry address to which nothing is bound gets a queue; what is lost all the same is counted.

Source: address-settings page 5.5; README, its first example.
"""

from typing import Any

import pytest
from desk import Desk, Make, VirtualDesk
from toml_text import settings

from leveret.engine import dead_letters
from leveret.serving.flow_log import log_flow

DEAD = settings(q={"max_delivery_attempts": 1, "dead_letter_address": "failed"})


def _die(desk: Desk, *bodies: str, queue: str = "q") -> None:
    desk.publish(*bodies, key=queue)
    for _ in bodies:
        desk.nack(desk.must_get(queue))


def _lost(desk: Desk) -> list[tuple[str, str, int]]:
    status = desk.command("status")["dead_letters_unroutable"]
    assert status["count"] >= sum(place["count"] for place in status["queues"])
    return [(place["queue"], place["address"], place["count"]) for place in status["queues"]]


@pytest.mark.parametrize("address", ["failed", "queue:failed", "exchange:failed", "exchange:failed/key"])
def test_the_first_dead_letter_makes_the_queue(at: Make, address: str) -> None:
    """A durable one of the address's own name; nothing is there before."""
    desk = at(settings(q={"max_delivery_attempts": 1, "dead_letter_address": address}))
    assert not desk.exists("failed")
    _die(desk, "A", "B")
    facts = next(one for one in desk.command("queues") if one["name"] == "failed")
    assert (facts["durable"], facts["ready"]) == (True, 2)
    assert desk.must_get("failed").headers["_AMQ_ORIG_QUEUE"] == "q"
    assert _lost(desk) == []


def test_an_expiry_address_too(at: Make) -> None:
    """What expires goes there."""
    desk = at(settings(q={"expiry_address": "late"}))
    desk.publish("A", expiration="50")
    desk.advance_ms(60)
    assert desk.all("late") == "A"


def test_a_message_without_a_route(at: Make) -> None:
    """`send-to-dla-on-no-route`."""
    desk = at(settings(**{"#": {"send_to_dla_on_no_route": True, "dead_letter_address": "lost"}}), q=False)
    desk.publish("A", key="nowhere")
    assert desk.all("lost") == "A"


@pytest.mark.parametrize("text", ["", settings(**{"#": {"auto_create_missing_queues": False}})])
def test_arguments_of_ours(at: Make, text: str) -> None:
    """A client that names an address gets a queue there, whatever the files say of theirs."""
    desk = at(text, x_max_delivery_attempts=1, x_dead_letter_address="failed")
    _die(desk, "A")
    assert desk.all("failed") == "A"


def test_a_queue_that_was_deleted(at: Make) -> None:
    """It is made again."""
    desk = at(DEAD)
    _die(desk, "A")
    desk.delete("failed")
    _die(desk, "B")
    assert desk.all("failed") == "B"


def test_an_exchange_without_bindings(at: Make) -> None:
    """The queue of its name gets what the exchange leads nowhere; what is bound later gets the next ones, alone."""
    desk = at(DEAD)
    desk.exchange("failed")
    _die(desk, "A")
    assert desk.counts("failed") == (1, 0, 0)
    desk.declare("bound")
    desk.bind("bound", "failed")
    _die(desk, "B")
    assert (desk.all("failed"), desk.all("bound")) == ("A", "B")


def test_an_exchange_that_leads_elsewhere(at: Make) -> None:
    """It has bindings: where none of them takes a dead letter this is lost, and counted."""
    desk = at(DEAD)
    desk.exchange("failed", "direct")
    desk.declare("other")
    desk.bind("other", "failed", "another key")
    _die(desk, "A")
    assert not desk.exists("failed")
    assert _lost(desk) == [("q", "failed", 1)]


def test_a_queue_that_shares_the_address(at: Make) -> None:
    """It takes the dead letters: none is made."""
    desk = at(DEAD)
    desk.declare("elsewhere", x_address="failed")
    _die(desk, "A")
    assert (desk.exists("failed"), desk.all("elsewhere")) == (False, "A")


@pytest.mark.parametrize("address", ["amq.failed", "queue:amq.failed", "exchange:amq.failed/key"])
def test_a_name_that_no_queue_has(at: Make, address: str) -> None:
    """None is made, and the loss is counted."""
    desk = at(settings(q={"max_delivery_attempts": 1, "dead_letter_address": address}))
    _die(desk, "A")
    assert _lost(desk) == [("q", address, 1)]


def test_a_limit_on_queues(at: Make) -> None:
    """A virtual host that may have no more queues gets none."""
    desk = at(DEAD + '[[vhost]]\nname = "/"\nmax-queues = 1\n')
    _die(desk, "A")
    assert not desk.exists("failed")
    assert _lost(desk) == [("q", "failed", 1)]


def test_switched_off(at: Make) -> None:
    """As Artemis does; counted all the same."""
    desk = at(
        settings(
            q={"max_delivery_attempts": 1, "dead_letter_address": "failed", "auto_create_missing_queues": False},
        )
    )
    _die(desk, "A", "B")
    assert not desk.exists("failed")
    assert _lost(desk) == [("q", "failed", 2)]


ARTEMIS = """\
<address-setting match="#"><dead-letter-address>DLQ</dead-letter-address>
<max-delivery-attempts>1</max-delivery-attempts></address-setting>"""


def test_files_of_artemis_keep_its_default() -> None:
    """None is made for an address of theirs; one is for an entry of ours, and for an argument."""
    desk = VirtualDesk(ARTEMIS)
    desk.declare("q")
    desk.declare("ours", x_dead_letter_address="failed")
    desk.declare("late", x_expiry_address="over")
    desk.publish("C", key="late", expiration="10")
    desk.advance_ms(20)
    assert desk.all("over") == "C"
    _die(desk, "A")
    _die(desk, "B", queue="ours")
    assert (desk.exists("DLQ"), _lost(desk), desk.all("failed")) == (False, [("q", "DLQ", 1)], "B")


@pytest.mark.parametrize("arguments", [{"x_dead_letter_exchange": "gone"}, {"x_dead_letter_exchange": "amq.direct"}])
def test_a_dead_letter_exchange_is_rabbitmqs(at: Make, arguments: dict[str, Any]) -> None:
    """What it does not take is dropped, as there; but it is counted."""
    desk = at("", **arguments)
    desk.publish("A")
    desk.reject(desk.must_get(), requeue=False)
    assert _lost(desk) == [("q", arguments["x_dead_letter_exchange"], 1)]


def test_an_unused_one_goes_again(at: Make) -> None:
    """It was auto-created: once it is empty and unused it is deleted, as others are."""
    desk = at(DEAD)
    _die(desk, "A")
    assert desk.all("failed") == "A"
    desk.advance_ms(120_000)
    assert not desk.exists("failed")
    _die(desk, "B")
    desk.advance_ms(120_000)
    assert desk.all("failed") == "B"


def test_the_log_tells_of_cycles(caplog: pytest.LogCaptureFixture) -> None:
    """A queue that is its own dead-letter exchange: what expires there is dropped."""
    desk = VirtualDesk("")
    log_flow(desk.pair.broker)
    desk.declare("q", x_message_ttl=10, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    desk.publish("A")
    desk.advance_ms(20)
    assert [record.getMessage() for record in caplog.records] == [
        "dead letters of queue 'q' in vhost '/', sent to '': dropped, because they would only go round in a cycle: "
        "1 lost so far"
    ]
    assert desk.pair.broker.context.unroutable_letters.count == 0


def test_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """One line for a queue that is made; the first loss and the tenth, with queue, address and count."""
    caplog.set_level("INFO", "leveret.amqp")
    desk = VirtualDesk(DEAD + settings(bad={"max_delivery_attempts": 1, "dead_letter_address": "amq.no"}))
    log_flow(desk.pair.broker)
    for queue in ("q", "bad"):
        desk.declare(queue)
    _die(desk, "A", "B")
    _die(desk, *"0123456789", queue="bad")
    assert [record.getMessage() for record in caplog.records] == [
        "queue 'failed' in vhost '/' is made: dead letters go to 'failed', and nothing is bound to it",
        "dead letters of queue 'bad' in vhost '/': no queue is bound for messages to 'amq.no': 1 lost so far",
        "dead letters of queue 'bad' in vhost '/': no queue is bound for messages to 'amq.no': 10 lost so far",
    ]
    assert desk.pair.broker.context.unroutable_letters.count == 10


def test_the_places_that_lose_most_are_listed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its count; beyond a number of places the others count in the sum alone, so that memory has a bound."""
    monkeypatch.setattr(dead_letters, "PAIRS_MAX", 2)
    letters = dead_letters.UnroutableLetters()
    for queue in "abcbbc":
        letters.note("/", queue, "failed")
    assert [(one.queue, one.count) for one in letters.places()] == [("b", 3), ("a", 1)]
    assert letters.count == 6
