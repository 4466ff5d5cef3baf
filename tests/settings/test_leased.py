"""Settings of leased queues: every element's default, values and faults. Source: queues page A.3, H.2."""

from dataclasses import fields

import pytest

from leveret.settings import SettingsRepository, entry, settings_of_arguments
from leveret.settings.leases.leased_settings import (
    BY_ARGUMENT,
    BY_TAG,
    CONDITIONS,
    ELEMENTS,
    LeasedFault,
    LeasedSettings,
    is_regex,
    leased_settings,
    leased_warnings,
    read_leased,
    selects,
)

#: Attribute -> what holds where nothing is said (queues page A.3).
DEFAULTS = {
    "name": "Q",
    "underlying_topic": "Q",
    "default_publish_target": "Q",
    "replication": "local",
    "message_type": "json",
    "lease_period_ms": None,
    "semantics": "at-least-once",
    "max_backlog": None,
    "max_per_subscription_backlog": 1,
    "expiration_ms": None,
    "expiration_model": "default",
    "expire_leased": "immediate",
    "dead_letter_reasons": None,
    "dead_letter_data": None,
    "filter": None,
    "recovery_point": "epoch",
    "fairness": "proportional",
    "leasing": "sublet",
    "max_deliveries": 0,
    "max_cancels": 0,
    "priority": None,
    "barrier": None,
    "is_file_backed": False,
    "target_queue_depth": None,
    "deferred_ack_ms": 86_400_000,
    "initial_owner": None,
    "domain": None,
}


def code_of(arguments: dict[str, object], name: str = "Q") -> str:
    """The code of the first fault."""
    with pytest.raises(LeasedFault) as caught:
        leased_settings(name, arguments)
    assert str(caught.value).startswith(f"{caught.value.code}: {CONDITIONS[caught.value.code]}")
    assert caught.value.argument in arguments or caught.value.code in ("E-NAME", "E-DPT-REQUIRED", "E-OWNER-REQUIRED")
    return caught.value.code


def test_every_default() -> None:
    """A row for each element of queues page A.3."""
    settings = leased_settings("Q", {"x-queue-type": "amps"})
    assert {field.name: getattr(settings, field.name) for field in fields(LeasedSettings)} == DEFAULTS


def test_defaults_that_follow_from_others() -> None:
    """Fairness follows the semantics; the publish target and the topic follow the name (queues page A.3)."""
    assert leased_settings("Q", {"x-semantics": "at-most-once"}).fairness == "round-robin"
    settings = leased_settings("Q", {"x-underlying-topic": "Work"})
    assert (settings.underlying_topic, settings.default_publish_target) == ("Work", "Work")


def test_every_attribute_has_one_element() -> None:
    """The table and the value agree, so that no element is read into nothing."""
    assert {element.attribute for element in ELEMENTS} == {field.name for field in fields(LeasedSettings)} - {"name"}
    assert len(BY_ARGUMENT) == len(ELEMENTS) and "LeasePeriod" in BY_TAG


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000), ("250ms", 250), ("10", 10_000), (" 1.5 s ", 1500),
     ("1us", 1), ("1w", 604_800_000), (500, 500)],
)  # fmt: skip
def test_durations(text: object, ms: int) -> None:
    """Queues page, row H07, and H.2: an integer is milliseconds, text without a unit seconds; rounded up."""
    assert leased_settings("Q", {"x-lease-period": text}).lease_period_ms == ms


