"""Sender-selected distribution: the headers CC and BCC name further routing keys for the same exchange.

Source: behaviour page 2.10, 3.9.
"""

from ..errors import InvalidCopies
from .content import COPIES
from .field_table import FieldTable


def copies_of(headers: FieldTable) -> tuple[str, ...]:
    """The routing keys in CC and BCC; entries that are not strings are ignored. Raises: InvalidCopies."""
    keys: list[str] = []
    for header in COPIES:
        field = headers.get(header)
        if field is None:
            continue
        if not isinstance(field.value, list):
            raise InvalidCopies(header=header, type=field.type_name)
        keys += [item.text for item in field.value if item.tag == "S"]
    return tuple(keys)
