"""The modules of commands, by name: they are imported for the first command, and not by `leveret ctl`.

Most brokers never get a command, and these modules take a tenth of the time of a start.
"""

#: Families of commands, in the order in which help lists them.
FAMILIES = (
    "broker",
    "drafts",
    "leases",
    "moving",
    "topology",
    "messages",
    "browsing",
    "routing",
    "events",
    "connections",
    "access",
    "policies",
    "parameters",
    "definitions",
)
#: These modules and their imports, in an order in which each takes a few milliseconds at most.
PARTS = (
    "command",
    "..expressions.patterns.pattern_syntax",
    "..settings.explain",
    "..settings.difference",
    "running",
    "live_difference",
    "definitions_reader",
    *FAMILIES,
)
