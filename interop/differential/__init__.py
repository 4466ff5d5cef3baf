"""Generated programs, which are sequences of operations over raw frames, run against two brokers at the same time. All
that can be observed (frames, codes, texts, order, headers, counts) is compared step by step.

    python -m leveret.interop.differential --operations 10000 --seed 1

Intended differences are listed with their reasons in `known.toml`. A program with another difference is minimised and
saved as a file, which can be replayed without the reference broker.
"""
