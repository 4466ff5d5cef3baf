"""The files that `[tls]` names, and the SSL context made from them, with faults and warnings.

A path is relative to the directory of the configuration file that sets it, so that `check` and `serve` agree in any
working directory.
"""

import os
import re
import ssl
from dataclasses import field
from pathlib import Path

from ..configured.input_files import open_input
from ..settings import Configuration
from ..settings.frozen import frozen
from .file_watch import FileMark, marks_of

_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_MINIMUM = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
#: Ciphers of TLS 1.2 with forward secrecy and authenticated encryption. TLS 1.3 has only such ciphers.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

#: A certificate in a PEM file, in each form that OpenSSL accepts; its group: the text in base64.
CERTIFICATE = re.compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.*?)-----END [A-Z0-9 ]*CERTIFICATE-----", re.DOTALL
)
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_FILE_SIZE_MAX = 1024 * 1024  # a disk image named by mistake is not read to its end
#: More rounds than a handshake in memory takes.
_FLIGHTS = 4


class _Fault(Exception):
    """A fault in a file. Its arguments are the key and the text."""


@frozen
class TlsFiles:
    """The result of `[tls]`. `context` None: no TLS. Faults and warnings are lines, FILE:LINE: KEY: text.

    `chain`, `authorities`: our certificates, and the authorities for clients' certificates.
    """

    context: ssl.SSLContext | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    marks: dict[str, FileMark | None] = field(default_factory=dict)  # of the files, taken before reading
    chain: "CertificateFile | None" = None
    authorities: "CertificateFile | None" = None


@frozen
class CertificateFile:
    """A file in PEM form as it was read: later changes have no effect before a reload."""

    path: str
    text: str


NO_TLS = TlsFiles()


def load_tls(configuration: Configuration) -> TlsFiles:
    """Read the files of `[tls]`. Never raises: errors are in `faults`."""
    table = _TlsTable(configuration)
    marks = marks_of(path for key in ("certificate", "key", "client-ca") if (path := table.path(key)))
    warnings: list[str] = []
    read: dict[str, CertificateFile] = {}
    try:
        context = _context(table, warnings, read)
    except _Fault as fault:
        key, problem = fault.args
        return TlsFiles(None, (f"{table.origin(key)}: {key}: {problem}",), (), marks)
    return TlsFiles(context, (), tuple(warnings), marks, read.get("certificate"), read.get("client-ca"))


def configured_path(configuration: Configuration, table: str, key: str) -> str | None:
    """The path of the file that a key names; None: the key is unset."""
    value, origin = configuration.value(table, key), configuration.origins.get((table, key))
    if value is None or origin is None:
        return None
    return str(Path(origin.file).parent / os.path.expanduser(value))


