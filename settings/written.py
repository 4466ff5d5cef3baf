"""Values as people write them: "30m" rather than 1800000, "256MiB" rather than 268435456."""

from .declared.configuration import KEYS
from .flow_control import size_or_percent
from .values import BYTES, BYTES_NOT_ZERO, BYTES_OR_OFF, DELAY, DELAY_OR_OFF, PAGE_SIZE, PERIOD, size_bytes

DURATIONS = {DELAY.read, DELAY_OR_OFF.read, PERIOD.read}
SIZES = {
    size_bytes,
    size_or_percent,
    BYTES.read,
    BYTES_OR_OFF.read,
    BYTES_NOT_ZERO.read,
    PAGE_SIZE.read,
    KEYS["broker"]["global-max-size"].read,
}
SIZE_UNITS = {"GiB": 1024**3, "MiB": 1024**2, "KiB": 1024}
DURATION_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def written(value: object, read: object) -> object:
    """A value of what `read` reads, in the largest unit that it is whole in. 0 and -1 stay as they are."""
    units = DURATION_UNITS if read in DURATIONS else SIZE_UNITS if read in SIZES else {}
    if isinstance(value, int) and value > 0:
        return next((f"{value // octets}{unit}" for unit, octets in units.items() if value % octets == 0), value)
    return value
