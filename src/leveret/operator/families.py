"""The modules with the commands. A broker imports them when it gets its first command.

Most brokers never get one, and these modules would take a tenth of the time of a start.
"""

from importlib.util import find_spec

#: Families that come with a package, and are missing without it.
OPTIONAL = ("leases",)
_ALL = (
    "broker", "backlog", "cluster", "drafts", "leases", "moving", "topology", "messages", "browsing", "search",
    "scheduled", "routing", "events", "connections", "access", "policies", "parameters", "definitions", "previews",
    "history",
)  # fmt: skip
#: Families of commands, in the order in which help lists them.
FAMILIES = tuple(one for one in _ALL if one not in OPTIONAL or find_spec(f"{__package__}.{one}") is not None)
#: The modules of commands and modules that these import. In this order each import takes a few milliseconds at most.
IMPORT_STEPS = (
    "command",
    "..expressions.patterns.pattern_syntax",
    "..settings.explain",
    "..settings.difference",
    "running",
    "live_difference",
    "definitions_reader",
    "definitions_difference",
    "versions",
    *FAMILIES,
)
