"""Runs the programs of docs/clients-cluster.md while the leader of a cluster changes: losses, duplicates, pauses."""
