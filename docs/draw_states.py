"""Draw docs/states.md from the tables: `python docs/draw_states.py > docs/states.md` (a test compares)."""

from leveret.amqp_frontend.wire.states import (
    CHANNEL_METHODS,
    CHANNEL_NEXT,
    CONNECTION_METHODS,
    CONNECTION_NEXT,
    PARKING_NEXT,
)
from leveret.cluster.agreement.states import NEXT as NODE_NEXT


def diagram(table: dict, first: str) -> str:
    """A Mermaid state diagram of one table."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    for state, steps in table.items():
        lines += [f"    {state.name} --> {after.name}: {step.name.lower()}" for step, after in steps.items()]
        if not steps:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join([*lines, "```"])


def legal(table: dict) -> str:
    """Which methods a peer may send in which state, as a table."""
    quoted = {state.name: ", ".join(f"`{name}`" for name in names) or "none" for state, names in table.items()}
    rows = [f"| {state} | {names} |" for state, names in quoted.items()]
    return "\n".join(["| state | a peer may send |", "|---|---|", *rows])


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Life cycles",
            "",
            "Drawn from `amqp_frontend/wire/states.py` and `cluster/agreement/states.py` by `docs/draw_states.py`; do",
            "not edit.",
            "",
            "## Connection",
            "",
            diagram(CONNECTION_NEXT, "HEADER"),
            "",
            legal(CONNECTION_METHODS),
            "",
            "## Channel",
            "",
            diagram(CHANNEL_NEXT, "OPEN"),
            "",
            legal(CHANNEL_METHODS),
            "",
            "## Held publishes of a connection",
            "",
            diagram(PARKING_NEXT, "OPEN"),
            "",
            "## A node of a cluster",
            "",
            diagram(NODE_NEXT, "STARTING"),
        ]
    )


if __name__ == "__main__":
    print(page())
