"""Real etcd members on loopback, for tests: started, killed, stopped for a while, each with its own directory."""

import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from leveret.cluster.coordinator.errors import Unreachable
from leveret.cluster.coordinator.gateway import EtcdAccess, Gateway, octets64
from leveret.interop.wire.loopback import free_ports

ETCD = shutil.which("etcd")
WHY_NOT = "needs etcd (Debian: apt install etcd-server; make peers)"


class EtcdServers:
    """Members m0, m1, ... of one etcd. `endpoints`: their URLs."""

    def __init__(self, directory: Path, count: int = 1, options: tuple[str, ...] = (), scheme: str = "http") -> None:
        self.directory = directory
        self._options = options
        ports = free_ports(2 * count)
        self._clients, self._peers = ports[:count], ports[count:]
        self.endpoints = tuple(f"{scheme}://127.0.0.1:{port}" for port in self._clients)
        self.user, self.password = "", ""
        self.tls: ssl.SSLContext | None = None
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.count = count

    def start(self, member: int) -> None:
        """It may have run before: it goes on with its data."""
        name = f"m{member}"
        peer = f"http://127.0.0.1:{self._peers[member]}"
        every = ",".join(f"m{one}=http://127.0.0.1:{port}" for one, port in enumerate(self._peers))
        with (self.directory / f"{name}.log").open("ab") as log:
            self._running[member] = subprocess.Popen(
                [
                    *(str(ETCD), "--name", name, "--data-dir", str(self.directory / name)),
                    *("--listen-client-urls", self.endpoints[member]),
                    *("--advertise-client-urls", self.endpoints[member]),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", every),
                    *("--heartbeat-interval", "50", "--election-timeout", "500", *self._options),
                ],
                stdout=log,
                stderr=log,
            )

    def start_all(self) -> None:
        """And wait until each answers."""
        for member in range(self.count):
            self.start(member)
        for member in range(self.count):
            self.await_answer(member)

    def access(self, *endpoints: str, seconds: float = 2) -> EtcdAccess:
        """For a gateway to these members, or to all."""
        return EtcdAccess(endpoints or self.endpoints, self.user, self.password, self.tls, seconds, seconds)

    def enable_users(self, name: str, password: str, prefix: str) -> None:
        """A user who may use the keys below a prefix; root has the same password. From now on tests are root."""
        last = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        key, end = octets64(prefix.encode()), octets64(last.encode())
        with closing(Gateway(self.access(seconds=5))) as gateway:
            for path, body in (
                ("user/add", {"name": "root", "password": password}),
                ("role/add", {"name": "root"}),
                ("user/grant", {"user": "root", "role": "root"}),
                ("user/add", {"name": name, "password": password}),
                ("role/add", {"name": name}),
                ("role/grant", {"name": name, "perm": {"permType": "READWRITE", "key": key, "range_end": end}}),
                ("user/grant", {"user": name, "role": name}),
                ("enable", {}),
            ):
                gateway.change(f"/v3/auth/{path}", body)
        self.user, self.password = "root", password

    def await_answer(self, member: int) -> None:
        """Until a member answers a linearizable read, so that there is a leader."""
        with closing(Gateway(self.access(self.endpoints[member], seconds=5))) as gateway:
            while True:
                try:
                    gateway.read("/v3/kv/range", {"key": "YQ=="})
                    return
                except Unreachable:
                    try:
                        self._running[member].wait(0.05)  # it ends, or it is asked again
                    except subprocess.TimeoutExpired:
                        continue
                    raise AssertionError((self.directory / f"m{member}.log").read_text()) from None

    def signal(self, member: int, number: signal.Signals) -> None:
        """SIGSTOP: it takes connections and answers nothing; SIGCONT: it goes on."""
        process = self._running[member]
        process.send_signal(number)
        if number == signal.SIGSTOP:  # the signal is delivered a moment later, and each thread stops by itself
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self, member: int) -> None:
        """As a power cut does."""
        process = self._running.pop(member)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Kill all."""
        for member in list(self._running):
            self.kill(member)


@contextmanager
def etcd_servers(directory: Path, count: int = 1) -> Iterator[EtcdServers]:
    """Started, and killed at the end."""
    servers = EtcdServers(directory, count)
    try:
        servers.start_all()
        yield servers
    finally:
        servers.close()
