"""Flow control as files configure it: keys of addresses, [system-usage], [flow]. Queues page E.1, E.5."""

import pytest

from leveret.settings import Configuration, Flow, ResolvedSettings, SystemUsage, load_configuration

KIB, MIB, GIB = 1024, 1024**2, 1024**3


def load(text: str) -> Configuration:
    """A text without faults."""
    configuration, faults = load_configuration([("f.toml", text)])
    assert not faults, faults
    return configuration


def resolved(*keys: str, usage: str = "", address: str = "q") -> ResolvedSettings:
    """The settings of an address under an entry with these keys."""
    return load(usage + "\n[[address-setting]]\nmatch = 'q'\n" + "\n".join(keys)).repository.resolve(address)


def test_without_any_key_nothing_is_controlled() -> None:
    """Queues page and publishers wait for a full disk only."""
    plain = resolved()
    assert not plain.is_flow_controlled
    assert plain == load("").repository.resolve("q") == ResolvedSettings()
    assert load("").system_usage is None


@pytest.mark.parametrize(
    "key, attribute, value",
    [
        ('memory-limit = "10MB"', "memory_limit", 10 * MIB),
        ("memory-limit = 0", "memory_limit", -1),
        ("memory-limit = -1", "memory_limit", -1),
        ("producer-flow-control = false", "producer_flow_control", False),
        ("producer-flow-control = true", "producer_flow_control", True),
        ("send-fail-if-no-space = true", "send_fail_if_no_space", True),
        ('send-fail-if-no-space-after = "2s"', "send_fail_if_no_space_after_ms", 2000),
        ('cursor = "VM"', "cursor", "vm"),
        ('address-full-policy = "BLOCK"', "address_full_policy", "BLOCK"),
    ],
)
def test_keys_that_put_an_address_under_flow_control(key: str, attribute: str, value: object) -> None:
    """Whatever their value; other addresses stay as they are."""
    controlled = resolved(key)
    assert (controlled.is_flow_controlled, getattr(controlled, attribute)) == (True, value)
    assert not resolved(key, address="other").is_flow_controlled


@pytest.mark.parametrize(
    "key, attribute, value",
    [
        ("cursor-memory-high-water-mark = 50", "cursor_memory_high_water_mark", 50),
        ('minimum-message-size = "2KiB"', "minimum_message_size", 2048),
        ("blocked-producer-warning-interval = 0", "blocked_producer_warning_interval_ms", 0),
        ("pending-message-limit = 10", "pending_message_limit", 10),
        ("pending-message-limit = 0", "pending_message_limit", 0),
        ("pending-message-limit-prefetch-rate = 2.5", "pending_message_limit_prefetch_rate", 2.5),
        ("pending-message-limit-prefetch-rate = 0", "pending_message_limit_prefetch_rate", 0.0),
        ('message-eviction = "unique-property"', "message_eviction", "unique-property"),
        ('message-eviction-property = "symbol"', "message_eviction_property", "symbol"),
        ('abort-slow-consumer-after = "2s"', "abort_slow_consumer_after_ms", 2000),
        ("abort-slow-consumer-after = 0", "abort_slow_consumer_after_ms", -1),
        ("abort-slow-consumer-count = 0", "abort_slow_consumer_count", -1),
        ("abort-slow-consumer-check-period = 500", "abort_slow_consumer_check_period_ms", 500),
        ("abort-slow-consumer-connection = true", "abort_slow_consumer_connection", True),
        ("abort-slow-ack-after = 0", "abort_slow_ack_after_ms", -1),
        ("abort-slow-ack-ignores-idle = false", "abort_slow_ack_ignores_idle", False),
        ('address-full-policy = "FAIL"', "address_full_policy", "FAIL"),
    ],
)
def test_keys_that_do_not(key: str, attribute: str, value: object) -> None:
    """They rule consumers, or what is counted."""
    one = resolved(key)
    assert (one.is_flow_controlled, getattr(one, attribute)) == (False, value)


def test_a_constant_limit_rules_where_a_rate_is_given_too() -> None:
    """A transient subscriber's queue has one limit."""
    both = resolved("pending-message-limit = 5", "pending-message-limit-prefetch-rate = 2.0")
    assert (both.pending_message_limit, both.pending_message_limit_prefetch_rate) == (5, -1.0)


@pytest.mark.parametrize(
    "text, usage",
    [
        ("[system-usage]", SystemUsage(64 * MIB, 100 * GIB, 10 * GIB)),
        ('[system-usage]\nmemory = "1MiB"\nstore = 0', SystemUsage(MIB, 0)),
        ("[system-usage]\nsend-fail-if-no-space = true", SystemUsage(send_fail_if_no_space=True)),
        ("[system-usage]\nsend-fail-if-no-space-after = 500", SystemUsage(send_fail_if_no_space_after_ms=500)),
        ('[system-usage]\nmemory = "70%"\ntemp = "5 %"', SystemUsage(memory_percent=70, temp_percent=5)),
    ],
)
def test_system_usage(text: str, usage: SystemUsage) -> None:
    """The table alone puts every address under flow control."""
    configuration = load(text)
    assert configuration.system_usage == usage
    any_address = configuration.repository.resolve("any")
    assert any_address.is_flow_controlled
    assert any_address.send_fail_if_no_space == usage.send_fail_if_no_space
    assert any_address.send_fail_if_no_space_after_ms == usage.send_fail_if_no_space_after_ms


def test_an_address_overrules_how_the_broker_refuses() -> None:
    """Both keys, each for itself."""
    usage = "[system-usage]\nsend-fail-if-no-space = true\nsend-fail-if-no-space-after = 500\n"
    one = resolved("send-fail-if-no-space = false", usage=usage)
    assert (one.send_fail_if_no_space, one.send_fail_if_no_space_after_ms) == (False, 500)
    one = resolved("send-fail-if-no-space-after = 0", usage=usage)
    assert (one.send_fail_if_no_space, one.send_fail_if_no_space_after_ms) == (True, 0)


