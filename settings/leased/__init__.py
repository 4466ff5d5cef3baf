"""Leased queues as AMPS declares them: elements as queue arguments, one frozen value, faults by code.

`queue.declare`, TOML and AMPS XML come to the same arguments, and these to one `LeasedSettings`. Imports nothing of
`files`: loaders import this room. Source: queues page A.3.
"""
