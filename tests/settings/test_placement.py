"""Arguments and policy keys that choose nodes in RabbitMQ: accepted as there, and explained."""

import pytest
from configured_broker import make, session_of

from leveret.configured.typed_arguments import fields_of
from leveret.engine.rules.arguments import ARGUMENTS
from leveret.operator.running import explain_running
from leveret.settings import load_configuration
from leveret.settings.explain import Explained, explain
from leveret.settings.policies.placement import PLACEMENT
from leveret.settings.policies.policy_keys import POLICY_KEYS

#: RabbitMQ 3 knows it no longer, and takes any value of any unknown argument.
UNKNOWN = {"x-ha-policy"}
KEYS = sorted(PLACEMENT.keys() - ARGUMENTS.keys() - UNKNOWN)


def rows(text: str, name: str = "q") -> dict[str, Explained]:
    """What `leveret explain` says of a queue or address."""
    configuration, faults = load_configuration([("f", text)])
    assert faults == []
    return {row.name: row for one in explain(configuration, name) for row in one.rows}


def test_each_is_one_that_is_checked() -> None:
    """By the rows of arguments and of policy keys; and none of them sets anything."""
    assert PLACEMENT.keys() - ARGUMENTS.keys() - POLICY_KEYS.keys() == UNKNOWN
    assert [key for key in KEYS if POLICY_KEYS[key].argument] == []
    assert {key for key in POLICY_KEYS if key.startswith("ha-")} <= PLACEMENT.keys()


@pytest.mark.parametrize(
    "kind, argument, value",
    [
        ("quorum", "x-quorum-initial-group-size", 3),
        ("stream", "x-initial-cluster-size", 3),
        ("quorum", "x-queue-leader-locator", "balanced"),
        ("classic", "x-queue-master-locator", "min-masters"),
        ("classic", "x-ha-policy", "all"),
    ],
)
def test_an_argument_is_explained(kind: str, argument: str, value: object) -> None:
    """Beside its place, in a file and of a queue that a client declared."""
    text = f'[[queue]]\nname = "q"\ntype = "{kind}"\narguments = {{"{argument}" = {value!r}}}'
    row = rows(text)[argument]
    assert (row.value, row.rule) == (value, f"f:4: queue 'q': {PLACEMENT[argument]}")
    objects = make("")
    session = session_of(objects)
    table = fields_of({"x-queue-type": kind, argument: value})
    session.client.vhost.queues.declare("mine", client=session.client, arguments=table, durable=True)
    (one,) = explain_running(objects, "mine", "/")
    assert {row.name: row.rule for row in one.rows}[argument] == f"queue argument: {PLACEMENT[argument]}"


@pytest.mark.parametrize("key", ["target-group-size", "ha-mode"])
def test_a_policy_is_explained(key: str) -> None:
    """With its policy; an address has those of a classic queue."""
    value = 5 if key == "target-group-size" else "all"
    text = f'[[policy]]\nname = "p"\npattern = "q"\ndefinition = {{"{key}" = {value!r}}}\n'
    kind = "quorum" if key == "target-group-size" else "classic"
    row = rows(text + f'[[queue]]\nname = "q"\ntype = "{kind}"')[key]
    assert (row.value, row.rule) == (value, f"f:1: policy 'p': {PLACEMENT[key]}")
    assert ("ha-mode" in rows(text)) == (key == "ha-mode")
