"""Draw docs/configuration.md from the key tables: `python docs/draw_configuration.py > docs/configuration.md`."""

from leveret.settings.access_declarations import USER_TAGS
from leveret.settings.configuration import BY_PROFILE, KEYS
from leveret.settings.declarations import QUEUE_ATTRIBUTES
from leveret.settings.fields import FIELDS
from leveret.settings.queue_arguments import LIVE_ARGUMENTS
from leveret.settings.toml_users import ALGORITHMS

DERIVED = {
    "max-delivery-attempts": "unlimited; 10 where a match rules redelivery or dead letters",
    "max-redelivery-delay": "10 x redelivery-delay",
    "max-read-page-bytes": "2 x page-size-bytes",
    "prefetch-page-messages": "max-read-page-messages",
    "prefetch-page-bytes": "max-read-page-bytes",
    "page-full-policy": "unset",
}


def shown(value: object) -> str:
    """A value as a table has it."""
    if value is None or value == "":
        return "unset"
    return f"`{str(value).lower() if isinstance(value, bool) else repr(value)}`"


def page() -> str:
    """The whole page."""
    lines = [
        "# Configuration",
        "",
        "Drawn from the tables in `settings/` by `docs/draw_configuration.py`; do not edit. The native form is TOML.",
        'Durations are milliseconds or text ("5s", "15m"), sizes octets or text ("64KiB", "10MB"; powers of 1024).',
        "An unknown key is an error that names the nearest known one. Keys marked *later* are accepted with a warning:",
        "what they govern is not in this version. Files are read again when they change (see",
        "`configuration-file-refresh-period`), on SIGHUP and by `leveret ctl reload`; one fault, and nothing changes.",
        "",
        "Artemis' `broker.xml` and broker-properties and HornetQ's XML are read as well, whole or in fragments (any",
        "known element may be the root); a file's form is seen by its content. Document types and entities are",
        "refused, a `jms.queue.` or `jms.topic.` prefix is taken off. `leveret check FILE...` says what is wrong,",
        "`leveret explain FILE NAME` which rule gave each setting, `leveret diff OLD NEW` what would change.",
    ]
    for table, keys in KEYS.items():
        lines += ["", f"## [{table}]", "", "| key | default | |", "|---|---|---|"]
        for name, key in keys.items():
            default = "by [profile](profiles.md)" if (table, name) in BY_PROFILE else shown(key.default)
            lines.append(f"| `{name}` | {default} | {'' if key.is_heeded else 'later'} |")
    lines += [
        "",
        "## [wildcard-addresses]",
        "",
        "| key | default |",
        "|---|---|",
        "| `delimiter` | `'.'` |",
        "| `any-words` | `'#'`: zero or more words, only as the last |",
        "| `single-word` | `'*'`: exactly one word that is not empty |",
        "| `literal-match-markers` | unset; two characters: a match between them is taken letter by letter |",
        "",
        "## [[address-setting]]",
        "",
        "`match` (an address or a pattern) and, optionally, `vhost` (default: every virtual host, beneath its own",
        "entries). All matching entries are merged field by field: the exact match first, then a literal one, then",
        "patterns without `#` (the left-most literal word decides), then patterns with `#` (the longer text first).",
        'A field that no entry says has the default. `-1` is no limit or off, `""` no such address. A changed value',
        "acts on existing queues *at once*, or on *new queues only*.",
        "",
        "| key | default | acts | |",
        "|---|---|---|---|",
    ]
    for field in FIELDS:
        default = DERIVED.get(field.name) or shown(field.default)
        lines.append(f"| `{field.name}` | {default} | {field.lifetime.value} | {'' if field.is_heeded else 'later'} |")
    live = ", ".join(f"`{name}`" for name, argument in QUEUE_ATTRIBUTES.items() if argument in LIVE_ARGUMENTS)
    attributes = ", ".join(f"`{name}`" for name in QUEUE_ATTRIBUTES)
    lines += [
        "",
        "## [[address]] and [[address.queue]]",
        "",
        "Queues that are there from the start. An address has a `name`, a `vhost` (default `/`) and a `routing-type`",
        "(`anycast`; `multicast` makes a fanout exchange of that name, to which its queues are bound). A queue has",
        "a `name`, `routing-type`, `durable` (true), `enabled` (true: takes new messages), `arguments` (a table, as",
        "a client would say them), and what has an argument of its own stands here without `x-`:",
        f"{attributes}.",
        "After a reload, what is new is created. What is no longer there is deleted, with its messages, where the",
        "address-setting `config-delete-queues` (for the exchange: `config-delete-addresses`) is FORCE, and",
        f"stays otherwise. Of a queue that exists {live}, `enabled` and",
        "`routing-type` change at once, the rest when it is created anew; an attribute that is gone is back at the",
        "address-setting's value. A queue that a client declared otherwise is kept as it is, with a warning.",
        "Clients use such queues as any others; one that declares it must say the same arguments, `x-address` included",
        "(its address, where that is not its name), or declare it passively.",
        "`leveret ctl explain NAME` shows what holds in the running broker, and why.",
        "",
        "## [[divert]]",
        "",
        "`name`, `address` (an exchange, or a key of the default one), `forwarding-address` (one or a list),",
        "`exclusive` (false), `routing-name`, `routing-type` (STRIP), `vhost` (`/`).",
        "",
        "## [[vhost]]",
        "",
        "`name`: a virtual host that is there from the start; those that anything declared is in need no entry.",
        "`max-connections`, `max-queues` (-1: no limit; 0: none at all).",
        "",
        "## [[policy]] and [[operator-policy]]",
        "",
        "`name`, `vhost` (`/`), `pattern`, `apply-to` (`all`), `priority` (0), `definition` (a table). What they mean:",
        "[policies.md](policies.md).",
        "",
        "## [[user]]",
        "",
        "See [access.md](access.md). While no user is declared there is `guest`, password `guest`, from loopback only.",
        "",
        "| key | default | |",
        "|---|---|---|",
        "| `name` | | |",
        "| `password-hash` | unset: no login by password | base64 of salt and digest, as in RabbitMQ's definitions |",
        f"| `hashing-algorithm` | `{ALGORITHMS[0]}` | or {', '.join(f'`{name}`' for name in ALGORITHMS[1:])} |",
        "| `password` | unset | in clear, only in a file that only its owner can read (`chmod 600`) |",
        f"| `tags` | none | of {', '.join(USER_TAGS)} |",
        "| `loopback-only` | `false` | |",
        "| `max-connections`, `max-channels` | -1: no limit | over all connections of the user |",
        "",
        "`[[user.permission]]`: `vhost` (`/`) and three patterns, `configure`, `write`, `read` (unsaid: nothing).",
        "`[[user.topic-permission]]`: `vhost` (`/`), `exchange`, and patterns on keys, `write`, `read` (unsaid: all).",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())
