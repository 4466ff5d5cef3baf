"""Draw docs/configuration.md from the key tables: `python docs/draw_configuration.py > docs/configuration.md`."""

import json

from leveret.settings.declared.tables import (
    ADDRESS,
    DIVERT,
    EXCHANGE,
    LOGGED_TOPIC,
    PERMISSION,
    POLICY,
    QUEUE,
    USER,
    VHOST,
    WILDCARDS,
    Table,
)
from leveret.settings.leases.leased_settings import ELEMENTS, IN_COMMON, Element
from leveret.settings.lifetime import (
    ARRIVAL,
    AT_BINDING,
    AT_CONNECTION,
    AT_CONSUMER,
    AT_CREATION,
    LIVE,
    NEVER,
    RESTART,
    WITHOUT_MEANING,
    Lifetime,
)
from leveret.settings.rows.address_settings import SETTINGS
from leveret.settings.rows.broker_keys import KEYS
from leveret.settings.rows.queue_attributes import ATTRIBUTES
from leveret.settings.rows.row import Row
from leveret.settings.values import Kind

MEANINGS = {
    LIVE: "for existing queues, messages and connections too.",
    ARRIVAL: "messages that are already in a queue stay as they are.",
    AT_CREATION: "existing queues keep the value they were created with.",
    AT_BINDING: "existing bindings stay.",
    AT_CONSUMER: "existing consumers keep the value they started with.",
    AT_CONNECTION: "open connections keep the value they started with.",
    RESTART: "a reload does not change it.",
    NEVER: "the queue keeps what it was declared with.",
}

#: What stands above a table of keys.
NOTES = {
    "system-usage": (
        "Limits for messages of all addresses together. With this table, also with an empty one, every address is",
        "under flow control: publishers are blocked or refused while a limit is reached. Without it an address is, if",
        "an address-setting gives it `memory-limit`, `producer-flow-control`, `cursor`, `send-fail-if-no-space` or",
        '`address-full-policy = "BLOCK"`; `leveret explain` says by what. Sizes may be percentages (`"70%"`): of the',
        "memory that the process may use, of the disk. A limit above what the machine has is lowered, with a warning",
        "if a file sets it; `leveret check` also warns of a `store` above 70 % of the disk.",
        "",
    ),
    "flow": ("How publishes are held while there is no space.", ""),
    "cluster": (
        "With this table, also with an empty one, `leveret serve` is a node of a cluster: [cluster.md](cluster.md).",
        "`node`, `nodes` and `etcd` are required. Without `secret-file` and `[cluster.tls]` all addresses must be of",
        'loopback. A node needs a data directory and `fsync = "commit"`. `leveret explain FILE "[cluster]"` shows each',
        "value, and which line gave it.",
        "",
    ),
    "cluster.tls": ("TLS between nodes, in place of `secret-file`.", ""),
    "cluster.etcd-tls": ("TLS to etcd.", ""),
}


def shown(value: object, kind: Kind | None = None) -> str:
    """A value as a table has it: as TOML writes it."""
    rendered = value if kind is None else kind.rendered(value)
    return "unset" if value is None or value == "" else f"`{json.dumps(rendered)}`"


def _acts(row: Row) -> str:
    """When a changed value takes effect; *nothing*: it has no meaning here."""
    return _when(row.acts)


def _tables(rows: Table) -> list[str]:
    """Keys of a table that declares something: key, default, sentence."""
    lines = (f"| `{row.key}` | {_default(row)} | {row.help} |" for row in rows)
    return ["| key | default | what it does |", "|---|---|---|", *lines]


def page() -> str:
    """The whole page."""
    sections = (
        _introduction(),
        _broker_tables(),
        _wildcards(),
        _address_settings(),
        _addresses(),
        _queues(),
        _logged_topics(),
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
        '(`"64KiB"`, `"10MB"`, both in powers of 1024; `"1024"` is octets, too). An unknown key is an error that',
        "names the nearest known one.",
        "",
        "- `leveret check FILE...` lists what is wrong. It also warns of a name that is declared nowhere but resembles",
        "  one that is (a dead-letter address `faild` beside a queue `failed`). With `--strict` a warning is a fault.",
        "- `leveret explain FILE NAME` shows every setting of a queue or address, and which rule gave it.",
        "  `leveret ctl explain NAME` does the same for a running broker.",
        "- `leveret diff OLD NEW` shows what another configuration would change, and when. With `--live` it asks",
        "  a running broker in place of `OLD`, and says it of each queue that is there, whoever declared it.",
        "",
        "Files are read again when they change (`configuration-file-refresh-period`), on SIGHUP and by",
        "`leveret ctl reload`. If there is a single fault, nothing changes.",
        "",
        "Artemis' `broker.xml` and broker-properties, HornetQ's XML, ActiveMQ 5's and AMPS' are read as well, whole or",
        "in fragments (any known element may be the root): see [from-artemis.md](from-artemis.md),",
        "[from-activemq.md](from-activemq.md) and [from-amps.md](from-amps.md). A file's format is recognised by its",
        "content. Document types and entities are refused; a `jms.queue.` or `jms.topic.` prefix is removed from names",
        "of Artemis and HornetQ.",
        "",
        "The column *acts* says when a changed value takes effect after a reload:",
        "",
        *(f"- *{one.value}*: {MEANINGS[one]}" for one in MEANINGS),
        "- *nothing*: accepted, with a warning, and nothing follows from it; the sentence says why.",
    ]


