"""Names as clients and operators declare them. Source: behaviour page 0.7."""

#: Carriage return and line feed.
_REMOVED = {13: None, 10: None}


def declared_name(name: str) -> str:
    """The name of a queue or exchange without line ends, which RabbitMQ removes where names are declared and bound.

    In publish, consume, get and purge they stay, so that a name with them is not found.
    """
    return name.translate(_REMOVED)
