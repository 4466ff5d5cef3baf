"""Whatever a valid configuration says, it can be explained, compared with others, and put in force by a reload."""

import json
import random
from collections.abc import Iterable, Mapping
from itertools import pairwise

import pytest

from leveret.configured.configured import ConfiguredObjects, faults_of
from leveret.engine import Broker, ManualClock
from leveret.settings import Configuration, load_configuration
from leveret.settings.difference import differences
from leveret.settings.explain import explain, explain_table
from leveret.settings.leases.leased_settings import ELEMENTS
from leveret.settings.policies.policy_keys import POLICY_KEYS
from leveret.settings.rows.address_settings import SETTINGS
from leveret.settings.rows.broker_keys import KEYS
from leveret.settings.rows.queue_attributes import ATTRIBUTES
from leveret.settings.shared_parts import shared_parts
from leveret.settings.values import Reader, text_or_unset

# fmt: off
#: Every key accepts at least one of these, except those of [cluster].
VALUES: list[object] = [
    True, False, 0, 1, 5, 20, -1, 5000, 0.5, [], "x", "5s", "64KiB", "70%", "1D", "1.2", "10.0.0.0/8",
    "127.0.0.1:5672", "ANYCAST", "BLOCK", "DROP", "FORCE", "KILL", "MESSAGES_PER_DAY", "all", "at-least-once",
    "at-most-once", "balanced", "commit", "common-name", "default", "dns", "drop-head", "earliest", "fast",
    "immediate", "json", "key", "leveret", "local", "none", "now", "oldest", "queue", "quorum", "random", "strict",
    "time_limit", "vm",
]
# fmt: on


def accepted(read: Reader) -> list[object]:
    found = []
    for value in VALUES:
        try:
            read(value)
        except ValueError:
            continue
        found.append(value)
    return found


TABLES = {
    table: {key: accepted(row.read) for key, row in KEYS[table].items()} for table in KEYS if "cluster" not in table
}
ENTRIES = {row.key: accepted(row.read) for row in SETTINGS}
QUEUES = {row.key: accepted(row.read) for row in ATTRIBUTES if row.key != "exclusive"}
LEASED = {row.key: accepted(row.read) for row in ELEMENTS}
POLICIES = {key: accepted(row.read) for key, row in POLICY_KEYS.items()}


class Draw(random.Random):
    """Draws the text of a configuration."""

    def some(self, keys: Mapping[str, list[object]], most: int) -> list[str]:
        names = self.sample(sorted(key for key in keys if keys[key]), self.randint(0, most))
        return [f"{name} = {json.dumps(self.choice(keys[name]))}" for name in names]

    def tables(self) -> Iterable[str]:
        for table in self.sample(sorted(TABLES), 3):
            yield from (f"[{table}]", *self.some(TABLES[table], 3))
        for match in self.sample(["#", "a.#", "a", "*.b"], 2):
            yield from ("[[address-setting]]", f"match = '{match}'", *self.some(ENTRIES, 6))
        for name in self.sample(["a", "a.b", "c"], 2):
            kind = self.choice(["", "quorum", "stream", "amps"])
            yield from ("[[queue]]", f"name = '{name}'", *([f"type = '{kind}'"] if kind else []))
            yield from self.some(LEASED if kind == "amps" else QUEUES, 3)
        for number in range(self.randint(0, 2)):
            definition = ", ".join(self.some(POLICIES, 2)) or "expires = 1"
            yield from ("[[policy]]", f"name = 'p{number}'", "pattern = '^a'", f"definition = {{ {definition} }}")

    def configuration(self) -> Configuration:
        """The first that is valid."""
        while True:
            found, faults = load_configuration([("f.toml", "\n".join(self.tables()))])
            if not faults and not faults_of(found):
                return found


def test_every_key_is_drawn() -> None:
    """Otherwise a new key would be left out."""
    tables = (*TABLES.values(), ENTRIES, QUEUES, LEASED, POLICIES)
    assert [key for keys in tables for key, values in keys.items() if not values] == []


@pytest.mark.parametrize("seed", range(12))
def test_a_random_configuration(seed: int) -> None:
    """Explained, compared both ways, and put in force one after the other."""
    draw = Draw(seed)
    drawn = [draw.configuration() for _ in range(4)]
    objects = ConfiguredObjects(Broker(ManualClock(), settings=drawn[0].repository), drawn[0])
    for one in drawn:
        assert differences(one, one) == [] and shared_parts(one) == shared_parts(one)
        for table in KEYS:
            assert [text_or_unset(row.value) for row in explain_table(one, table)]
        for name in ("a", "a.b", "c", "z"):
            assert [explanation.paging for explanation in explain(one, name)]
        objects.apply(one)
        objects.broker.end_turn()
    for one, other in pairwise(drawn):
        there, back = differences(one, other), differences(other, one)
        assert {change.what for change in there} == {change.what for change in back} and list(map(str, there))
