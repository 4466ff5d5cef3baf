"""Brokers as context managers: RabbitMQ, leveret and garagemq, as processes on 127.0.0.1.

    with rabbitmq() as peer:
        connect(peer.url)

When the block begins, the peer has answered an AMQP protocol header. When the block ends, its process group is killed
and its temporary directory deleted. Several can run at the same time; they share nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..wire.loopback import LOOPBACK, answers_amqp, free_ports, listens
from .processes import Lifecycle, RestartableProcess, directory_for, end_of, started, text_of, wait_for

# The script, not Debian's wrapper in /usr/sbin, which has to be run by root or rabbitmq and changes the user.
RABBITMQ_PLACES = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/opt/homebrew/sbin/rabbitmq-server",
    "/usr/local/sbin/rabbitmq-server",
)
WITHOUT_RABBITMQ = "no rabbitmq-server on this machine (make peers)"
WITHOUT_GARAGEMQ = "no garagemq on this machine (make peers)"
# Like Debian's file, but for ports and directory; the password is the MD5 of guest.
GARAGEMQ_CONFIG = """\
proto: amqp-rabbit
users:
  - username: guest
    password: 084e0343a0486ff05530df6c705c8bb4
tcp: {{ip: 127.0.0.1, port: {port}, nodelay: false, readBufSize: 196608, writeBufSize: 196608}}
admin: {{ip: 127.0.0.1, port: {admin}}}
queue: {{shardSize: 8192, maxMessagesInRam: 131072}}
db: {{defaultPath: {data}, engine: badger}}
vhost: {{defaultPath: /}}
security: {{passwordCheck: md5}}
connection: {{channelsMax: 4096, frameMaxSize: 65536}}
"""
#: Without a console, whose usual port only one of several brokers could have.
NO_CONSOLE = ("--management", "off")
READY_LINE = re.compile(r"^leveret ready amqp://127\.0\.0\.1:(\d+)/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Peer:
    """A broker that answers on 127.0.0.1.

    `pid`: of the process whose CPU time and memory matter (for RabbitMQ the Erlang VM, not the script that starts it).
    `directory`: with its files; it is deleted after the block. `log`: the file of its output.
    """

    name: str
    port: int
    pid: int
    directory: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    processes: Lifecycle | None = field(default=None, repr=False)
    console_port: int = 0  # of the HTTP API; 0: there is none
    metrics_ports: Sequence[int] = ()  # of each node, the leader's first
    tls_port: int = 0  # of AMQP with TLS; 0: there is none, or options define it

    def restart(self, *, kill: bool = False) -> None:
        """End it by SIGTERM, or by SIGKILL with `kill`, and start it again with the same port and directory.

        `pid` is not updated. Raises: PeerFailed: it did not end or did not start.
        """
        assert self.processes is not None
        self.processes.restart(signal.SIGKILL if kill else signal.SIGTERM)

    def diagnosis(self) -> str:
        """Why a broker does not answer, as far as is known: whether it runs or how it ended, and the end of its log."""
        pid = self.pid if self.processes is None else self.processes.process.pid
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            state = "runs"
        elif ended.si_code == os.CLD_EXITED:
            state = f"ended with {ended.si_status}"
        else:
            state = f"was killed by {signal.Signals(ended.si_status).name}"
        logs = [self.log, *sorted((self.directory / "log").glob("*.log"))]
        return f"{self.name} (process {pid}) {state}" + "".join(
            f"; {log.name} ends:\n{end_of(log)}" for log in logs if log.exists() and log.stat().st_size
        )

    @property
    def url(self) -> str:
        """The AMQP URL of the default user and virtual host."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/"


@contextmanager
def restartable(
    name: str,
    port: int,
    command: Sequence[str],
    directory: Path,
    *,
    environment: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    ready: Callable[[], bool] | None = None,
    console_port: int = 0,
) -> Iterator[Peer]:
    """Run a broker that can be restarted. Its log is in `directory`, which is also its default `cwd`.

    `ready`: whether it has started; None: it answers AMQP. `console_port`: as in `Peer`.

    Raises: PeerFailed: it did not come up.
    """
    log = directory / "output"
    with RestartableProcess(
        lambda: started(command, environment, log, cwd or directory), ready or (lambda: answers_amqp(port)), log
    ) as processes:
        processes.start()
        yield Peer(name, port, processes.process.pid, directory, log, environment, processes, console_port)


