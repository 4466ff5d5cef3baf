"""What each kind of value of an address-setting takes, at its limits. Address-settings page 3."""

from __future__ import annotations

import pytest

from leveret.settings.rows.address_settings import BY_KEY, SETTINGS
from leveret.settings.values import (
    ADDRESS,
    BYTES,
    BYTES_OR_OFF,
    DELAY,
    DELAY_OR_OFF,
    INT_MAX,
    LONG_MAX,
    MULTIPLIER,
    PERIOD,
    RATE_OR_OFF,
    ROUTING_TYPE,
    Kind,
    shown,
)

#: By a key of each kind: what is taken, and what is not.
LIMITS: dict[str, tuple[list[object], list[object]]] = {
    "max-delivery-attempts": ([-1, 0, 1, INT_MAX], [-2, INT_MAX + 1, 1.5, True, "many"]),
    "redelivery-delay": ([0, 1, "5s", LONG_MAX], [-1, LONG_MAX + 1, f"{LONG_MAX}s", "soon", True]),
    "redelivery-delay-multiplier": ([0.1, 0.5, 1, 1.0, 3, 1e9], [0, 0.0, -1, "x", True, float("nan")]),
    "redelivery-collision-avoidance-factor": ([0, 0.0, 0.5, 1, 1.0], [-0.1, 1.1, 2, "x", True]),
    "max-size-bytes": ([-1, 0, 1, "10K"], [-2, "x", 1.5, True]),
    "page-size-bytes": ([1, INT_MAX, "1M"], [0, -1, INT_MAX + 1]),
    "page-limit-bytes": ([-1, 1], [0, -2]),
    "max-size-messages": ([-1, 0, 1, LONG_MAX], [-2, LONG_MAX + 1, 1.5, True]),
    "page-limit-messages": ([-1, 1, LONG_MAX], [0, -2, LONG_MAX + 1]),
    "expiry-delay": ([-1, 0, 1, "1h"], [-2, "never ever"]),
    "minimum-message-size": ([0, 1], [-1]),
    "cursor-memory-high-water-mark": ([1, 70, 100], [0, 101, -1]),
    "slow-consumer-check-period": ([1, LONG_MAX], [0, -1, LONG_MAX + 1]),
    "retroactive-message-count": ([0, 1, LONG_MAX], [-1, LONG_MAX + 1]),
    "id-cache-size": ([0, 1, INT_MAX], [-1, INT_MAX + 1]),
    "default-ring-size": ([-1, 1], [0, -2]),
    "no-expiry": ([True, False], [1, 0, "true ", None]),
    "address-full-policy": (["PAGE", "drop", "Fail", "BLOCK"], ["STOP", "", 1]),
    "slow-consumer-policy": (["KILL", "NOTIFY", "kill"], ["BLOCK", ""]),
    "config-delete-queues": (["OFF", "FORCE", "off"], ["ON", "", False]),
}


@pytest.mark.parametrize("name", LIMITS)
def test_what_a_key_takes(name: str) -> None:
    taken, refused = LIMITS[name]
    read = BY_KEY[name].kind.read
    for value in taken:
        read(value)
    for value in refused:
        with pytest.raises(ValueError):
            read(value)


@pytest.mark.parametrize(
    "kind, given, read",
    [
        (BYTES, "10 mb", 10 * 1024**2),
        (BYTES, "2gIb", 2 * 1024**3),
        (BYTES, " 64 k ", 65_536),
        (BYTES_OR_OFF, " -1 ", -1),
        (ADDRESS, "\xe9" * 127, "\xe9" * 127),
        (ROUTING_TYPE, " anycast ", "ANYCAST"),
    ],
)
def test_what_is_written_otherwise(kind: Kind, given: object, read: object) -> None:
    """Units and words in any case, and with spaces, as Artemis reads them."""
    assert kind.read(given) == read


@pytest.mark.parametrize(
    "kind, given",
    [
        *((PERIOD, 0), (PERIOD, "0s"), (MULTIPLIER, float("inf")), (RATE_OR_OFF, float("inf"))),
        (ADDRESS, "\xe9" * 128),
    ],
)
def test_what_nothing_could_be_done_with(kind: Kind, given: object) -> None:
    """No period, no finite number, more octets than AMQP has for a name."""
    with pytest.raises(ValueError):
        kind.read(given)


def test_a_number_of_thousands_of_digits_is_named() -> None:
    """Python makes no text of it."""
    assert shown(10**5000) == "this int"


def test_the_attribute_of_a_key_is_its_name() -> None:
    """With underscores for dashes, and the unit behind it where it is a time."""
    for field in SETTINGS:
        plain = field.key.replace("-", "_")
        assert field.attribute in (plain, f"{plain}_ms", f"{plain}_s"), field.key
        assert field.is_supported is not bool(field.reason)


@pytest.mark.parametrize(
    "kind, value, shown",
    [
        (DELAY, 1_800_000, "30m"),
        (DELAY, 90_000, "90s"),
        (DELAY, 1_500, "1500ms"),
        (DELAY, 0, 0),
        (DELAY_OR_OFF, -1, -1),
        (BYTES, 65_536, "64KiB"),
        (BYTES, 1_000, 1_000),
    ],
)
def test_a_value_is_shown_in_the_largest_unit_in_which_it_is_whole(kind: Kind, value: int, shown: object) -> None:
    """A file that repeats what is shown means the same."""
    assert kind.rendered(value) == shown
    assert kind.read(shown) == value
