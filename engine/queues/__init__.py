"""One queue: what it is made of, its limits, its memory, and what comes back to it."""
