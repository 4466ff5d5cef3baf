"""The files of `leveret cluster etcd`: a configuration and a systemd unit for each member of etcd."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..cluster.coordinator.gateway import why_refused
from ..settings.declared.cluster import ClusterNode
from ..settings.loopback import is_loopback

#: The path of a member's configuration on its machine, and the parent of its data directory.
PATH, DATA = "/etc/leveret/etcd.yml", "/var/lib/leveret-etcd"

CONFIGURATION = """\
# Member {name} of the etcd of cluster {cluster}; on its machine: {path}
name: {name}
data-dir: {data}/{name}
listen-client-urls: {listen}
advertise-client-urls: {client}
listen-peer-urls: {peer}
initial-advertise-peer-urls: {peer}
initial-cluster: {every}
initial-cluster-token: leveret-{cluster}
initial-cluster-state: new
# Nodes use it. When etcd 3.4 reads a configuration file that does not set it, it is off.
enable-grpc-gateway: true
# A cluster writes a few keys a second, and needs no history of them.
auto-compaction-mode: revision
auto-compaction-retention: "1000"
logger: zap
"""
UNIT = """\
[Unit]
Description=etcd of the Leveret cluster {cluster}
Documentation=https://etcd.io/docs/
After=network-online.target
Wants=network-online.target
# Debian's own etcd has the same ports.
Conflicts=etcd.service

[Service]
Type=notify
User=etcd
ExecStart={etcd} --config-file {path}
Restart=always
RestartSec=1
StateDirectory=leveret-etcd
StateDirectoryMode=0700
LimitNOFILE=65536
# A takeover waits for etcd's fsyncs: they go before those of batch jobs.
IOSchedulingClass=best-effort
IOSchedulingPriority=0

[Install]
WantedBy=multi-user.target
"""
STEPS = """\
Cluster {cluster}, an etcd of {count} members. On the machine of each member:

    apt install etcd-server
    systemctl disable --now etcd        # Debian's own, on the same ports
    install -D -m 644 MEMBER/etcd.yml {path}
    install -m 644 MEMBER/leveret-etcd.service /etc/systemd/system/
    systemctl daemon-reload && systemctl enable --now leveret-etcd

MEMBER is its folder here: {members}. The first one waits until a second one is there. Then, on any of them:

    ETCDCTL_API=3 etcdctl --endpoints {endpoints} endpoint status -w table
{warning}"""
WARNING = """
Whoever reaches these ports can decide which node leads. Let only machines of the cluster reach them, or give etcd
certificates (client-cert-auth), and [cluster] https URLs with [cluster.etcd-tls].
"""


@dataclass(slots=True, frozen=True)
class Member:
    """A member of etcd. `client_port`: for clients; `peer_port`: for other members."""

    name: str
    host: str
    client_port: int
    peer_port: int

    def url(self, port: int, host: str = "") -> str:
        """The URL of one of the member's ports."""
        host = host or self.host
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def members_of(urls: Sequence[str], nodes: Sequence[ClusterNode]) -> list[Member]:
    """The members of an etcd whose clients use these URLs.

    If each member has its own host, it has the name of the node there. A member without such a node, and each member if
    hosts are shared, is called etcd1, etcd2, ... The port for other members is the port for clients plus 1.

    Raises: ValueError.
    """
    parts = [urlsplit(url) for url in urls]
    if any(part.scheme != "http" for part in parts):
        raise ValueError("an etcd with https needs certificates, which are not made here: expected http URLs")
    if len(urls) % 2 == 0:
        raise ValueError(f"{len(urls)} members of etcd tolerate no more failures than {len(urls) - 1}: expected 3 URLs")
    _check_ports([(part.hostname or "", part.port or 2379) for part in parts])
    names = {node.host: node.name for node in nodes}
    are_distinct = len({part.hostname for part in parts}) == len(parts)
    return [
        Member(
            (names.get(part.hostname or "") if are_distinct else None) or f"etcd{number}",
            part.hostname or "",
            part.port or 2379,
            (part.port or 2379) + 1,
        )
        for number, part in enumerate(parts, 1)
    ]


def _check_ports(addresses: Sequence[tuple[str, int]]) -> None:
    """Raises: ValueError: two members on one host would listen on the same port."""
    taken: set[tuple[str, int]] = set()
    for host, port in addresses:
        for one in ((host, port), (host, port + 1)):
            if one in taken:
                why = f"port {one[1]} of {host} is needed twice"
                raise ValueError(f"{why}: each member uses one port for clients, and the next one for other members")
            taken.add(one)


def write_files(directory: Path, cluster: str, members: Sequence[Member]) -> list[Path]:
    """Write the files of all members, and return their paths. Raises: OSError; FileExistsError: nothing was written."""
    every = ",".join(f"{one.name}={one.url(one.peer_port)}" for one in members)
    etcd = shutil.which("etcd") or "/usr/bin/etcd"
    texts: dict[Path, str] = {}
    for one in members:
        client, peer = one.url(one.client_port), one.url(one.peer_port)
        listen = client if is_loopback(one.host) else f"{one.url(one.client_port, '127.0.0.1')},{client}"
        facts = {"name": one.name, "client": client, "peer": peer, "listen": listen}
        common = {"cluster": cluster, "path": PATH, "data": DATA, "etcd": etcd, "every": every}
        texts[directory / one.name / "etcd.yml"] = CONFIGURATION.format(**facts, **common)
        texts[directory / one.name / "leveret-etcd.service"] = UNIT.format(**common)
    texts[directory / "README"] = STEPS.format(
        cluster=cluster,
        count=len(members),
        path=PATH,
        members=", ".join(one.name for one in members),
        endpoints=",".join(one.url(one.client_port) for one in members),
        warning="" if all(is_loopback(one.host) for one in members) else WARNING,
    )
    for file in texts:
        if file.exists():
            raise FileExistsError(f"{file} exists already")
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return list(texts)


def check_version() -> tuple[bool, str]:
    """Whether nodes can use this machine's version of etcd, and a sentence about it; True if there is no etcd."""
    etcd = shutil.which("etcd")
    if etcd is None:
        return True, "etcd is not on this machine (Debian: apt install etcd-server); its version was not checked"
    output = subprocess.run([etcd, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"etcd Version: (\S+)", output)
    version = found[1] if found else ""
    why = why_refused(version)
    return not why, f"{etcd}: {why}" if why else f"{etcd} is version {version}, which can be used"
