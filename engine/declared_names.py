"""Names as clients and operators declare them. Source: behaviour page 0.7."""

#: Maximum length of a name in AMQP, in octets.
NAME_OCTETS_MAX = 255
#: Carriage return and line feed.
_REMOVED = {13: None, 10: None}


def declared_name(name: str) -> str:
    """The name of a queue or exchange without line ends, which RabbitMQ removes where names are declared and bound.

    In publish, consume, get and purge they stay, so that a name with them is not found.
    """
    return name.translate(_REMOVED)