@pytest.mark.parametrize(
    "value", ["1h30m", "-5s", "", "15 min", "PT15M", "15M", "0", 0, -1, True, 1.5, None, "1e3s", "9" * 30, "200000w"]
)
@pytest.mark.parametrize("argument", ["x-lease-period", "x-message-ttl", "x-deferred-ack-ttl"])
def test_bad_durations(value: object, argument: str) -> None:
    """Queues page, row H08, and H.2."""
    assert code_of({argument: value}) == "E-DUR"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"x-underlying-topic": "^JOB_.*"}, "E-DPT-REQUIRED"),  # queues page, row A06
        # queues page, row A07
        (
            {"x-underlying-topic": "^JOB_.*", "x-default-publish-target": "OTHER"},
            "E-DPT-OUTSIDE",
        ),
        ({"x-underlying-topic": "Work", "x-default-publish-target": "Other"}, "E-DPT-OUTSIDE"),
        ({"x-underlying-topic": "(", "x-default-publish-target": "x"}, "E-REGEX"),
        ({"x-underlying-topic": ""}, "E-NAME"),
        ({"x-underlying-topic": "t" * 256}, "E-NAME"),
        ({"x-message-type": "yaml"}, "E-MTYPE"),
        ({"x-semantics": "At-Least-Once"}, "E-ENUM"),  # queues page, row H12
        ({"x-fairness": "fair"}, "E-ENUM"),
        ({"x-leasing": 1}, "E-ENUM"),
        ({"x-expiration-model": "LATEST"}, "E-ENUM"),
        ({"x-expire-leased": "never"}, "E-ENUM"),
        ({"x-replication": "all"}, "E-ENUM"),
        ({"x-max-backlog-total": "many"}, "E-INT"),
        ({"x-max-backlog-total": 1.0}, "E-INT"),
        ({"x-max-backlog-total": 2**64}, "E-INT"),
        ({"x-max-backlog-total": 0}, "E-MIN"),
        ({"x-max-backlog-per-consumer": "0"}, "E-MIN"),
        ({"x-max-deliveries": -1}, "E-MIN"),
        ({"x-cancel-limit": -1}, "E-MIN"),
        ({"x-target-depth": 999}, "E-MIN"),  # queues page, row A62
        ({"x-queue-filter": "/a = "}, "E-EXPR"),
        ({"x-queue-filter": "/t > UNIX_TIMESTAMP()"}, "E-EXPR"),  # queues page, row A09
        ({"x-queue-filter": ""}, "E-EXPR"),
        ({"x-queue-filter": "a" * 9000}, "E-EXPR"),
        ({"x-priority-expr": "NO_SUCH(1)"}, "E-EXPR"),
        ({"x-barrier-expr": "/a IS"}, "E-EXPR"),
        ({"x-priority-expr": "/p", "x-barrier-expr": "/b"}, "E-EXCL"),  # queues page, row A54
        ({"x-priority-expr": "/p", "x-target-depth": 1000}, "E-EXCL"),  # queues page, row A54
        ({"x-barrier-expr": "/b", "x-target-depth": 1000}, "E-EXCL"),
        ({"x-file-backed": "yes"}, "E-FBM"),  # queues page, row A77
        ({"x-replication": "group"}, "E-OWNER-REQUIRED"),  # queues page, row A75
        ({"x-initial-owner": "n1"}, "E-OWNER-TAG"),
        ({"x-queue-domain": "D", "x-replication": "distributed"}, "E-OWNER-TAG"),
        ({"x-recovery-point": "yesterday"}, "E-RP"),
        ({"x-recovery-point": "2024-06-01T00:00:00Z"}, "E-RP"),  # queues page, row H09
        ({"x-recovery-point": "20241301T000000Z"}, "E-RP"),
        ({"x-recovery-point": 3}, "E-RP"),
    ],
)
def test_faults(arguments: dict[str, object], code: str) -> None:
    """Queues page A.3.2."""
    assert code_of(arguments) == code


def test_names() -> None:
    """A queue's name has 1 to 255 bytes of UTF-8 (queues page A.3)."""
    assert code_of({}, "") == code_of({}, "ä" * 128) == "E-NAME"
    assert leased_settings("ä" * 127, {}).name == "ä" * 127


def test_all_faults_at_once() -> None:
    """A loader reports all of them, that of the name first; each names its argument."""
    _, faults = read_leased("Q" * 300, {"x-fairness": "x", "x-max-backlog-total": "y", "x-queue-filter": "("})
    assert [(fault.code, fault.argument) for fault in faults] == [
        ("E-NAME", "name"),
        ("E-ENUM", "x-fairness"),
        ("E-INT", "x-max-backlog-total"),
        ("E-EXPR", "x-queue-filter"),
    ]


@pytest.mark.parametrize("point", ["epoch", "now", "creation", "12|7|", "20240601T000000Z", "20240601T000000.5"])
def test_recovery_points(point: str) -> None:
    """Queues page, row H09."""
    assert leased_settings("Q", {"x-recovery-point": point}).recovery_point == point


def test_topics() -> None:
    """A dot makes no regular expression; one is searched anywhere (queues page A.2; conflict K11)."""
    assert not is_regex("a.b") and is_regex("a.*") and is_regex("^a")
    assert selects("a.b")("a.b") and not selects("a.b")("axb")
    assert selects("OB_")("JOB_1") is False and selects("OB_+")("JOB_1") and not selects("^OB_")("JOB_1")


def test_group_queues_and_warnings() -> None:
    """InitialOwner makes a group queue right, and nobody checks that it exists (queues page A.3.2, W-OWNER)."""
    settings = leased_settings("Q", {"x-replication": "group", "x-initial-owner": "n1", "x-queue-domain": "D"})
    assert [text[:7] for text in leased_warnings(settings)] == ["W-LOCAL", "W-OWNER"]
    both = leased_settings("Q", {"x-file-backed": "enabled", "x-target-depth": "1000"})
    assert [text.split(":")[0] for text in leased_warnings(both)] == ["W-FBM-TQD"]
    assert leased_warnings(leased_settings("Q", {})) == []


def test_a_name_that_is_too_long_with_its_scope() -> None:
    """AMQP could not carry it."""
    for size, codes in ((250, []), (251, ["E-NAME"])):
        scope = "s" * size
        _, faults = read_leased(f"name@{scope}", {"x-queue-scope": scope, "x-replication": "local"})
        assert [fault.code for fault in faults] == codes


def test_deliveries_of_a_leased_queue_are_not_its_attempts() -> None:
    """`x-max-deliveries` limits them by the queue's own rule; the limit of its address-setting stays."""
    ruled = SettingsRepository([entry("#", max_delivery_attempts=5)])
    own = settings_of_arguments({"x-max-deliveries": 3, "x-queue-type": "amps"})
    assert ruled.resolve_queue("q", "/", own.settings).max_delivery_attempts == 5
