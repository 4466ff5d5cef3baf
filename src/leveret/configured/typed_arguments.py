"""Conversion of queue arguments from plain values of a configuration to typed fields of AMQP."""

from collections.abc import Mapping

from ..engine import Field, FieldTable
from ..settings.addresses.queue_arguments import plain_values


def fields_of(arguments: Mapping[str, object]) -> FieldTable:
    """The fields that a client would send: longstr, bool, double, and signed integers of 32 or 64 bits.

    Args: arguments: from a configuration, whose loader has checked the values.
    """
    return {key: field_of(value) for key, value in plain_values(arguments).items()}


def field_of(value: object) -> Field:
    """The field for a bool, int, float or str."""
    if isinstance(value, bool):
        return Field("t", value)
    if isinstance(value, int):
        return Field("I" if -(2**31) <= value < 2**31 else "l", value)
    if isinstance(value, float):
        return Field("d", value)
    assert isinstance(value, str)
    return Field("S", value.encode())
