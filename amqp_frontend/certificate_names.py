"""Which user a verified client certificate names (SASL EXTERNAL).

Source: RabbitMQ's `ssl_cert_login_from`, and its implementation; RFC 4514 for distinguished names. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

#: Names of attributes as OpenSSL spells them out -> as they stand in a distinguished name.
_SHORT = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET",
    "userId": "UID",
}

#: Values of `ssl-cert-login-san-type` -> kinds of alternative names as OpenSSL calls them.
_SAN_KINDS = {"dns": "DNS", "email": "email", "uri": "URI", "ip": "IP Address"}

#: What `ssl.SSLSocket.getpeercert()` gives.
Certificate = Mapping[str, Any]


def user_name(certificate: Certificate, login_from: str, san_type: str = "dns", san_index: int = 0) -> str | None:
    """The name of the user, None when the certificate has no such name.

    Args: login_from: "common-name" (several are joined by commas, as RabbitMQ does), "distinguished-name",
        "subject-alternative-name": the one with `san_index`, from 0, of those of `san_type`.
    """
    if login_from == "distinguished-name":
        return distinguished_name(certificate) or None
    if login_from == "subject-alternative-name":
        kind = _SAN_KINDS[san_type]
        names = [value for found, value in certificate.get("subjectAltName", ()) if found == kind]
        return names[san_index] if san_index < len(names) else None
    common_names = [value for name, value in _attributes(certificate) if name == "commonName"]
    return ",".join(common_names) or None


def distinguished_name(certificate: Certificate) -> str:
    """The subject as RFC 4514 writes it: the most specific part first."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts))


def _attributes(certificate: Certificate) -> Iterator[tuple[str, str]]:
    for part in certificate.get("subject", ()):
        yield from part


def _escaped(value: str) -> str:
    """As RabbitMQ does: special characters with a backslash, what is not printable ASCII as \\HH of its UTF-8."""
    octets = value.encode("utf-8", "surrogateescape")
    written = "".join(
        f"\\{octet:02X}"
        if octet < 32 or octet >= 126
        else ("\\" + chr(octet) if chr(octet) in '"+,;<>\\' else chr(octet))
        for octet in octets
    )
    if written.endswith(" "):
        written = written[:-1] + "\\ "
    return "\\" + written if written[:1] in (" ", "#") else written
