"""Octets that JSON has as base64. Source: management page 6, 8.4."""

import base64

#: Ignored, as by RabbitMQ, because commands that write base64 wrap their lines. Python's decoder refuses them.
_SPACE = dict.fromkeys(map(ord, " \t\r\n"))


def octets_of_base64(text: str) -> bytes:
    """The octets. Spaces and line ends in the text are ignored. Raises: ValueError."""
    return base64.b64decode(text.translate(_SPACE), validate=True)
