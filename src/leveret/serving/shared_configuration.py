"""How the configurations of a cluster's nodes differ: each node tells the others digests of its parts over the link.

Digests are keyed with the cluster's secret: parts hold passwords. Whole lists of parts travel only between nodes whose
fingerprints differ.
"""

import hmac
import json
import logging
from collections.abc import Iterable, Mapping, Sequence

from ..cluster.agreement.view import fingerprints_differ
from ..settings import Configuration
from ..settings.shared import shared_parts
from .tls_files import TlsFiles

logger = logging.getLogger("leveret.cluster")

#: Parts of one kind that are told one by one; of more one digest. Octets of a part's name at most: longer ones are cut.
PARTS_MAX, NAME_MAX = 60, 80
#: Octets of all parts as JSON at most, where a character may take six: of the largest kinds one digest is told.
OCTETS_MAX = 24 * 1024
#: Parts that are named in a warning, and of another node's list that are read.
NAMED_MAX, READ_MAX = 8, 2000
_DIGEST_SIZE, _FINGERPRINT_SIZE = 8, 16
#: Version of fingerprints: changes whenever the same configuration gets other parts, or other texts, than before.
_FORM = "1"
_CLIENT_CA = "[tls] client-ca (its content)"


class SharedConfiguration:
    """The parts of this node's configuration that are to be alike on all nodes. `secret`: of the cluster."""

    def __init__(self, secret: bytes, configuration: Configuration, tls: TlsFiles) -> None:
        self._secret = secret
        self._told: dict[str, str] = {}  # node -> fingerprint of which its log has a warning
        self.read(configuration, tls)

    def read(self, configuration: Configuration, tls: TlsFiles) -> None:
        """Take another configuration, after a reload."""
        parts = shared_parts(configuration)
        if tls.authorities is not None:
            parts[_CLIENT_CA] = tls.authorities.text
        digests = {name: self._digest(f"{name}\0{text}", _DIGEST_SIZE) for name, text in parts.items()}
        self.parts = self._short(digests)
        self.fingerprint = f"{_FORM}-{self._digest(repr(sorted(digests.items())), _FINGERPRINT_SIZE)}"

    def _digest(self, text: str, size: int) -> str:
        return hmac.digest(self._secret, text.encode("utf-8", "surrogatepass"), "sha256").hex()[:size]

    def _short(self, digests: Mapping[str, str]) -> dict[str, str]:
        """The digests, short: one for all parts of a large kind, because they pass over the link with each beacon."""
        kinds: dict[str, dict[str, str]] = {}
        for name, digest in digests.items():
            kinds.setdefault(_kind_of(name), {})[name] = digest
        short = {kind: self._cut(of_kind) for kind, of_kind in kinds.items()}
        octets = {kind: len(json.dumps(of_kind)) for kind, of_kind in short.items()}
        for kind in sorted(kinds, key=lambda kind: -octets[kind]):
            if len(kinds[kind]) > PARTS_MAX or sum(octets.values()) > OCTETS_MAX:
                all_of_kind = self._digest(repr(sorted(kinds[kind].items())), _DIGEST_SIZE)
                short[kind] = {f"{kind} (all)": all_of_kind}
                octets[kind] = len(json.dumps(short[kind]))
        return {name: digest for of_kind in short.values() for name, digest in of_kind.items()}

    def _cut(self, digests: Mapping[str, str]) -> dict[str, str]:
        """The digests with short names."""
        return {
            name if len(name) <= NAME_MAX else f"{name[:NAME_MAX]}... {self._digest(name, _DIGEST_SIZE)}": digest
            for name, digest in digests.items()
        }

    def told(self, others: Iterable[Mapping[str, object]]) -> dict[str, object]:
        """For the status of this node. `others`: what the nodes at the other ends of its links told last."""
        differs = any(self.differs_from(one) for one in others)
        return {"fingerprint": self.fingerprint, **({"parts": self.parts} if differs else {})}

    def differs_from(self, said: Mapping[str, object]) -> bool:
        """Whether another node, which told this, has another configuration; False: it told none."""
        fingerprint = said.get("fingerprint")
        return isinstance(fingerprint, str) and fingerprints_differ(self.fingerprint, fingerprint)

    def differences(self, said: Mapping[str, object], own: str, other: str) -> list[str]:
        """What differs from another node's: names of parts, sorted. `own`, `other`: names of the two nodes."""
        if not self.differs_from(said):
            return []
        theirs = parts_in(said)
        if theirs is None:
            return ["parts that it has not told yet"]
        found = []
        for name in sorted({*self.parts, *theirs}, key=lambda name: (not name.startswith("["), name)):
            if self.parts.get(name) != theirs.get(name):
                where = (
                    ""
                    if name in theirs and name in self.parts
                    else f" (at {own if name in self.parts else other} alone)"
                )
                found.append(f"{name}{where}")
        return found or ["parts whose names are too long, or too many"]

    def warn(self, said: Mapping[str, object], own: str, other: str) -> None:
        """Log what differs from another node's, once for each configuration of it."""
        fingerprint = str(said.get("fingerprint"))
        if not self.differs_from(said):
            if self._told.pop(other, None) is not None:
                logger.info("the configuration of node %s does not differ any more", other)
        elif parts_in(said) is not None and self._told.get(other) != fingerprint + self.fingerprint:
            self._told[other] = fingerprint + self.fingerprint
            found = self.differences(said, own, other)
            logger.warning("the configuration of node %s differs from that of node %s: %s", other, own, listed(found))


def parts_in(said: Mapping[str, object]) -> dict[str, str] | None:
    """The parts that another node told; None: it told none, or what makes no sense."""
    parts = said.get("parts")
    if not isinstance(parts, dict) or len(parts) > READ_MAX:
        return None
    return {str(name)[: 2 * NAME_MAX]: str(digest) for name, digest in parts.items()}


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _kind_of(name: str) -> str:
    """`queue`, `user`, `operator policy`: the words before the name; of a key its table."""
    return name.partition("]")[0] + "]" if name.startswith("[") else name.partition(" '")[0].partition(' "')[0]
