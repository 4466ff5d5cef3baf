"""The modules that serve commands, by name: none is imported before the first command, or by `leveret ctl`.

Most brokers are never sent a command, and these modules take a tenth of the time of a start.
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
#: These and what they import, in such an order that each takes a few milliseconds at most.
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
