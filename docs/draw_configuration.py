"""Draw docs/configuration.md from the key tables: `python docs/draw_configuration.py > docs/configuration.md`."""

import json

from leveret.settings.addresses.fields import (
    BYTES,
    BYTES_NOT_ZERO,
    BYTES_OR_OFF,
    DELAY,
    DELAY_OR_OFF,
    FIELDS,
    PAGE_SIZE,
    PERIOD,
    Field,
)
from leveret.settings.addresses.queue_arguments import LIVE_ARGUMENTS
from leveret.settings.declared.access_declarations import USER_TAGS
from leveret.settings.declared.configuration import BY_PROFILE, KEYS, Key
from leveret.settings.declared.declarations import QUEUE_ATTRIBUTES
from leveret.settings.files.toml_users import ALGORITHMS
from leveret.settings.flow_control import size_or_percent
from leveret.settings.help import ATTRIBUTE_HELP, FIELD_HELP, KEY_HELP
from leveret.settings.lifetime import ARRIVAL, AT_BINDING, AT_CONNECTION, AT_CREATION, LIVE, RESTART
from leveret.settings.values import size_bytes

MEANINGS = {
    LIVE: "for existing queues, messages and connections too.",
    ARRIVAL: "messages that are already in a queue stay as they are.",
    AT_CREATION: "existing queues keep the value they were created with.",
    AT_BINDING: "existing bindings stay.",
    AT_CONNECTION: "open connections keep the value they started with.",
    RESTART: "a reload does not change it.",
}

DERIVED = {
    "max-delivery-attempts": "unlimited; 10 where an entry sets redelivery or dead letters",
    "max-redelivery-delay": "10 x redelivery-delay",
    "max-read-page-bytes": "2 x page-size-bytes",
    "prefetch-page-messages": "max-read-page-messages",
    "prefetch-page-bytes": "max-read-page-bytes",
    "page-full-policy": "unset",
    "disk-full-policy": "unset",
    "send-fail-if-no-space": "that of [system-usage]",
    "send-fail-if-no-space-after": "that of [system-usage]",
    "pending-message-limit-prefetch-rate": "unset",
}


#: What stands above a table of keys.
NOTES = {
    "system-usage": (
        "Limits for messages of all addresses together. With this table, also with an empty one, every address is",
        "under flow control: publishers are held, or refused, while a limit is reached. Without it an address is, if",
        "an address-setting gives it `memory-limit`, `producer-flow-control`, `cursor`, `send-fail-if-no-space` or",
        '`address-full-policy = "BLOCK"`; `leveret explain` says by what. Sizes may be percentages (`"70%"`): of the',
        "memory that the process may use, of the disk. A limit above what the machine has is lowered, with a warning",
        "if a file sets it; `leveret check` also warns of a `store` above 70 % of the disk.",
        "",
    ),
    "flow": ("How publishes are held while there is no space.", ""),
}

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
    """A value as people write it: 1800000 -> "30m", 268435456 -> "256MiB". 0 and -1 stay as they are."""
    units = DURATION_UNITS if read in DURATIONS else SIZE_UNITS if read in SIZES else {}
    if isinstance(value, int) and value > 0:
        return next((f"{value // octets}{unit}" for unit, octets in units.items() if value % octets == 0), value)
    return value


def shown(value: object, read: object = None) -> str:
    """A value as a table has it: as TOML writes it."""
    return "unset" if value is None or value == "" else f"`{json.dumps(written(value, read))}`"


def _acts(row: Key | Field) -> str:
    """When a changed value takes effect; *later* for keys without an effect yet."""
    return row.acts.value if row.is_supported else "*later*"


def _tables(rows: list[tuple[str, str, str]]) -> list[str]:
    """Keys that are read by name rather than from a table: key, default, sentence."""
    return ["| key | default | what it does |", "|---|---|---|", *(f"| `{a}` | {b} | {c} |" for a, b, c in rows)]


def page() -> str:
    """The whole page."""
    sections = (
        _introduction(),
        _broker_tables(),
        _wildcards(),
        _address_settings(),
        _addresses(),
        _diverts(),
        _vhosts(),
        _policies(),
        _users(),
    )
    return "\n".join(line for section in sections for line in section)


