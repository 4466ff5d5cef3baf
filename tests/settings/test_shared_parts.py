"""What should be alike on all nodes of a cluster: named parts, whose texts are the same wherever they are made."""

import pytest

from leveret.settings import Configuration, load_configuration
from leveret.settings.difference import differences
from leveret.settings.shared_parts import shared_parts, text_of

CLUSTER = """
[cluster]
node = "{node}"
nodes = ["a=10.0.0.1:5680", "b=10.0.0.2:5680"]
etcd = ["http://{host}:2379"]
secret-file = "/etc/{node}.secret"
listen = "{host}:5680"
[cluster.tls]
ca = "/etc/ca.pem"
certificate = "/etc/{node}.pem"
[broker]
listen = ["{host}:5672"]
data = "/var/{node}"
[management]
listen = ["{host}:15672"]
metrics = "{host}:15692"
hosts = ["{node}.example"]
[journal]
reserve = "{reserve}MiB"
[tls]
certificate = "/etc/{node}-clients.pem"
"""
A = CLUSTER.format(node="a", host="10.0.0.1", reserve=1)
B = CLUSTER.format(node="b", host="10.0.0.2", reserve=2)


def loaded(text: str) -> Configuration:
    configuration, faults = load_configuration([("leveret.toml", text)])
    assert not faults
    return configuration


def test_what_a_node_has_of_its_own_is_no_part() -> None:
    """Names, places, paths of files, sizes of disks; nor does `leveret diff` show it between two nodes."""
    assert shared_parts(loaded(A)) == shared_parts(loaded(B))
    assert differences(loaded(A), loaded(B)) == []
    moved = loaded(A.replace(":5672", ":5673"))
    assert [change.what for change in differences(loaded(A), moved)] == ["[broker] listen"], "of one node it is shown"


@pytest.mark.parametrize("own", ["replication = 'local'", "replication = 'group'\ninitial-owner = 'a'"])
def test_a_leased_queue_of_one_node_or_of_a_group_is_no_part(own: str) -> None:
    """Each node declares its own; one of all nodes is to be alike."""
    leased = "[[queue]]\nname = 'q'\ntype = 'amps'\n"
    assert shared_parts(loaded(A + leased + own)) == shared_parts(loaded(A))
    assert shared_parts(loaded(A + leased + "replication = 'distributed'")) != shared_parts(loaded(A))


#: What is added to a file -> the part's name.
PARTS = [
    ("[limits]\nconnections = 7\n", "[limits] connections"),
    ("[system-usage]\nmemory = '60%'\n", "[system-usage] memory"),
    ("[system-usage]\n", "[system-usage]"),
    ("[wildcard-addresses]\ndelimiter = '/'\n", "[wildcard-addresses]"),
    ("[[address-setting]]\nmatch = 'a.#'\nexpiry-delay = 5\n", "match 'a.#'"),
    ("[[queue]]\nname = 'q'\n", "queue 'q'"),
    ("[[queue]]\nname = 'q'\nvhost = 'v'\n", "queue 'q' in vhost 'v'"),
    ("[[divert]]\nname = 'd'\naddress = 'x'\nforwarding-address = 'y'\n", "divert 'd'"),
    ("[[vhost]]\nname = 'v'\nmax-queues = 3\n", "vhost 'v'"),
    ("[[vhost]]\nname = '/'\nmax-queues = 3\n", "vhost '/'"),
    ("[[user]]\nname = 'shop'\n", "user 'shop'"),
    ("[[policy]]\nname = 'p'\npattern = '^x'\n[policy.definition]\nmax-length = 4\n", "policy 'p'"),
    ("[[logged-topic]]\nname = 't'\n", "logged topic 't'"),
]


@pytest.mark.parametrize("text, name", PARTS)
def test_each_kind_of_part_is_named(text: str, name: str) -> None:
    """By the words of `leveret diff`."""
    before, after = shared_parts(loaded(A)), shared_parts(loaded(A + text))
    assert name in {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}


def test_a_changed_part_has_another_text() -> None:
    """Also a password, which no name has in it."""
    user = "[[user]]\nname = 'shop'\npassword-hash = '{}'\n[[user.permission]]\nread = '.*'\n"
    hashes = ("J5stgLsXcSTcKnLC+xbYo5rUAFMhUJ2Y3JDO85pn1K6xHFXt", "W5stgLsXcSTcKnLC+xbYo5rUAFMhUJ2Y3JDO85pn1K6xHFXt")
    first, second = (shared_parts(loaded(A + user.format(one))) for one in hashes)
    assert {name for name in first if first[name] != second[name]} == {"user 'shop'"}
    assert not any(one in name for name in first for one in hashes)


def test_the_place_in_a_file_makes_no_difference() -> None:
    """Nor does the order of keys and entries, or of nodes."""
    queues = ["[[queue]]\nname = 'q'\ndurable = true\nvhost = 'v'\n", "[[queue]]\nvhost = 'v'\nname = 'r'\n"]
    one, other = A + "".join(queues), "\n\n" + A + "".join(reversed(queues))
    other = other.replace('"a=10.0.0.1:5680", "b=10.0.0.2:5680"', '"b=10.0.0.2:5680", "a=10.0.0.1:5680"')
    assert shared_parts(loaded(one)) == shared_parts(loaded(other))


def test_defaults_are_no_parts() -> None:
    """Releases may differ in them, and in which keys there are."""
    assert shared_parts(loaded(A + "[limits]\nconnections = 0\n")) == shared_parts(loaded(A))


def test_sets_have_no_order() -> None:
    """Their text is that of another process, too."""
    names = [f"name-{number}" for number in range(50)]
    assert text_of(frozenset(names)) == text_of(frozenset(reversed(names)))
    assert text_of({"b": {2, 1}, "a": ("x", None)}) == "{a: ['x', None], b: {1, 2}}"
