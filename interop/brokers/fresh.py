"""Fresh brokers for scenarios, with TLS if they support it, and with controls that raise their alarms."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from ..wire.handshake import Handshake
from ..wire.loopback import LOOPBACK, free_ports
from .broker import Broker
from .follower import leveret_follower
from .maven import NotFetched
from .peers import Peer, durable_leveret, garagemq, leveret_ctl, rabbitmq, rabbitmqctl
from .qpid import qpid

MEASURED_SECONDS_MAX = 3.0
#: RabbitMQ's memory limits: one that raises the alarm at once, and the default.
MEMORY_LOW, MEMORY_USUAL = "0.0000001", "0.4"
DISK_FREE_HIGH, DISK_FREE_USUAL = "1000000GB", "50MB"
#: A file system for Leveret's journal, small enough to be filled.
DISK_SIZE = "256m"
#: The file system for the journals of three nodes.
CLUSTER_DISK_SIZE = "640m"
#: RabbitMQ's text -> ours: a leader that is stopped hands over, and clients can connect again at once.
HANDED_OVER = {
    "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'": (
        "CONNECTION_FORCED - this node no longer leads"
    )
}
BALLAST_PIECE = bytes(1 << 20)
#: Where Qpid's distribution is stored.
QPID = Path(".peers/qpid")


@contextmanager
def _rabbitmq() -> Iterator[Broker]:
    with _certificates() as (directory, ca), ExitStack() as stack:
        (port,) = free_ports(1)
        config = "\n".join(
            [
                f"listeners.ssl.1 = {LOOPBACK}:{port}",
                f"ssl_options.cacertfile = {ca}",
                f"ssl_options.certfile = {directory / 'server.pem'}",
                f"ssl_options.keyfile = {directory / 'server.key'}",
                "",
            ]
        )
        peer = stack.enter_context(rabbitmq(config=config))

        def watermark(share: str) -> Callable[[], object]:
            return lambda: rabbitmqctl(peer, "set_vm_memory_high_watermark", share)

        def disk_limit(size: str) -> Callable[[], object]:
            return lambda: rabbitmqctl(peer, "set_disk_free_limit", size)

        alarms = {"alarm-on": watermark(MEMORY_LOW), "alarm-off": watermark(MEMORY_USUAL)}
        alarms |= {"disk-full": disk_limit(DISK_FREE_HIGH), "disk-free": disk_limit(DISK_FREE_USUAL)}
        broker = _of(peer)
        yield replace(broker, tls_port=port, ca=ca, controls={**broker.controls, **alarms})


@contextmanager
def _leveret() -> Iterator[Broker]:
    with _certificates() as (directory, _), ExitStack() as stack:
        (port,) = free_ports(1)
        config = directory / "leveret.toml"
        config.write_text('[tls]\ncertificate = "server.pem"\nkey = "server.key"\n')
        options = ("--config", str(config), "--listen", f"amqps://{LOOPBACK}:{port}")
        disk = stack.enter_context(_small_disk(directory))
        peer = stack.enter_context(durable_leveret(*options, data=disk / "data" if disk else None))
        yield _leveret_of(peer, directory, port, disk)


@contextmanager
def _leveret_follower() -> Iterator[Broker]:
    """A cluster whose journals share one small disk: with room on another node, the leader would resign."""
    with _certificates() as (directory, _), ExitStack() as stack:
        certificate, key = directory / "server.pem", directory / "server.key"
        tls = f"[tls]\ncertificate = '{certificate}'\nkey = '{key}'\n"
        disk = stack.enter_context(_small_disk(directory, CLUSTER_DISK_SIZE))
        peer = stack.enter_context(leveret_follower(settings=tls, data=disk, has_tls=True))
        yield replace(_leveret_of(peer, directory, peer.tls_port, disk), texts=HANDED_OVER)


def _leveret_of(peer: Peer, directory: Path, tls_port: int, disk: Path | None) -> Broker:
    broker, why = _of(peer), {"disk": "a file system to fill can be mounted by root alone"}
    alarms = {"alarm-on": lambda: leveret_ctl(peer, "block"), "alarm-off": lambda: leveret_ctl(peer, "unblock")}
    controls = {**broker.controls, **alarms}
    if disk:
        ballast = disk / "ballast"
        controls |= {"disk-full": lambda: _fill(ballast, peer), "disk-free": lambda: ballast.write_bytes(b"")}
    return replace(broker, tls_port=tls_port, ca=directory / "ca.pem", controls=controls, withholds=why)


@contextmanager
def _small_disk(directory: Path, size: str = DISK_SIZE) -> Iterator[Path | None]:
    """A file system of this size; None: there is no permission to mount one."""
    disk = directory / "disk"
    disk.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk))
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _fill(ballast: Path, peer: Peer) -> None:
    """Fill the disk, and publish until the broker has noticed."""
    import pika

    queue, persistent = "interop-disk-full", pika.BasicProperties(delivery_mode=2)
    connection = pika.BlockingConnection(pika.URLParameters(peer.url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    piece = BALLAST_PIECE
    with ballast.open("ab", buffering=0) as file:
        while piece:
            try:
                file.write(piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                piece = piece[: len(piece) // 2]
    try:
        while True:
            channel.basic_publish("", queue, bytes(20_000), persistent)
    except pika.exceptions.NackError:
        connection.close()


@contextmanager
def _garagemq() -> Iterator[Broker]:
    with garagemq() as peer:
        why = {need: f"garagemq has no {what}" for need, what in WITHHELD.items()}
        yield replace(_of(peer), withholds=why, is_frail=True, seconds_max=MEASURED_SECONDS_MAX)


@contextmanager
def _qpid() -> Iterator[Broker]:
    with _certificates() as (directory, ca), ExitStack() as stack:
        try:
            peer, tls_port = stack.enter_context(qpid(QPID, directory / "server.pem", directory / "server.key"))
        except NotFetched as error:
            raise FileNotFoundError(str(error)) from error
        why = {need: f"Qpid has no {WITHHELD[need]}" for need in ("alarm", "disk")}
        yield replace(_of(peer), tls_port=tls_port, ca=ca, withholds=why, seconds_max=MEASURED_SECONDS_MAX)


#: Need of a scenario -> its name in the reason why a broker does not meet it.
WITHHELD = {"tls": "TLS", "alarm": "memory alarm", "disk": "disk alarm"}
#: Name -> starts a fresh broker. Raises: FileNotFoundError: it is not on this machine. PeerFailed: it did not start.
FRESH = {
    "leveret": _leveret,
    "leveret-follower": _leveret_follower,
    "rabbitmq": _rabbitmq,
    "garagemq": _garagemq,
    "qpid": _qpid,
}


def _of(peer: Peer) -> Broker:
    """A broker that was started here. Its controls restart it."""
    with Handshake(LOOPBACK, peer.port) as handshake:
        announced = handshake.greeting().get("version", "?")
    version = metadata.version("leveret") if peer.name == "leveret" else announced  # in its server properties
    controls: dict[str, Callable[[], object]] = {"restart": peer.restart, "crash": lambda: peer.restart(kill=True)}
    name, processes = peer.name, peer.processes
    return Broker(name, version, LOOPBACK, peer.port, is_ours=True, controls=controls, processes=processes)


@contextmanager
def _certificates() -> Iterator[tuple[Path, Path]]:
    """A directory with server.pem and server.key for localhost, and the path of the authority's certificate."""
    import trustme  # an extra, which is needed only for brokers that are started here

    with TemporaryDirectory(prefix="leveret-certificates-") as name:
        directory = Path(name)
        authority = trustme.CA()
        ca = directory / "ca.pem"
        authority.cert_pem.write_to_path(ca)
        leaf = authority.issue_cert("localhost", LOOPBACK, key_type=trustme.KeyType.RSA)  # Qpid reads RSA only
        (directory / "server.pem").write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        key = directory / "server.key"
        key.touch(mode=0o600)
        leaf.private_key_pem.write_to_path(key)
        yield directory, ca
