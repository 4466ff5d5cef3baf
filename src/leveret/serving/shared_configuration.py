"""Differences between the configurations of a cluster's nodes, found by digests that the nodes exchange over links.

A part is a key or a named object, such as a queue or a user, and has a digest. The fingerprint is one digest of all
parts: nodes exchange the digests of parts only if their fingerprints differ. Both are keyed with the cluster's secret,
because parts hold passwords.
"""

import hmac
import json
import logging
from collections.abc import Iterable, Mapping

from ..cluster.agreement.view import fingerprints_differ
from ..settings import Configuration
from ..settings.printable import and_more
from ..settings.shared_parts import shared_parts
from .tls_files import TlsFiles

logger = logging.getLogger("leveret.cluster")

#: Maximum parts of one kind that have a digest each. A kind with more parts has one digest for all of them.
PARTS_MAX = 60
#: Maximum characters of a part's name.
NAME_MAX = 80
#: Maximum octets of all names and digests as JSON, in which a character takes up to six. Beyond that, the largest kinds
#: have one digest each.
OCTETS_MAX = 24 * 1024
#: Maximum parts that a warning names, and maximum parts that are read from another node.
NAMED_MAX, READ_MAX = 8, 2000
_DIGEST_SIZE, _FINGERPRINT_SIZE = 8, 16
#: Version of fingerprints. Change it in a release that divides the same files into other parts, or changes texts.
_VERSION = "1"
_CLIENT_CA = "[tls] client-ca (its content)"


class SharedConfiguration:
    """The parts of this node's configuration that should be equal on all nodes. `secret`: the cluster's."""

    def __init__(self, secret: bytes, configuration: Configuration, tls: TlsFiles) -> None:
        self._secret = secret
        self._warned: dict[str, str] = {}  # node -> the two fingerprints of the last warning
        self.read(configuration, tls)

    def read(self, configuration: Configuration, tls: TlsFiles) -> None:
        """Compute the digests of a configuration."""
        parts = shared_parts(configuration)
        if tls.authorities is not None:
            parts[_CLIENT_CA] = tls.authorities.text
        digests = {name: self._digest(f"{name}\0{text}", _DIGEST_SIZE) for name, text in parts.items()}
        self.parts = self._within_limits(digests)
        self.fingerprint = f"{_VERSION}-{self._digest(repr(sorted(digests.items())), _FINGERPRINT_SIZE)}"

    def _digest(self, text: str, size: int) -> str:
        return hmac.digest(self._secret, text.encode("utf-8", "surrogatepass"), "sha256").hex()[:size]

    def _within_limits(self, digests: Mapping[str, str]) -> dict[str, str]:
        """The digests, with one for all parts of a large kind, because each beacon carries them."""
        kinds: dict[str, dict[str, str]] = {}
        for name, digest in digests.items():
            kinds.setdefault(_kind_of(name), {})[name] = digest
        short = {kind: self._with_short_names(of_kind) for kind, of_kind in kinds.items()}
        octets = {kind: len(json.dumps(of_kind)) for kind, of_kind in short.items()}
        for kind in sorted(kinds, key=lambda kind: -octets[kind]):
            if len(kinds[kind]) > PARTS_MAX or sum(octets.values()) > OCTETS_MAX:
                all_of_kind = self._digest(repr(sorted(kinds[kind].items())), _DIGEST_SIZE)
                short[kind] = {f"{kind} (all)": all_of_kind}
                octets[kind] = len(json.dumps(short[kind]))
        return {name: digest for of_kind in short.values() for name, digest in of_kind.items()}

    def _with_short_names(self, digests: Mapping[str, str]) -> dict[str, str]:
        """The digests under their names, of which long ones are cut."""
        return {
            name if len(name) <= NAME_MAX else f"{name[:NAME_MAX]}... {self._digest(name, _DIGEST_SIZE)}": digest
            for name, digest in digests.items()
        }

    def for_status(self, others: Iterable[Mapping[str, object]]) -> dict[str, object]:
        """The digests for this node's status. `others`: the last digests of the linked nodes."""
        differs = any(self.differs_from(one) for one in others)
        return {"fingerprint": self.fingerprint, **({"parts": self.parts} if differs else {})}

    def differs_from(self, received: Mapping[str, object]) -> bool:
        """Whether a node with these digests has another configuration; False if it sent none."""
        fingerprint = received.get("fingerprint")
        return isinstance(fingerprint, str) and fingerprints_differ(self.fingerprint, fingerprint)

    def differences(self, received: Mapping[str, object], own: str, other: str) -> list[str]:
        """The names of the parts that differ from another node's, sorted. `own`, `other`: names of the two nodes."""
        if not self.differs_from(received):
            return []
        theirs = parts_in(received)
        if theirs is None:
            return ["parts that it has not sent yet"]
        found = []
        for name in sorted({*self.parts, *theirs}, key=lambda name: (not name.startswith("["), name)):
            if name not in theirs or name not in self.parts:
                found.append(f"{name} (at {own if name in self.parts else other} alone)")
            elif self.parts[name] != theirs[name]:
                found.append(name)
        return found or ["parts that are not named, because they are too many, or their names too long"]

    def warn(self, received: Mapping[str, object], own: str, other: str) -> None:
        """Log the differences from another node, once for each pair of configurations."""
        fingerprint = str(received.get("fingerprint"))
        if not self.differs_from(received):
            if self._warned.pop(other, None) is not None:
                logger.info("the configuration of node %s no longer differs", other)
        elif parts_in(received) is not None and self._warned.get(other) != fingerprint + self.fingerprint:
            self._warned[other] = fingerprint + self.fingerprint
            found = self.differences(received, own, other)
            logger.warning(
                "the configuration of node %s differs from that of node %s: %s",
                other,
                own,
                and_more(found[:NAMED_MAX], len(found)),
            )


def parts_in(received: Mapping[str, object]) -> dict[str, str] | None:
    """The digests of parts that another node sent; None: it sent none, or they are malformed."""
    parts = received.get("parts")
    if not isinstance(parts, dict) or len(parts) > READ_MAX:
        return None
    return {str(name)[: 2 * NAME_MAX]: str(digest) for name, digest in parts.items()}


def _kind_of(name: str) -> str:
    """The kind of a part: the words before its name (`queue`, `operator policy`), or the table of a key."""
    return name.partition("]")[0] + "]" if name.startswith("[") else name.partition(" '")[0].partition(' "')[0]
