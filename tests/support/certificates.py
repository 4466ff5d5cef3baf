"""Certificates made at test time: an authority that issues them, and the files and contexts that tests need."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

AN_HOUR = timedelta(hours=1)


class Authority:
    """Issues certificates into a directory; every test has one of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ca = trustme.CA()
        self.file = directory / f"ca{id(self)}.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(
        self, name: str = "server", *identities: str, common_name: str | None = None, age_h: int | None = None
    ) -> Path:
        """`name`.pem and `name`.key; replaced by rename, as tools do. `age_h`: right for an hour, that long ago."""
        before = None if age_h is None else datetime.now(UTC) - age_h * AN_HOUR
        leaf = self._ca.issue_cert(
            *(identities or ("localhost", "127.0.0.1")),
            common_name=common_name,
            not_before=before,
            not_after=None if before is None else before + AN_HOUR,
        )
        for content, ending in (
            (b"".join(pem.bytes() for pem in leaf.cert_chain_pems), "pem"),
            (leaf.private_key_pem.bytes(), "key"),
        ):
            fresh = self.directory / f"{name}.{ending}.new"
            fresh.write_bytes(content)
            fresh.chmod(0o600)
            fresh.replace(self.directory / f"{name}.{ending}")
        return self.directory / f"{name}.pem"

    def trusting(
        self, client_certificate: Path | None = None, *, newest: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """What a client of this authority connects with."""
        context = ssl.create_default_context(cafile=str(self.file))
        if client_certificate is not None:
            context.load_cert_chain(client_certificate, client_certificate.with_suffix(".key"))
        if newest is not None:
            context.maximum_version = newest
        return context


def configuration(**others: str) -> str:
    """A configuration with `[tls]` on server.pem and server.key."""
    values = {"certificate": "server.pem", "key": "server.key", **others}
    return "[tls]\n" + "".join(f"{name.replace('_', '-')} = {value!r}\n" for name, value in values.items())