def test_percentages_are_of_the_memory_and_the_disk() -> None:
    """Limits in octets stay."""
    usage = SystemUsage(memory_percent=70, store_percent=50, temp=MIB)
    assert usage.sized(memory=1000, disk=333) == SystemUsage(700, 166, MIB)


def test_flow() -> None:
    """Its defaults, and each key."""
    assert load("").flow == Flow(None, 0, MIB, 64 * MIB, ())
    text = '[flow]\nlow-mark = "80%"\nmax-stall = "60s"\nhold-bytes = "2MiB"\nhold-spool = 0\nuse-channel-flow = ["x"]'
    assert load(text).flow == Flow(80, 60_000, 2 * MIB, 0, ("x",))
    assert load("[flow]\nlow-mark = 95\nuse-channel-flow = false").flow == Flow(95)


@pytest.mark.parametrize(
    "limit, percent, low",
    [
        (MIB, 0, 983_040),  # of the numeric trace: queues page E.5.1.
        (100 * MIB, 0, 95 * MIB),
        (64 * KIB, 0, 32 * KIB),
        (1, 0, 0),
        (1000, 80, 800),
        (1000, 100, 999),
    ],
)
def test_low_mark(limit: int, percent: int, low: int) -> None:
    """95 %, or 64 KiB less, but at least half; always below the limit."""
    assert Flow(percent).low_mark(limit) == low


@pytest.mark.parametrize("limit, percent, low", [(1, 0, 0), (10, 0, 9), (100, 0, 95), (100, 50, 50), (3, 100, 2)])
def test_low_mark_of_messages(limit: int, percent: int, low: int) -> None:
    """5 % less, but at least one."""
    assert Flow(percent).low_mark_messages(limit) == low


@pytest.mark.parametrize(
    "text, fault",
    [
        ("[system-usage]\nmemory = -1", "memory: -1 is invalid, expected a size: "),
        ('[system-usage]\nmemory = "101%"', "or a percentage"),
        ('[system-usage]\nstore = "0%"', "or a percentage"),
        ("[system-usage]\nmemroy = 1", "unknown key in [system-usage], did you mean 'memory'?"),
        ("[flow]\nlow-mark = 0", "expected a percentage from 1 to 100"),
        ("[flow]\nlow-mark = true", "expected a percentage from 1 to 100"),
        ("[flow]\nuse-channel-flow = true", "expected false, or a list of client products"),
        ("[flow]\nuse-channel-flow = []", "expected false, or a list of client products"),
        ("[[address-setting]]\nmatch = 'q'\ncursor = 'disk'", "expected one of store, vm, file"),
        ("[[address-setting]]\nmatch = 'q'\ncursor-memory-high-water-mark = 0", "expected an integer from 1 to 100"),
        ("[[address-setting]]\nmatch = 'q'\nabort-slow-consumer-check-period = 0", "expected a duration above 0"),
        ("[[address-setting]]\nmatch = 'q'\nabort-slow-consumer-check-period = 'x'", "expected a duration: "),
        ("[[address-setting]]\nmatch = 'q'\npending-message-limit-prefetch-rate = -0.5", "a number from 0, or -1"),
        ("[[address-setting]]\nmatch = 'q'\npending-message-limit = -2", "expected an integer from -1"),
        ("[[address-setting]]\nmatch = 'q'\nmemory-limit = -2", "or -1 for none"),
    ],
)
def test_faults(text: str, fault: str) -> None:
    """Each names what is expected."""
    (found,) = load_configuration([("f.toml", text)])[1]
    assert fault in str(found)


@pytest.mark.parametrize(
    "keys, warning",
    [
        ("memory-limit = 2", "memory-limit 2 is above the 1 of [system-usage] for all together"),
        ('message-eviction = "unique-property"', "unique-property needs a message-eviction-property"),
    ],
)
def test_findings(keys: str, warning: str) -> None:
    """Not wrong, but hardly meant."""
    (found,) = load(f"[system-usage]\nmemory = 1\n[[address-setting]]\nmatch = 'q'\n{keys}").warnings
    assert found.startswith("f.toml:5: match 'q': ") and warning in found


def test_a_limit_of_a_destination_policy_makes_addresses_full() -> None:
    """So a policy for full addresses has an effect."""
    files = [
        ("f.toml", "[[address-setting]]\nmatch = '#'\naddress-full-policy = 'BLOCK'\n"),
        ("g.xml", "<policyEntry queue='>' memoryLimit='1 mb'/>"),
    ]
    configuration, faults = load_configuration(files)
    assert not faults and not [one for one in configuration.warnings if "has no effect" in one]


@pytest.mark.parametrize(
    "more, is_told",
    [
        ("", True),
        ("[broker]\nglobal-max-messages = 9", False),
        ("[system-usage]", False),
        ('[[address-setting]]\nmatch = "other"\nmax-size-messages = 4', False),
        ('[[address-setting]]\nmatch = "other"\nmax-size-messages = -1', True),
    ],
)
def test_a_policy_for_addresses_that_are_never_full(more: str, is_told: bool) -> None:
    """It needs some limit, of whichever address: the policy of `#` may be there for those that have one."""
    told = load(f"[[address-setting]]\nmatch = '#'\naddress-full-policy = 'BLOCK'\n{more}").warnings
    why = "f.toml:3: match '#': address-full-policy BLOCK has no effect: nothing sets max-size-bytes or -messages"
    assert list(told) == ([why] if is_told else [])
