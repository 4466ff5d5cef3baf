"""Two brokers, one program: sequences of operations over raw frames are generated, run against both brokers at once,
and every observable (frames, codes, texts, order, headers, counts) is compared step by step.

    python -m leveret.interop.differential --operations 10000 --seed 1

What is to differ is listed, with its reason, in `known.toml`; a program that differs otherwise is made as
small as it can be and saved as a file that replays without the other broker.
"""
