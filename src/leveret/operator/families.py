"""The modules of commands, by name: they are imported for the first command, and not by `leveret ctl`.

Most brokers never get a command, and these modules take a tenth of the time of a start.
"""

from importlib.util import find_spec

#: Families that a package brings; without it they are missing.
OPTIONAL = ("leases",)
_ALL = (
    "broker", "cluster", "drafts", "leases", "moving", "topology", "messages", "browsing", "search", "scheduled",
    "routing", "events", "connections", "access", "policies", "parameters", "definitions", "previews", "history",
)  # fmt: skip
#: Families of commands, in the order in which help lists them.
FAMILIES = tuple(one for one in _ALL if one not in OPTIONAL or find_spec(f"{__package__}.{one}") is not None)
#: These modules and their imports, in an order in which each takes a few milliseconds at most.
PARTS = (
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