def _broker_tables() -> list[str]:
    """All tables of keys, in the order of KEYS."""
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
            default = "by [profile](profiles.md)" if key.by_profile else shown(key.default, key.kind)
            sentence = f"{key.help} {key.reason}".rstrip()
            lines.append(f"| `{name}` | {default} | {_acts(key)} | {sentence} |")
    return lines


def _wildcards() -> list[str]:
    """`[wildcard-addresses]`."""
    return [
        "",
        "## [wildcard-addresses]",
        "",
        *_tables(WILDCARDS),
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
        f"| `{setting.key}` | {_default(setting)} | {_acts(setting)} | {setting.help} |"
        for setting in SETTINGS
        if not setting.reason
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
            f"| `{setting.key}` | {_default(setting)} | {setting.help} | {setting.reason} |"
            for setting in SETTINGS
            if setting.reason
        ),
    ]


def _default(row: Row) -> str:
    return row.default_in_words or shown(row.default, row.kind)


def _addresses() -> list[str]:
    """`[[address]]` and its queues."""
    return [
        "",
        "## [[address]] and [[address.queue]]",
        "",
        "Queues that exist from the start. An address:",
        "",
        *_tables(ADDRESS),
        "",
        "A queue of an address (`x-` arguments that have a row here are written without `x-`; those without a default",
        "are taken from the address-settings):",
        "",
        *_tables(QUEUE),
        *(f"| `{one.key}` |  | {one.help} |" for one in ATTRIBUTES),
        "",
        "After a reload, queues that are new in the file are created. Those that were removed from it are deleted,",
        "with their messages, if the address-setting `config-delete-queues` (for the exchange:",
        "`config-delete-addresses`) is FORCE; otherwise they stay. For an existing queue these change at once:",
        ", ".join(f"`{one.key}`" for one in ATTRIBUTES if one.acts is LIVE) + ",",
        "`enabled` and `routing-type`. The others change when the queue is created again. An attribute that is",
        "removed from the file returns to the address-setting's value. A queue that a client declared with other",
        "arguments is not changed, with a warning; but at the start a durable queue that is there, and differs only in",
        "what changes at once, follows the file.",
        "",
        "Clients use these queues like any others. A client that declares one must pass the same arguments,",
        "`x-address` included (its address, if that is not its name), or declare it passively.",
    ]


def _queues() -> list[str]:
    """`[[queue]]`, and what leased queues have."""
    return [
        "",
        "## [[queue]]",
        "",
        "The short form of an address with one queue of the same name: `name`, `vhost`, `durable`, `enabled`,",
        "`arguments`, and the attributes above. `type` is `classic`, `quorum`, `stream` or `amps`; a queue of an",
        "`[[address]]` may have it, too.",
        "",
        "### Leased queues",
        "",
        'Queues with `type = "amps"` lend messages to consumers, which get them back when the lease ends: see',
        "[leases.md](leases.md). They have these attributes, and of the others only those of the last rows;",
        "what is not set has its default. *AMPS* is the element of the same meaning in AMPS' files.",
        "",
        "| key | AMPS | default | acts | what it does |",
        "|---|---|---|---|---|",
        *map(_leased, (*ELEMENTS, *IN_COMMON)),
    ]


def _leased(element: Element) -> str:
    tag = f"`{element.tag}`" if element.tag else ""
    return f"| `{element.key}` | {tag} | {_default(element)} | {_acts(element)} | {element.help} |"


def _when(acts: Lifetime) -> str:
    return "*nothing*" if acts is WITHOUT_MEANING else acts.value


def _logged_topics() -> list[str]:
    """`[[logged-topic]]`."""
    return [
        "",
        "## [[logged-topic]]",
        "",
        "Topics whose messages are logged, whether a queue captures them or not. In a virtual host in which some are",
        "listed, the topics of every leased queue must be among them: its `underlying-topic`, its",
        "`default-publish-target` and its name. Without a list a topic is logged from the first queue on that selects",
        f"it, with the warning W-TXLOG. When a list takes effect: {_when(LIVE)}.",
        "",
        "A client that declares a leased queue of other topics gets a 406 with the code E-TXLOG. What a pattern",
        "selects and nothing logs is not captured; one line in the log says so. With `--memory` the",
        "last 2 MiB are kept, whatever `retain` says; else whole segments of the journal, with all that is in them.",
        "",
        *_tables(LOGGED_TOPIC),
    ]


def _diverts() -> list[str]:
    """`[[divert]]`."""
    return [
        "",
        "## [[divert]]",
        "",
        "Copies messages of one address to others.",
        "",
        *_tables(DIVERT),
    ]


def _vhosts() -> list[str]:
    """`[[vhost]]`."""
    return [
        "",
        "## [[vhost]]",
        "",
        "A virtual host that exists from the start. One in which something is declared needs no entry of its own.",
        "",
        *_tables(VHOST),
    ]


def _policies() -> list[str]:
    """`[[policy]]` and `[[operator-policy]]`."""
    return [
        "",
        "## [[policy]] and [[operator-policy]]",
        "",
        "See [policies.md](policies.md).",
        "",
        *_tables(POLICY),
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
        *_tables(USER),
        "",
        "Its permissions, `[[user.permission]]` and `[[user.topic-permission]]`:",
        "",
        *_tables((*PERMISSION, EXCHANGE)),
    ]


if __name__ == "__main__":
    print(page())
