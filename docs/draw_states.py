"""Draw docs/states.md from the tables: `python docs/draw_states.py > docs/states.md` (a test compares)."""

from leveret.amqp_frontend.states import CHANNEL_NEXT, CONNECTION_NEXT


def diagram(table: dict, first: str) -> str:
    """A Mermaid state diagram of one table."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    for state, steps in table.items():
        lines += [f"    {state.name} --> {after.name}: {step.name.lower()}" for step, after in steps.items()]
        if not steps:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join([*lines, "```"])


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Life cycles",
            "",
            "Drawn from `amqp_frontend/states.py` by `docs/draw_states.py`; do not edit.",
            "",
            "## Connection",
            "",
            diagram(CONNECTION_NEXT, "HEADER"),
            "",
            "## Channel",
            "",
            diagram(CHANNEL_NEXT, "OPEN"),
        ]
    )


if __name__ == "__main__":
    print(page())
