"""Two brokers, one program: sequences of operations over raw frames are generated, run against both brokers at once,
and every observable (frames, codes, texts, order, headers, counts) is compared step by step.

    python -m leveret.interop.differential --operations 10000 --seed 1

Intended differences are listed, with their reasons, in `known.toml`; a program that differs otherwise is minimised and
saved as a file that can be replayed without the other broker.
"""
