"""The files that [cluster] names: the secret, etcd's password, certificates for links and for etcd.

A path is relative to the directory of the configuration file that sets it, as in [tls]. Only a configuration with
[cluster] imports this.
"""

import logging
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..cluster.coordinator.gateway import EtcdAccess
from ..cluster.link.options import LinkTls
from ..configured.input_files import open_input
from ..settings import Configuration
from ..settings.declared.cluster import nodes_of
from ..settings.loopback import is_loopback
from .certificates import expiry_times
from .file_watch import FileMark, marks_of
from .tls_files import CERTIFICATE, configured_path, reason_of

logger = logging.getLogger("leveret.cluster")

#: Minimum octets of a secret; `openssl rand -hex 16` makes 32.
SECRET_SIZE_MIN = 16
_FILE_SIZE_MAX = 64 * 1024
#: Tables with certificates, and their keys.
_TLS_TABLES, _TLS_KEYS = ("cluster.tls", "cluster.etcd-tls"), ("ca", "certificate", "key")


@dataclass(slots=True, frozen=True)
class ClusterFiles:
    """The contents of the files. `secret`: b"" without secret-file."""

    etcd: EtcdAccess
    secret: bytes = b""
    tls: LinkTls = field(default_factory=LinkTls)

    def renew(self, configuration: Configuration) -> list[str]:
        """Load the certificates again, for new connections. Call it in the event loop, which opens the links.

        Returns: faults, as FILE:LINE: KEY: text. If there are any, all certificates stay.
        """
        if not configuration.is_clustered:
            return []
        fresh, faults, _ = load_cluster(configuration)
        if fresh is None:
            return faults
        self.etcd.tls = fresh.etcd.tls
        self.tls.replace(fresh.tls)
        return []

    def marks(self, configuration: Configuration) -> dict[str, FileMark | None]:
        """The marks of the files with certificates."""
        files = _Files(configuration)
        found = (files.path(table, key) for table in _TLS_TABLES for key in _TLS_KEYS)
        return marks_of(path for path in found if path is not None)


class _Fault(Exception):
    """A fault in a file. Its arguments are the table, the key and the text."""


def load_cluster(configuration: Configuration) -> tuple[ClusterFiles | None, list[str], list[str]]:
    """Read the files of a configuration that has [cluster] and no faults.

    Returns: their contents (None with a fault); faults and warnings, as FILE:LINE: KEY: text.
    """
    files = _Files(configuration)
    try:
        found = files.load()
    except _Fault as fault:
        table, key, problem = fault.args
        return None, [f"{files.origin(table, key)}: {key}: {problem}"], files.warnings
    return found, [], files.warnings


