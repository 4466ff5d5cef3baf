"""How much is tried by tests that try much: `make test` a part, `make machines` ten times of it."""

import os

from hypothesis import Phase

EFFORT = int(os.environ.get("LEVERET_EFFORT", "1"))
#: Whether a change is tested by a machine: what is found by chance then is no fault of the change.
IS_CI = any(os.environ.get(name) for name in ("CI", "LEVERET_CI"))

#: What Hypothesis does with examples. `make test` says at once what fails, also where making it small would take
#: minutes; where more than that is tried, it is made small.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, *((Phase.shrink,) if EFFORT > 1 else ()))


def examples(count: int) -> int:
    """How many examples to try: `count` in `make test`, else that times the effort."""
    return count * EFFORT
