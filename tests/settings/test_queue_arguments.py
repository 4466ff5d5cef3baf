"""Queue arguments over address-settings: address-settings page 6.6 and 6.7."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import QUEUE_ARGUMENTS, ArgumentFault, SettingsRepository, entry, settings_of_arguments
from leveret.settings.addresses.queue_arguments import plain_value
from leveret.settings.rows.address_settings import BY_ATTRIBUTE, NOTHING_SET
from leveret.settings.values import INT_MAX

RULED = SettingsRepository(
    [
        entry(
            "#",
            redelivery_delay_ms=1000,
            max_delivery_attempts=5,
            dead_letter_address="D",
            expiry_address="E",
            default_ring_size=3,
            default_exclusive_queue=True,
            auto_create_missing_queues=False,
        )
    ]
)


@pytest.mark.parametrize(
    "arguments, attribute, expected",
    [
        ({}, "default_ring_size", 3),
        ({"x-ring-size": 7}, "default_ring_size", 7),
        ({"x-ring-size": -1}, "default_ring_size", -1),
        ({"x-max-length": 7}, "default_ring_size", -1),
        ({"x-redelivery-delay": 7}, "redelivery_delay_ms", 7),
        ({"x-redelivery-delay": 7}, "max_redelivery_delay_ms", 70),
        ({"x-redelivery-delay-multiplier": 2}, "redelivery_delay_multiplier", 2.0),
        ({"x-max-delivery-attempts": 3}, "max_delivery_attempts", 3),
        ({"x-max-deliveries": 3}, "max_delivery_attempts", 3),
        ({"x-delivery-limit": 3}, "max_delivery_attempts", 4),
        ({"x-delivery-limit": 300}, "max_delivery_attempts", 301),
        ({"x-delivery-limit": -3}, "max_delivery_attempts", -1),
        ({"x-delivery-limit": INT_MAX}, "max_delivery_attempts", INT_MAX),
        ({"x-ring-size": 7}, "auto_create_missing_queues", False),
        ({"x-dead-letter-address": "X"}, "auto_create_missing_queues", True),
        ({"x-expiry-address": "X"}, "auto_create_missing_queues", True),
        ({"x-dead-letter-address": ""}, "dead_letter_address", ""),
        ({"x-dead-letter-exchange": "X"}, "dead_letter_address", ""),
        ({"x-dead-letter-exchange": "X"}, "expiry_address", ""),
        ({"x-single-active-consumer": False}, "default_exclusive_queue", False),
        ({"x-somebody-elses": object()}, "default_ring_size", 3),
    ],
)
def test_a_queues_own_arguments_stand_above_settings(
    arguments: dict[str, object], attribute: str, expected: object
) -> None:
    """Explicit argument > merged address-setting > default, also where the argument is the larger one."""
    own = settings_of_arguments(arguments)
    assert getattr(RULED.resolve_queue("q", "/", own.settings), attribute) == expected


@pytest.mark.parametrize(
    "key, given, plain",
    [("x-redelivery-delay", "5s", 5000), ("x-redelivery-delay-multiplier", 2, 2), ("x-other", "5s", "5s")],
)
def test_a_configured_argument_is_what_a_client_would_send(key: str, given: object, plain: object) -> None:
    """Of the same type: a queue that a client declares again with 2 is the same, and not one with 2.0."""
    value = plain_value(key, given)
    assert value == plain and type(value) is type(plain)


def test_attempts_stay_unlimited_when_only_the_queue_asks_for_delays() -> None:
    """Ruling 9 speaks of matching entries: a client that wants a delay has not asked to lose messages."""
    own = settings_of_arguments({"x-redelivery-delay": 100})
    assert SettingsRepository().resolve_queue("q", "/", own.settings).max_delivery_attempts == -1


@pytest.mark.parametrize(
    "arguments, key",
    [
        ({"x-ring-size": 0}, "x-ring-size"),
        ({"x-ring-size": "3"}, "x-ring-size"),
        ({"x-ring-size": True}, "x-ring-size"),
        ({"x-redelivery-delay": -1}, "x-redelivery-delay"),
        ({"x-redelivery-delay-multiplier": 0}, "x-redelivery-delay-multiplier"),
        ({"x-redelivery-collision-avoidance-factor": 1.5}, "x-redelivery-collision-avoidance-factor"),
        ({"x-max-delivery-attempts": 0}, "x-max-delivery-attempts"),
        ({"x-max-consumers": 0}, "x-max-consumers"),
        ({"x-dead-letter-address": 5}, "x-dead-letter-address"),
        ({"x-last-value": 1}, "x-last-value"),
        ({"x-ring-size": 1, "x-max-length": 1}, "x-ring-size"),
        ({"x-ring-size": 1, "x-overflow": "reject-publish-dlx"}, "x-ring-size"),
        ({"x-dead-letter-address": "a", "x-dead-letter-exchange": "b"}, "x-dead-letter-address"),
        ({"x-delivery-limit": 1, "x-max-delivery-attempts": 1}, "x-max-delivery-attempts"),
        ({"x-redelivery-delay": 1, "x-delayed-retry-type": "all"}, "x-redelivery-delay"),
    ],
)
def test_values_and_pairs_that_are_refused(arguments: dict[str, object], key: str) -> None:
    """406 at the frontend: the key and what is wrong with it."""
    with pytest.raises(ArgumentFault) as refused:
        settings_of_arguments(arguments)
    assert refused.value.key == key


def test_nothing_own_is_the_settings_of_the_address_themselves() -> None:
    """No arguments, no object of its own."""
    own = settings_of_arguments({"x-max-priority": 5})
    assert own.settings == NOTHING_SET
    assert RULED.resolve_queue("q", "/", own.settings) is RULED.resolve("q")


def test_every_argument_overrides_an_attribute_that_there_is() -> None:
    """The table and the model agree."""
    assert {argument.attribute for argument in QUEUE_ARGUMENTS.values()} <= BY_ATTRIBUTE.keys()


@given(
    st.dictionaries(
        st.sampled_from([*QUEUE_ARGUMENTS, "x-other"]), st.integers() | st.text() | st.booleans() | st.floats()
    )
)
def test_any_values_are_read_or_refused(arguments: dict[str, object]) -> None:
    """ArgumentFault is the only exception."""
    try:
        own = settings_of_arguments(arguments)
    except ArgumentFault:
        return
    assert set(own.given_by) == set(own.settings)