def find_rabbitmq() -> Path | None:
    """The script rabbitmq-server, or the one in the variable RABBITMQ_SERVER; None: tests skip (`WITHOUT_RABBITMQ`)."""
    named = os.environ.get("RABBITMQ_SERVER")
    candidates = [named] if named else [*RABBITMQ_PLACES, shutil.which("rabbitmq-server")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK) and shutil.which("erl"):
            return Path(candidate)
    return None


@contextmanager
def rabbitmq(
    *,
    config: str = "",
    advanced: str = "",
    plugins: Sequence[str] = (),
    erlang: str = "",
    node: str = "",
) -> Iterator[Peer]:
    """Run a fresh RabbitMQ.

    `config`: lines for rabbitmq.conf; `advanced`: for advanced.config; `erlang`: arguments of the VM. `node`: its name;
    several brokers may have the same, because each has its own port mapper.

    Raises: FileNotFoundError: there is none on this machine. PeerFailed: it did not come up.
    """
    script = _script_of_rabbitmq()
    amqp, distribution, epmd = free_ports(3)
    with directory_for("rabbitmq") as directory, _port_mapper(directory, epmd):
        environment = _rabbitmq_environment(directory, amqp, distribution, epmd, config, plugins)
        environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"] += f" {erlang}"
        if node:
            environment["RABBITMQ_NODENAME"] = node
        if advanced:
            (directory / "advanced.config").write_text(advanced)
        with restartable("rabbitmq", amqp, [script], directory, environment=environment) as peer:
            yield peer


@contextmanager
def rabbitmq_cluster(*, has_consoles: bool = False) -> Iterator[list[Peer]]:
    """Run a fresh cluster of three RabbitMQ nodes. Each can be killed and started again.

    `has_consoles`: each serves the HTTP API.

    Raises: FileNotFoundError: there is none on this machine. PeerFailed: a node did not come up.
    """
    script = _script_of_rabbitmq()
    ports = free_ports(10)
    epmd, amqp, distribution, consoles = ports[0], ports[1:4], ports[4:7], ports[7:]
    formation = "cluster_formation.peer_discovery_backend = rabbit_peer_discovery_classic_config\n" + "".join(
        f"cluster_formation.classic_config.nodes.{number} = peer{port}@localhost\n"
        for number, port in enumerate(amqp, 1)
    )
    with ExitStack() as stack:
        directory = stack.enter_context(directory_for("rabbitmq"))
        stack.enter_context(_port_mapper(directory, epmd))
        peers = []  # the first one forms the cluster, the others join it
        for port, other, console in zip(amqp, distribution, consoles):
            place = directory / str(port)
            place.mkdir()
            listening = f"management.tcp.ip = {LOOPBACK}\nmanagement.tcp.port = {console}\n" if has_consoles else ""
            plugins = ("rabbitmq_management",) if has_consoles else ()
            environment = _rabbitmq_environment(place, port, other, epmd, formation + listening, plugins)
            environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"] += " -setcookie leveret"
            console_port = console if has_consoles else 0
            starting = restartable(
                "rabbitmq", port, [script], place, environment=environment, console_port=console_port
            )
            peers.append(stack.enter_context(starting))
        yield peers


def _script_of_rabbitmq() -> str:
    """Raises: FileNotFoundError: it is not on this machine, or cannot run here."""
    script = find_rabbitmq()
    if script is None:
        raise FileNotFoundError(WITHOUT_RABBITMQ)
    return str(script)


@contextmanager
def _port_mapper(directory: Path, port: int) -> Iterator[None]:
    """Run Erlang's port mapper as our child: Erlang would start it as a daemon, which would outlive the test."""
    mapper = shutil.which("epmd")
    if mapper is None:
        raise FileNotFoundError("epmd (Erlang's port mapper) is not on the PATH")
    log = directory / "epmd"
    with started([mapper, "-address", LOOPBACK, "-port", str(port)], os.environ, log, directory) as daemon:
        wait_for(lambda: listens(port), daemon, log)
        yield