class _TlsTable:
    """`[tls]` of a configuration, with the positions of its keys."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.keys = configuration.tls

    def path(self, key: str) -> str | None:
        return configured_path(self._configuration, "tls", key)

    def origin(self, key: str) -> str:
        """FILE:LINE of a key; if it is not set, of `certificate`, or of any key of the configuration."""
        origins = self._configuration.origins
        origin = origins.get(("tls", key)) or origins.get(("tls", "certificate")) or next(iter(origins.values()), None)
        return str(origin) if origin is not None else "tls"

    def offers(self, mechanism: str) -> bool:
        return mechanism in self._configuration.broker.mechanisms


def _context(table: _TlsTable, warnings: list[str], read: dict[str, CertificateFile]) -> ssl.SSLContext | None:
    """`read`: receives the files of certificates, by key. Raises: _Fault."""
    certificate, key, client_ca = table.path("certificate"), table.path("key"), table.path("client-ca")
    verify = table.keys.verify
    if certificate is None:
        for other, is_set in (("key", key), ("client-ca", client_ca), ("verify", verify != "none")):
            if is_set:
                raise _Fault(other, "needs a certificate: [tls] certificate is missing")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _MINIMUM[table.keys.minimum]
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # No resumption: a resumed connection could use a client certificate that a reload has made invalid, and AMQP
    # clients, which stay for hours, hardly ever resume.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    chain = _load_chain(context, certificate, key)
    read["certificate"] = CertificateFile(certificate, chain)
    where = table.origin("certificate")
    if (problem := _problem(context, chain)) is not None:
        warnings.append(f"{where}: certificate: {problem}")
    if _is_open_to_all(key or certificate):
        warnings.append(f"{table.origin('key')}: key: all users can read it (chmod 600)")
    if verify != "none":
        if client_ca is None:
            raise _Fault("verify", f"{verify!r} needs client-ca: the authorities of clients' certificates")
        read["client-ca"] = CertificateFile(client_ca, _read(client_ca, "client-ca", CERTIFICATE, "certificate"))
        try:
            context.load_verify_locations(cafile=client_ca)
        except ssl.SSLError as error:
            raise _Fault("client-ca", f"{client_ca!r} cannot be used: {reason_of(error)}") from None
    elif client_ca is not None:
        warnings.append(f'{table.origin("client-ca")}: client-ca: without effect while verify is "none"')
    if verify == "none" and table.offers("EXTERNAL"):
        warnings.append(f'{where}: verify: is "none", so nobody can log in by EXTERNAL')
    context.verify_mode = _VERIFY[verify]
    return context


def _load_chain(context: ssl.SSLContext, certificate: str, key: str | None) -> str:
    """Load certificate and key into the context. Returns: the certificates' text. Raises: _Fault."""
    text = _read(certificate, "certificate", CERTIFICATE, "certificate")
    if key is None and not _KEY.search(text):
        raise _Fault("certificate", f"{certificate!r} holds no private key, and [tls] key is missing")
    _read(key or certificate, "key", _KEY, "private key")

    def refuse() -> str:
        raise _Fault("key", f"{key or certificate!r} needs a passphrase, which a service cannot type")

    try:
        context.load_cert_chain(certificate, key, password=refuse)  # without it OpenSSL asks the terminal
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise _Fault("key", "does not belong to the certificate") from None
        raise _Fault("certificate", f"certificate and key cannot be used: {reason_of(error)}") from None
    except OSError as error:
        raise _Fault("certificate", f"certificate and key cannot be read: {error.strerror}") from None
    return text


def _read(path: str, key: str, needed: re.Pattern[str], what: str) -> str:
    """Read a file that must contain `needed`. Raises: _Fault with the reason; OpenSSL only says "PEM lib"."""
    try:
        with open(path, encoding="latin-1", opener=open_input) as file:
            text = file.read(_FILE_SIZE_MAX)
    except OSError as error:
        raise _Fault(key, f"{path!r} cannot be read: {error.strerror}") from None
    if not needed.search(text):
        raise _Fault(key, f"{path!r} holds no {what} in PEM form")
    return text


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words."""
    return (error.reason or str(error)).lower().replace("_", " ")


def _is_open_to_all(path: str) -> bool:
    try:
        return os.name == "posix" and bool(os.stat(path).st_mode & 0o004)
    except OSError:
        return False


def _problem(context: ssl.SSLContext, chain: str) -> str | None:
    """The reason why all clients will refuse our certificate: it has expired, is not yet valid, or not for servers.

    The standard library decodes only verified certificates, so a client in memory that trusts exactly this certificate
    shakes hands with us.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_us, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client.load_verify_locations(cadata=next(CERTIFICATE.finditer(chain))[0])
        sides = (
            client.wrap_bio(to_client, to_us, server_side=False),
            context.wrap_bio(to_us, to_client, server_side=True),
        )
        for side in sides * _FLIGHTS:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    except ssl.SSLCertVerificationError as error:
        return str(error.verify_message)
    except ssl.SSLError as error:
        return f"a client cannot shake hands with it: {reason_of(error)}"
    return None