def _introduction() -> list[str]:
    """The title, the commands, when a change takes effect."""
    return [
        "# Configuration",
        "",
        "Drawn from the tables in `settings/` by `docs/draw_configuration.py`; do not edit it by hand.",
        "",
        'The configuration is TOML. Durations are milliseconds or text (`"5s"`, `"15m"`); sizes are octets or text',
        '(`"64KiB"`, `"10MB"`, both in powers of 1024). An unknown key is an error that names the nearest known one.',
        "Keys marked *later* are accepted with a warning: this version does nothing with them yet.",
        "",
        "- `leveret check FILE...` lists what is wrong. It also warns of a name that is declared nowhere but resembles",
        "  one that is (a dead-letter address `faild` beside a queue `failed`).",
        "- `leveret explain FILE NAME` shows every setting of a queue or address, and which rule gave it.",
        "  `leveret ctl explain NAME` does the same for a running broker.",
        "- `leveret diff OLD NEW` shows what another configuration would change, and when.",
        "",
        "Files are read again when they change (`configuration-file-refresh-period`), on SIGHUP and by",
        "`leveret ctl reload`. If there is a single fault, nothing changes.",
        "",
        "Artemis' `broker.xml` and broker-properties, HornetQ's XML and ActiveMQ 5's are read as well, whole or in",
        "fragments (any known element may be the root): see [from-artemis.md](from-artemis.md) and",
        "[from-activemq.md](from-activemq.md). A file's format is recognised by its content. Document types and",
        "entities are refused; a `jms.queue.` or `jms.topic.` prefix is removed from names of Artemis and HornetQ.",
        "",
        "The column *acts* says when a changed value takes effect after a reload:",
        "",
        *(f"- *{one.value}*: {MEANINGS[one]}" for one in MEANINGS),
    ]


def _broker_tables() -> list[str]:
    """`[broker]`, `[journal]`, `[limits]`, `[system-usage]`, `[flow]`, `[tls]`."""
    lines: list[str] = []
    for table, keys in KEYS.items():
        lines += [
            "",
            f"## [{table}]",
            "",
            *NOTES.get(table, ()),
            "| key | default | acts | what it does |",
            "|---|---|---|---|",
        ]
        for name, key in keys.items():
            default = "by [profile](profiles.md)" if (table, name) in BY_PROFILE else shown(key.default, key.read)
            lines.append(f"| `{name}` | {default} | {_acts(key)} | {KEY_HELP[table][name]} |")
    return lines


def _wildcards() -> list[str]:
    """`[wildcard-addresses]`."""
    return [
        "",
        "## [wildcard-addresses]",
        "",
        *_tables(
            [
                ("delimiter", '`"."`', "Character between the words of an address."),
                ("any-words", '`"#"`', "Matches zero or more words; only as the last word."),
                ("single-word", '`"*"`', "Matches exactly one word that is not empty."),
                ("literal-match-markers", "unset", "Two characters: a match between them is taken literally."),
            ]
        ),
    ]


def _address_settings() -> list[str]:
    """`[[address-setting]]`."""
    lines = [
        "",
        "## [[address-setting]]",
        "",
        "`match` is an address or a pattern; `vhost` is optional (without it the entry applies to every virtual",
        "host, with lower precedence than its own entries). All matching entries are merged field by field: the exact",
        "match first, then a literal one, then patterns without `#` (the left-most literal word wins), then",
        "patterns with `#` (the longer text first). A field that no entry sets has its default. `-1` means no",
        'limit or off, `""` means no such address.',
        "",
        "A topic (a routing key of a topic exchange, or another exchange) has the settings of the address of its name.",
        "Destination policies, which [ActiveMQ's files](from-activemq.md) have, lie over the merged entries: the one",
        "for a queue, or for a topic, of that name.",
        "",
        "| key | default | acts | what it does |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{field.name}` | {_default(field)} | {_acts(field)} | {FIELD_HELP[field.name]} |"
        for field in FIELDS
        if not field.reason
    ]
    return [
        *lines,
        "",
        "### Accepted, without meaning here",
        "",
        "Files of Artemis may have these; they are kept and explained, with a warning, and nothing follows from them.",
        "",
        "| key | default | what it is in Artemis | why it means nothing here |",
        "|---|---|---|---|",
        *(
            f"| `{field.name}` | {_default(field)} | {FIELD_HELP[field.name]} | {field.reason} |"
            for field in FIELDS
            if field.reason
        ),
    ]


def _default(field: Field) -> str:
    return DERIVED.get(field.name) or shown(field.default, field.kind.read)


def _addresses() -> list[str]:
    """`[[address]]` and its queues."""
    return [
        "",
        "## [[address]] and [[address.queue]]",
        "",
        "Queues that exist from the start. An address:",
        "",
        *_tables(
            [
                ("name", "required", "Name of the address."),
                ("vhost", '`"/"`', "Its virtual host."),
                (
                    "routing-type",
                    '`"anycast"`',
                    "`multicast` makes a fanout exchange of that name and binds its queues.",
                ),
            ]
        ),
        "",
        "A queue of an address (`x-` arguments that have a row here are written without `x-`; those without a default",
        "are taken from the address-settings):",
        "",
        *_tables(
            [
                ("name", "required", "Name of the queue."),
                ("routing-type", "the address's", "`anycast` or `multicast`."),
                ("durable", "`true`", "Whether the queue survives a restart."),
                ("enabled", "`true`", "Whether the queue accepts new messages."),
                ("arguments", "none", "Other arguments, as a client would pass them."),
                *((name, "", ATTRIBUTE_HELP[name]) for name in QUEUE_ATTRIBUTES),
            ]
        ),
        "",
        "After a reload, queues that are new in the file are created. Those that were removed from it are deleted,",
        "with their messages, if the address-setting `config-delete-queues` (for the exchange:",
        "`config-delete-addresses`) is FORCE; otherwise they stay. For an existing queue these change at once:",
        ", ".join(f"`{name}`" for name, argument in QUEUE_ATTRIBUTES.items() if argument in LIVE_ARGUMENTS) + ",",
        "`enabled` and `routing-type`. The others change when the queue is created again. An attribute that is",
        "removed from the file returns to the address-setting's value. A queue that a client declared with other",
        "arguments is not changed, with a warning.",
        "",
        "Clients use these queues like any others. A client that declares one must pass the same arguments,",
        "`x-address` included (its address, if that is not its name), or declare it passively.",
    ]


