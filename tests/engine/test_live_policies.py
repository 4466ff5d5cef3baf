"""A queue under policies that came, changed and went has the rules of one that is declared now. For all histories."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Broker, ManualClock
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.settings import Policies, Policy, PolicyFault, SettingsRepository, entry, make_policy

NAMES = ("a", "ab", "b.c")
NUMBERS = st.integers(0, 5)

ARGUMENTS: dict[str, st.SearchStrategy[Field]] = {
    **{f"x-{key}": NUMBERS.map(lambda value: Field("l", value)) for key in ("message-ttl", "max-length")},
    "x-max-length-bytes": NUMBERS.map(lambda value: Field("l", value)),
    "x-expires": st.integers(1, 5).map(lambda value: Field("l", value)),
    "x-overflow": st.sampled_from([b"drop-head", b"reject-publish"]).map(lambda value: Field("S", value)),
    "x-dead-letter-exchange": st.just(Field("S", b"declared")),
    "x-max-delivery-attempts": st.integers(1, 5).map(lambda value: Field("l", value)),
    "x-redelivery-delay": NUMBERS.map(lambda value: Field("l", value)),
    "x-max-priority": st.just(Field("l", 3)),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("message-ttl", "max-length", "max-length-bytes"), NUMBERS),
    "expires": st.integers(1, 5),
    "delivery-limit": st.integers(-1, 5),
    "overflow": st.sampled_from(["drop-head", "reject-publish"]),
    "dead-letter-exchange": st.just("policy"),
    "dead-letter-address": st.just("address"),
    "redelivery-delay": NUMBERS,
    "max-delivery-attempts": st.integers(1, 5),
    "consumer-timeout": NUMBERS,
    "ha-mode": st.just("all"),
}


@st.composite
def policies(draw: st.DrawFn) -> Policy | None:
    """One that can be; None for one that contradicts itself."""
    keys = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    is_operator = draw(st.booleans())
    try:
        return make_policy(
            draw(st.sampled_from("pq")),
            "/",
            draw(st.sampled_from(["", "^a", "b$", "c"])),
            {key: draw(VALUES[key]) for key in keys},
            apply_to=draw(st.sampled_from(["all", "queues", "classic_queues", "quorum_queues"])),
            priority=draw(st.integers(0, 2)),
            is_operator=is_operator,
        )
    except PolicyFault:
        return None


@st.composite
def declarations(draw: st.DrawFn) -> FieldTable:
    """Arguments of a queue."""
    keys = draw(st.lists(st.sampled_from(sorted(ARGUMENTS)), max_size=4, unique=True))
    table = {key: draw(ARGUMENTS[key]) for key in keys}
    if "x-max-priority" not in table and draw(st.booleans()):
        table["x-queue-type"] = Field("S", b"quorum")
    return table


SETTINGS = SettingsRepository([entry("#", redelivery_delay_ms=9, dead_letter_address="everywhere")])


def broker_with(queues: dict[str, FieldTable], policies: Policies) -> Broker:
    """Declared now."""
    broker = Broker(ManualClock(), settings=SETTINGS)
    broker.reloading.replace_policies(policies)
    for name, arguments in queues.items():
        broker.virtual_hosts["/"].queues.declare(name, client=None, durable=True, arguments=arguments)
    return broker


@given(
    st.fixed_dictionaries({name: declarations() for name in NAMES}),
    st.lists(st.tuples(policies(), st.booleans()), max_size=8),
)
def test_live_is_as_new(queues: dict[str, FieldTable], steps: list[tuple[Policy | None, bool]]) -> None:
    """Set (or, `clears`, clear) one policy after the other; at each step the rules are those of new queues."""
    broker = broker_with(queues, Policies())
    for policy, clears in steps:
        if policy is None:
            continue
        now = broker.context.policies
        broker.reloading.replace_policies(now.without([policy.identity]) if clears else now.with_these([policy]))
        fresh = broker_with(queues, Policies(list(broker.context.policies)))
        for name in NAMES:
            queue, new = (one.virtual_hosts["/"].queues[name] for one in (broker, fresh))
            assert queue.rules == new.rules, name
            assert queue.declaration.effective == new.declaration.effective, name
            assert queue.policy == new.policy, name
            assert queue.takes_plainly == new.takes_plainly, name
            assert type(queue.store) is type(new.store), name
            assert (queue.timers.unused is None) == (new.timers.unused is None), name