@contextmanager
def durable_leveret(*options: str, data: Path | None = None, log_level: str = "warning") -> Iterator[Peer]:
    """Run a fresh `leveret serve` with a journal, which can be restarted. `options`: further ones of the command.

    `data`: the directory of the journal (default: in the temporary directory).

    Raises: PeerFailed: it did not come up.
    """
    with directory_for("leveret") as directory:
        (port,) = free_ports(1)
        place = ("--data", str(data or directory / "data"), "--listen", f"{LOOPBACK}:{port}")
        command = [sys.executable, "-m", "leveret", "serve", *NO_CONSOLE, *place, "--log-level", log_level, *options]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with restartable("leveret", port, command, directory, environment=environment, cwd=Path.cwd()) as peer:
            yield peer


def leveret_ctl(peer: Peer, *command: str) -> None:
    """Run `leveret ctl` at a peer. Raises: subprocess.CalledProcessError, with `stderr`."""
    asked = [sys.executable, "-m", "leveret", "ctl", "--url", peer.url, *command]
    subprocess.run(asked, capture_output=True, text=True, check=True)


@contextmanager
def garagemq() -> Iterator[Peer]:
    """Run a fresh garagemq, which can be restarted.

    Raises: FileNotFoundError: there is none on this machine. PeerFailed: it did not come up.
    """
    program = shutil.which("garagemq")
    if program is None:
        raise FileNotFoundError(WITHOUT_GARAGEMQ)
    with directory_for("garagemq") as directory:
        port, admin = free_ports(2)
        config = directory / "config.yaml"
        config.write_text(GARAGEMQ_CONFIG.format(port=port, admin=admin, data=directory / "data"))
        with restartable("garagemq", port, [program, "--config", str(config)], directory) as peer:
            yield peer


@contextmanager
def leveret(
    *options: str, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> Iterator[Peer]:
    """Run a fresh `leveret serve` without a journal. `options`: further ones of the command.

    Raises: PeerFailed: it was not ready in time.
    """
    merged = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
    with directory_for("leveret") as directory:
        log = directory / "output"
        command = [python, "-m", "leveret", "serve", *NO_CONSOLE, "--memory", "--listen", f"{LOOPBACK}:0", *options]
        with started(command, merged, log) as process:
            wait_for(lambda: READY_LINE.search(text_of(log)) is not None, process, log)
            ready = READY_LINE.search(text_of(log))
            assert ready is not None
            yield Peer("leveret", int(ready[1]), process.pid, directory, log)


def rabbitmqctl(peer: Peer, *arguments: str) -> None:
    """Run `rabbitmqctl` at a peer. Raises: subprocess.CalledProcessError, with `stderr`."""
    subprocess.run(
        [str(Path(_script_of_rabbitmq()).with_name("rabbitmqctl")), *arguments],
        env=dict(peer.environment),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


def _rabbitmq_environment(
    directory: Path, port: int, distribution: int, epmd: int, config: str, plugins: Sequence[str]
) -> dict[str, str]:
    """The environment of rabbitmq-server, with all files in `directory` and all listeners on loopback."""
    for name, text in {
        "rabbitmq.conf": config,
        "enabled_plugins": f"[{','.join(plugins)}].\n",
        "env.conf": "",
        # Makes Erlang resolve `localhost` by this file alone, without a name server.
        "inetrc": '{lookup, [file]}.\n{host, {127,0,0,1}, ["localhost"]}.\n',
    }.items():
        (directory / name).write_text(text)
    cookie = directory / ".erlang.cookie"  # Erlang would make one, and on a busy machine read it before its chmod
    cookie.touch(0o600)
    cookie.write_text("LEVERET")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RABBITMQ_", "ERL_"))}
    return inherited | {
        "HOME": str(directory),  # of the Erlang cookie
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(epmd),
        "ERL_INETRC": str(directory / "inetrc"),
        "ERL_CRASH_DUMP_SECONDS": "0",
        "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the VM instead of waiting for it: there is one pid
        "RABBITMQ_NODENAME": f"peer{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": str(directory / "env.conf"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "config"),
        "RABBITMQ_SCHEMA_DIR": str(directory / "schema"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(directory / "feature_flags"),
        "RABBITMQ_PLUGINS_EXPAND_DIR": str(directory / "plugins"),
    }
