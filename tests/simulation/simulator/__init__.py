"""The whole broker under one seed: real composition root, frontend, engine and journal; simulated time, network, disk.

Rooms, each of which imports only those before it: `loop`, `schedule` < `network`, `disk` < `host` < `oracle` <
`clients` < `world`. Source: docs/simulation.md.
"""
