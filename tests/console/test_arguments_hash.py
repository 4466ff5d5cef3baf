"""A script or Terraform that kept a binding's `properties_key` at RabbitMQ finds the binding here by the same key.

The hashes are what `erlang:phash2(Table, 1 bsl 32)` of Erlang 25.2 answers.
"""

import pytest

from leveret.console.views.arguments_hash import hash_of_arguments
from leveret.engine import Field, FieldTable

_LONG_KEY, _LONG_TEXT = "abcdefghijklmnopqrst", b"0123456789ab0123456789abc"
_BORDERS = {"a": 2**27 - 1, "b": 2**27, "c": -(2**27), "d": -(2**27) - 1}


@pytest.mark.parametrize(
    ("arguments", "hashed"),
    [
        ({}, 3468870702),
        ({"x-match": Field("S", b"all")}, 3739797118),
        ({"x-match": Field("S", b"any"), "n": Field("l", 5)}, 433612340),
        ({"a": Field("t", True)}, 1802062121),
        ({"a": Field("d", 1.5)}, 3398307074),
        ({"a": Field("d", -0.0)}, 1914965849),
        ({"a": Field("f", 0.1)}, 617148424),
        ({"a": Field("V", None)}, 972185960),
        ({"a": Field("A", [Field("S", b"x"), Field("l", 1)])}, 1793198587),
        ({"a": Field("A", [Field("B", 7), Field("B", 8)])}, 2881925722),
        ({"a": Field("A", [])}, 2387373417),
        ({"a": Field("F", {"b": Field("l", -7)})}, 2854026503),
        ({"t": Field("F", {"z": Field("l", 1), "b": Field("t", False)})}, 4191462400),
        ({"a": Field("F", {})}, 605878053),
        ({"a": Field("T", 1700000000)}, 3135102134),
        ({"a": Field("T", 2**64 - 1)}, 3207428295),
        ({"a": Field("l", 5000000000)}, 2342884039),
        ({"a": Field("l", -5000000000)}, 3283292729),
        ({"a": Field("l", -(2**63))}, 3568775212),
        ({name: Field("l", value) for name, value in _BORDERS.items()}, 2729862667),
        ({"a": Field("D", (2, 314))}, 2016928084),
        ({"a": Field("S", b"")}, 1715640515),
        ({"a": Field("x", b"\1\2\3")}, 179728555),
        ({_LONG_KEY: Field("S", _LONG_TEXT)}, 788400635),
        ({"\u00e9": Field("I", 1)}, 4230088278),
        ({"\udcff": Field("I", 1)}, 2599063003),
    ],
)
def test_hashes_are_erlangs(arguments: FieldTable, hashed: int) -> None:
    """Every type of a field, keys in any order, integers at the borders of Erlang's small ones."""
    assert hash_of_arguments(arguments) == hashed
