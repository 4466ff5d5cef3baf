"""The functions of expressions, one file for each subject. Source: queues page B.4."""
