"""A dead-letter routing key is a longstr where it is said, and a shortstr where it is used."""

from typing import Any

import pytest
from durable_desk import DurableDesk
from simulated_files import SimulatedFiles


@pytest.mark.parametrize("key, told", [("k" * 255, "k" * 255), ("k" * 256, "k" * 255), ("ü" * 300, "ü" * 127)])
@pytest.mark.parametrize("ttl_ms", [0, 1000])
@pytest.mark.parametrize("by_policy", [False, True])
def test_a_key_that_is_too_long_is_cut(key: str, told: str, ttl_ms: int, by_policy: bool) -> None:
    """The message dies all the same, in its publisher's turn or when its time has come; a journal has it."""
    desk = DurableDesk(SimulatedFiles())
    desk.exchange("dead")
    desk.declare("letters")
    desk.bind("letters", "dead")
    dies: dict[str, Any] = {"dead-letter-exchange": "dead", "dead-letter-routing-key": key}
    if by_policy:
        desk.command("policies", action="set", vhost="/", name="dies", pattern="^q$", definition=dies)
        dies = {}
    desk.declare(x_message_ttl=ttl_ms, **{f"x-{name}": value for name, value in dies.items()})
    desk.publish("m", delivery_mode=2)
    desk.advance_ms(ttl_ms + 1)
    desk.settle()
    again = DurableDesk(desk.files.power_cut())
    got = again.must_get("letters")
    assert (got.body, got.routing_key, got.headers["x-death"][0]["queue"]) == ("m", told, "q")