class _Files:
    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.warnings: list[str] = []

    def load(self) -> ClusterFiles:
        """Raises: _Fault."""
        keys = self._configuration.cluster
        secret = self._line("secret-file")
        if keys.secret_file is not None and len(secret) < SECRET_SIZE_MIN:
            expected = f"expected {SECRET_SIZE_MIN} or more, as `openssl rand -hex 16` prints them"
            raise _Fault("cluster", "secret-file", f"its first line has {len(secret)} octets, {expected}")
        user = keys.etcd_user or ""
        password = self._line("etcd-password-file").decode(errors="replace")
        etcd = EtcdAccess(keys.etcd, user, password, self._etcd_context())
        server, client = self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT)
        self._warn(secret, has_tls=server is not None)
        return ClusterFiles(etcd, secret, LinkTls(server, client, self._trusted(), self._expiry_times()))

    def _warn(self, secret: bytes, *, has_tls: bool) -> None:
        """Warn if EXTERNAL logins will fail, and if only clients use TLS, so that links carry messages in clear."""
        configuration = self._configuration
        where, has_clients = self.origin("cluster", "nodes"), configuration.tls.certificate is not None
        if has_clients and "EXTERNAL" in configuration.broker.mechanisms and not (secret or has_tls):
            why = "links prove nothing without secret-file or [cluster.tls]"
            self.warnings.append(f"{where}: nodes: nobody can log in by EXTERNAL through a node that follows: {why}")
        is_of_one_machine = all(is_loopback(node.host) for node in nodes_of(configuration.cluster))
        if has_clients and not has_tls and not is_of_one_machine:
            why = "the TLS of clients ends at the node they are connected to, and there is no [cluster.tls]"
            self.warnings.append(f"{where}: nodes: what clients send passes between nodes in clear: {why}")

    def origin(self, table: str, key: str) -> str:
        """FILE:LINE of a key."""
        return str(self._configuration.origins.get((table, key), "leveret"))

    def path(self, table: str, key: str) -> str | None:
        """The file that a key names; None: the key is unset."""
        return configured_path(self._configuration, table, key)

    def _line(self, key: str) -> bytes:
        """The first line of a file with a secret, with a warning if all users can read it; b"" if the key is unset."""
        path = self.path("cluster", key)
        if path is None:
            return b""
        try:
            with open(path, "rb", opener=open_input) as file:
                mode = os.fstat(file.fileno()).st_mode
                line = file.readline(_FILE_SIZE_MAX).strip()
                if os.name == "posix" and mode & 0o004:
                    self.warnings.append(f"{self.origin('cluster', key)}: {key}: all users can read it (chmod 600)")
        except OSError as error:
            raise _Fault("cluster", key, f"{path!r} cannot be read: {error.strerror}") from None
        if not line:
            raise _Fault("cluster", key, f"{path!r} is empty")
        return line

    def _context(self, protocol: int) -> ssl.SSLContext | None:
        """The TLS context of links: both sides show a certificate of the cluster's authority. None: without TLS."""
        if self.path("cluster.tls", "ca") is None:
            return None
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        self._load_context(context, "cluster.tls")
        return context

    def _trusted(self) -> frozenset[str]:
        """The certificates in the file of authorities. A context lists only those that may sign others."""
        ca = self.path("cluster.tls", "ca")
        if ca is None:
            return frozenset()
        text = self._text("cluster.tls", "ca", ca)
        return frozenset("".join(one.split()) for one in CERTIFICATE.findall(text))

    def _expiry_times(self) -> tuple[int, ...]:
        """When the certificates in this node's file for links expire, in wall ms, with a warning if one has."""
        path = self.path("cluster.tls", "certificate")
        if path is None:
            return ()
        found = expiry_times(self._text("cluster.tls", "certificate", path))
        if min(found, default=time.time() * 1000 + 1) <= time.time() * 1000:
            self.warnings.append(f"{self.origin('cluster.tls', 'certificate')}: certificate: certificate has expired")
        return found

    def _load_context(self, context: ssl.SSLContext, table: str) -> None:
        """Load the authority and the certificate that a table names. Raises: _Fault."""
        ca = self.path(table, "ca")
        if ca is not None:
            self._try(table, "ca", ca, lambda: context.load_verify_locations(cafile=ca))
        if self.path(table, "certificate") is not None:
            self._load_chain(context, table)

    def _etcd_context(self) -> ssl.SSLContext | None:
        if not any(url.startswith("https:") for url in self._configuration.cluster.etcd):
            return None
        ca = self.path("cluster.etcd-tls", "ca")
        context = ssl.create_default_context() if ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._load_context(context, "cluster.etcd-tls")
        return context

    def _load_chain(self, context: ssl.SSLContext, table: str) -> None:
        certificate, key = self.path(table, "certificate"), self.path(table, "key")
        assert certificate is not None, "the configuration was checked"

        def refuse() -> str:  # without it OpenSSL asks the terminal
            raise _Fault(table, "key", f"{key or certificate!r} needs a passphrase, which a service cannot type")

        self._try(table, "key", key or certificate, lambda: None)
        self._try(table, "certificate", certificate, lambda: context.load_cert_chain(certificate, key, password=refuse))

    def _text(self, table: str, key: str, path: str) -> str:
        """The text of a file. Raises: _Fault: it may have gone since it was loaded."""
        texts: list[str] = []
        self._try(table, key, path, lambda: texts.append(Path(path).read_text("latin-1")))
        return texts[0]

    def _try(self, table: str, key: str, path: str, load: Callable[[], None]) -> None:
        try:
            with open(path, "rb", opener=open_input):
                pass  # OpenSSL would wait for a named pipe, or read a device
            load()
        except ssl.SSLError as error:
            raise _Fault(table, key, f"{path!r} cannot be used: {reason_of(error)}") from None
        except OSError as error:
            raise _Fault(table, key, f"{path!r} cannot be read: {error.strerror}") from None
