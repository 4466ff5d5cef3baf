"""One queue: what it is made of, who gets its messages, its rules, and what comes back to it."""
