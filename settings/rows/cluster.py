"""The keys of [cluster], [cluster.tls] and [cluster.etcd-tls]. Checks of one against another: declared/cluster.py.

All but `transfer-after`, certificates with their keys, and `ca` of etcd act when the node starts.
Source: docs/cluster.md.
"""

import re
from dataclasses import dataclass
from functools import partial

from ..lifetime import AT_CONNECTION, LIVE, RESTART
from ..values import (
    DURATION_UNITS,
    INT_MAX,
    SIZE_UNITS,
    TEXT,
    Kind,
    duration_ms,
    in_range,
    size_between,
    size_bytes,
    texts,
)
from .row import setting

MIB = 1024**2

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_NODE = re.compile(r"(?=.{1,63}$)[A-Za-z0-9][A-Za-z0-9_.-]*(?:@[A-Za-z0-9][A-Za-z0-9_.-]*)?")
_HOST_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]@=]+)):([0-9]{1,5})")
_URL = re.compile(r"https?://(?:\[[0-9A-Fa-f:.]+\]|([^\s:/\[\]@]+))(?::([0-9]{1,5}))?/?")


def host_port_of(value: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT; None: the text is not of this form."""
    found = _HOST_PORT.fullmatch(value)
    if found is None or not 0 < int(found[3]) < 65536 or not _may_be_host(found[2]):
        return None
    return found[1] or found[2], int(found[3])


def _may_be_host(name: str | None) -> bool:
    """Whether a resolver takes the name: no label is empty or longer than 63 octets. True for None: there is
    an IPv6 address in place of a name.
    """
    try:
        (name or "").encode("idna")
    except UnicodeError:
        return False
    return True


def plain_name(value: object) -> str:
    """A name that may be part of a key in etcd."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ValueError("a name of at most 63 letters, digits, `_`, `.` and `-` that begins with a letter or digit")


def node_name(value: object) -> str:
    """A name that may be part of a key in etcd, perhaps with a host (`rabbit@a`), as RabbitMQ names its nodes."""
    if isinstance(value, str) and _NODE.fullmatch(value):
        return value
    raise ValueError(
        "a name of at most 63 letters, digits, `_`, `.` and `-`, perhaps with one `@`; "
        "each part begins with a letter or digit"
    )


def host_and_port(value: object) -> str:
    """HOST:PORT."""
    if isinstance(value, str) and host_port_of(value) is not None:
        return value
    raise ValueError('an address "HOST:PORT"')


def copy_rate(value: object) -> int:
    """Octets a second, at least 1 MiB; 0: no limit. A leader pauses after each MiB, below that for over a second."""
    try:
        rate = size_bytes(value)
    except ValueError:
        rate = -1
    if rate and rate < MIB:
        raise ValueError('a size of at least 1MiB a second, or 0 for no limit: "100MiB"')
    return rate


def named_host_ports(value: object) -> tuple[str, ...]:
    """A list of NAME=HOST:PORT."""
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        parts = [one.partition("=") for one in value]
        if all(_NODE.fullmatch(part[0]) and host_port_of(part[2]) is not None for part in parts):
            return tuple(value)
    raise ValueError('a list of nodes: ["a=HOST:PORT", "b=HOST:PORT", "c=HOST:PORT"]')


def urls(value: object) -> tuple[str, ...]:
    """A list of http and https URLs without a path."""
    expected = 'a list of http or https URLs without a path: ["http://HOST:2379", ...]'
    try:
        given = texts(value)
    except ValueError:
        raise ValueError(expected) from None
    found = [_URL.fullmatch(one) for one in given]
    if not found or not all(one and _may_be_host(one[1]) and 0 < int(one[2] or 2379) < 65536 for one in found):
        raise ValueError(expected)
    return tuple(one.rstrip("/") for one in given)


def at_least(low_ms: int, text: str) -> Kind:
    """A duration that is not too short. Args: text: the shortest one in words."""

    def read(value: object) -> int:
        try:
            found = duration_ms(value)
        except ValueError as error:
            raise ValueError(f"{error}, at least {text}") from None
        if found < low_ms:
            raise ValueError(f"a duration of at least {text}")
        return found

    return Kind(read, units=DURATION_UNITS)


#: With a shorter timer a node that is only busy would count as dead.
TIMER = at_least(100, "100ms")

cluster_key = partial(setting, acts=RESTART)
node_key = partial(cluster_key, is_of_node=True)
pem_file = partial(node_key, TEXT, None)


# fmt: off
@dataclass(init=False, repr=False, eq=False)
class ClusterKeys:
    """[cluster]."""

    name: str = cluster_key(Kind(plain_name), "leveret",
        help="Name of the cluster; its keys in etcd are under `/leveret/NAME/0/`.")
    node: str | None = node_key(Kind(node_name), None,
        help="Name of this node, one of `nodes`; tools see `rabbit@NAME`, or the name as it is if it has an `@`.")
    nodes: tuple[str, ...] = cluster_key(Kind(named_host_ports), (),
        help="All nodes, the same list on each: `NAME=HOST:PORT`, the address where the other nodes reach it.")
    listen: str | None = node_key(Kind(host_and_port), None,
        help="Address on which this node listens for the others; unset: its address in `nodes`.")
    advertise: str | None = node_key(Kind(host_and_port), None,
        help="Address of this node that the others are told; unset: its address in `nodes`.")
    etcd: tuple[str, ...] = node_key(Kind(urls), (), help="URLs of all members of etcd, see [cluster.md](cluster.md).")
    etcd_user: str | None = node_key(TEXT, None,
        help="User as which this node logs in to etcd; unset: etcd has no users.")
    etcd_password_file: str | None = node_key(TEXT, None,
        help="File with the password of `etcd-user`, on its first line.")
    min_in_sync: int = cluster_key(in_range(1, 16), 2,
        help="Nodes, the leader among them, that must have a message on disk before it is confirmed; "
        "with fewer, publishers wait.")
    secret_file: str | None = node_key(TEXT, None,
        help="File with a secret that all nodes share and prove to each other, where there is no `[cluster.tls]`.")
    group: str | None = node_key(Kind(plain_name), None,
        help="Name of the group of nodes to which this one belongs, as AMPS has it: see `x-queue-domain`.")
    lease_ms: int = cluster_key(at_least(2000, "2s"), 6000,
        help="How long a node that is silent counts as present in etcd, rounded up to seconds.")
    suspend_after_ms: int = cluster_key(TIMER, 2000,
        help="How long a leader that reaches neither a node nor etcd continues; then nothing is read or sent.")
    disk_stall_ms: int = cluster_key(TIMER, 5000,
        help="How long a write or fsync of the leader may hang before another node leads.")
    patience_ms: int = cluster_key(TIMER, 30_000,
        help="How long clients wait while no node leads; then they are disconnected.")
    beacon_ms: int = cluster_key(at_least(50, "50ms"), 500,
        help="How often connected nodes tell each other that they are alive.")
    ack_deadline_ms: int = cluster_key(TIMER, 2000,
        help="How long the leader waits for a node in sync to have records on disk, before it continues without it.")
    join_patience_ms: int = cluster_key(TIMER, 1000, help="How long a new leader waits for nodes in sync to connect.")
    resign_after_ms: int = cluster_key(TIMER, 2000,
        help="How long a leader with too few nodes in sync waits before it leaves the lead to a node that reaches "
        "more.")
    transfer_after_ms: int = cluster_key(Kind(duration_ms, units=DURATION_UNITS), 50, acts=LIVE,
        help="How long a message of a leased queue waits for a consumer at its own node before it may leave.")
    link_backlog: int = cluster_key(Kind(size_between(MIB, INT_MAX), units=SIZE_UNITS), 64 * MIB,
        help="Octets that wait in memory for one node; if it lags further, they are read from files.")
    copy_rate: int = cluster_key(Kind(copy_rate, units=SIZE_UNITS), 100 * MIB,
        help="Octets a second that one node gets from files, on top of those by which the journal grows meanwhile; "
        "0: no limit.")


@dataclass(init=False, repr=False, eq=False)
class ClusterTlsKeys:
    """[cluster.tls]: between nodes. Each shows its certificate to the other."""

    ca: str | None = pem_file(
        help="PEM file with the authority that signs the certificates of nodes, and of nothing else.")
    certificate: str | None = pem_file(acts=AT_CONNECTION,
        help="PEM file with this node's certificate; its host must be the one in `nodes`.")
    key: str | None = pem_file(acts=AT_CONNECTION,
        help="PEM file with its private key; unset: in the certificate's file.")


@dataclass(init=False, repr=False, eq=False)
class EtcdTlsKeys:
    """[cluster.etcd-tls]: to etcd, for URLs that begin with https."""

    ca: str | None = pem_file(acts=AT_CONNECTION,
        help="PEM file with the authority of etcd's certificates; unset: this machine's authorities.")
    certificate: str | None = pem_file(acts=AT_CONNECTION,
        help="PEM file with the certificate that this node shows to etcd.")
    key: str | None = pem_file(acts=AT_CONNECTION,
        help="PEM file with its private key; unset: in the certificate's file.")
# fmt: on
