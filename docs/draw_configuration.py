"""Draw docs/configuration.md from the key table: `python docs/draw_configuration.py > docs/configuration.md`."""

from leveret.settings.configuration import KEYS


def page() -> str:
    """The whole page."""
    lines = [
        "# Configuration",
        "",
        "TOML, drawn from `settings/configuration.py` by `docs/draw_configuration.py`; do not edit. Durations are",
        'milliseconds or text ("5s", "15m"), sizes octets or text ("64KiB", "10MB"; powers of 1024). An unknown key',
        "is an error that names the nearest known one. Keys marked *later* are accepted with a warning: what they",
        "govern is not in this version. `leveret ctl reload` or SIGHUP reads the files again, for new connections.",
    ]
    for table, keys in KEYS.items():
        lines += ["", f"## [{table}]", "", "| key | default | |", "|---|---|---|"]
        for name, key in keys.items():
            default = (
                "unset"
                if key.default is None
                else repr(key.default).lower()
                if isinstance(key.default, bool)
                else repr(key.default)
            )
            lines.append(f"| `{name}` | `{default}` | {'' if key.is_heeded else 'later'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())
