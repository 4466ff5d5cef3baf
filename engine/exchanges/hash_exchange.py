"""The exchange type of RabbitMQ's consistent-hash plugin: messages with equal keys go to the same destination.

The routing key of a binding is its weight. A new destination takes keys from the others, which exchange none among
themselves: jump consistent hashing (Lamping and Veach, 2014), as in the plugin. Each destination has as many buckets as
its weight.
Source: behaviour page 3.9.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate

from ..errors import HashesContradict, InvalidWeight, UnsupportedHashProperty
from ..messages.field_table import FieldTable, text_of
from .exchange import EXCHANGE_TYPES, Binding, Destination, Exchange
from .routed import Routed

HASH_HEADER, HASH_PROPERTY = "hash-header", "hash-property"
PROPERTIES = ("correlation_id", "message_id", "timestamp")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class HashExchange(Exchange):
    """Hashes the routing keys, or the header or property that its arguments name."""

    type = "x-consistent-hash"
    __slots__ = ("_bindings", "_ends", "_header", "_property", "_targets")

    def _prepare(self) -> None:
        self._header = text_of(self.arguments, HASH_HEADER)
        self._property = text_of(self.arguments, HASH_PROPERTY)
        if self._header is not None and self._property is not None:
            raise HashesContradict
        if self._property is not None and self._property not in PROPERTIES:
            raise UnsupportedHashProperty(property=self._property)
        self._bindings: dict[Binding, None] = {}
        self._targets: list[Destination] | None = None  # None: bindings have changed
        self._ends: list[int] = []  # the bucket after the last one of each target

    @property
    def decides_each(self) -> bool:  # type: ignore[override]
        """Whether it hashes a header or property, so that routes cannot be cached by routing key."""
        return self._header is not None or self._property is not None

    def check(self, routing_key: str, arguments: FieldTable) -> None:
        """Check the weight, an integer from 1. Raises: InvalidWeight."""
        is_integer = _INTEGER.fullmatch(routing_key) is not None
        if not is_integer or int(routing_key) < 1:
            raise InvalidWeight(value=routing_key.encode(), is_integer=is_integer)

    def match(self, message: Routed) -> Sequence[Destination]:
        if self._targets is None:
            message.cost += len(self._bindings) // 2
            self._assign_buckets()
        if not self._targets:
            return ()
        digest = blake2b(self._hashed(message), digest_size=8).digest()
        bucket = jump(int.from_bytes(digest, "big"), self._ends[-1])
        return (self._targets[bisect_right(self._ends, bucket)],)

    def _hashed(self, message: Routed) -> bytes:
        """The octets to hash; equal for all messages without the header or property."""
        if self._header is not None:
            field = message.headers.get(self._header)
            return b"" if field is None else repr(field.comparable()).encode()
        if self._property is not None:
            return repr(message.properties.get(self._property)).encode()
        return "\0".join(message.keys).encode()

    def _assign_buckets(self) -> None:
        """Assign the buckets in the order of bindings. Only the first binding of each destination counts."""
        weights: dict[Destination, int] = {}
        for binding in self._bindings:
            weights.setdefault(binding.destination, int(binding.routing_key))
        self._targets = list(weights)
        self._ends = list(accumulate(weights.values()))

    def _index(self, binding: Binding) -> None:
        self._bindings[binding] = None
        self._targets = None

    def _unindex(self, binding: Binding) -> None:
        del self._bindings[binding]
        self._targets = None


EXCHANGE_TYPES[HashExchange.type] = HashExchange


def jump(key: int, buckets: int) -> int:
    """The bucket, from 0 to `buckets` - 1, of a key of 64 bits. O(log buckets)."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        following = int((bucket + 1) * (2**31 / ((key >> 33) + 1)))
    return bucket
