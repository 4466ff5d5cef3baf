"""Which table of a TOML file has a key: a key that stands in another table is answered with the right one."""

from ..declared.declarations import LEASED_ATTRIBUTES, QUEUE_ATTRIBUTES
from ..rows.address_settings import BY_KEY
from ..rows.broker_keys import KEYS


def home_of(key: str) -> str:
    """The table that has this key, as a file writes it, for example "[[address-setting]]"; "" if none has it."""
    if key in BY_KEY:
        return "[[address-setting]]"
    if key in QUEUE_ATTRIBUTES or key in LEASED_ATTRIBUTES:
        return "[[queue]] and [[address.queue]]"
    return " and ".join(f"[{table}]" for table, rows in KEYS.items() if key in rows)