def _diverts() -> list[str]:
    """`[[divert]]`."""
    return [
        "",
        "## [[divert]]",
        "",
        "Copies messages of one address to others.",
        "",
        *_tables(
            [
                ("name", "required", "Name of the divert."),
                ("address", "required", "An exchange, or a routing key of the default exchange."),
                ("forwarding-address", "required", "Where the messages go: one address or a list."),
                ("exclusive", "`false`", "Whether the messages no longer reach the original address."),
                ("routing-name", "unset", "Accepted for Artemis' files."),
                ("routing-type", '`"STRIP"`', "Accepted for Artemis' files."),
                ("vhost", '`"/"`', "Its virtual host."),
            ]
        ),
    ]


def _vhosts() -> list[str]:
    """`[[vhost]]`."""
    return [
        "",
        "## [[vhost]]",
        "",
        "A virtual host that exists from the start. One in which something is declared needs no entry of its own.",
        "",
        *_tables(
            [
                ("name", "required", "Name of the virtual host."),
                ("max-connections", "`-1`", "Connections to it; -1 is no limit, 0 none at all."),
                ("max-queues", "`-1`", "Queues in it; -1 is no limit, 0 none at all."),
                (
                    "default-queue-type",
                    "unset",
                    "`classic`, `quorum` or `stream`: type of queues declared without one.",
                ),
            ]
        ),
    ]


def _policies() -> list[str]:
    """`[[policy]]` and `[[operator-policy]]`."""
    return [
        "",
        "## [[policy]] and [[operator-policy]]",
        "",
        "See [policies.md](policies.md).",
        "",
        *_tables(
            [
                ("name", "required", "Name of the policy."),
                ("vhost", '`"/"`', "Its virtual host."),
                ("pattern", "required", "Regular expression on the names of queues and exchanges."),
                ("apply-to", '`"all"`', "Queues, exchanges, or queues of one type."),
                ("priority", "`0`", "Of several policies that match, the highest priority wins."),
                ("definition", "required", "A table of what the policy sets."),
            ]
        ),
    ]


def _users() -> list[str]:
    """`[[user]]` and its permissions."""
    return [
        "",
        "## [[user]]",
        "",
        "See [access.md](access.md). If no user is declared there is `guest` with the password `guest`, from",
        "loopback only.",
        "",
        *_tables(
            [
                ("name", "required", "Name of the user."),
                (
                    "password-hash",
                    "unset",
                    "Base64 of salt and digest, as in RabbitMQ's definitions; unset: no login by password.",
                ),
                (
                    "hashing-algorithm",
                    f'`"{ALGORITHMS[0]}"`',
                    "How it was hashed: this or " + ", ".join(f"`{name}`" for name in ALGORITHMS[1:]) + ".",
                ),
                ("password", "unset", "In clear; only in a file that only its owner can read (`chmod 600`)."),
                ("tags", "none", f"Any of {', '.join(USER_TAGS)}."),
                ("loopback-only", "`false`", "Whether the user may only connect from this machine."),
                ("max-connections", "`-1`", "Connections of the user; -1 is no limit."),
                ("max-channels", "`-1`", "Channels over all connections of the user; -1 is no limit."),
            ]
        ),
        "",
        "Its permissions, `[[user.permission]]` and `[[user.topic-permission]]`:",
        "",
        *_tables(
            [
                ("vhost", '`"/"`', "Virtual host that the permission is for."),
                (
                    "configure",
                    "nothing",
                    "Pattern of names the user may declare and delete (not of topic permissions).",
                ),
                (
                    "write",
                    "nothing; keys: all",
                    "Pattern of names the user may publish to or bind to another; of routing keys.",
                ),
                (
                    "read",
                    "nothing; keys: all",
                    "Pattern of names the user may consume from or bind another to; of routing keys.",
                ),
                ("exchange", "required", "Exchange that a topic permission is for."),
            ]
        ),
    ]


if __name__ == "__main__":
    print(page())
