"""What is asked of a lake: each job is DataFrames in, a DataFrame of its schema out; `commands` is their command line.

`lives` is the one row a (message, queue) that most of them start from.
"""
