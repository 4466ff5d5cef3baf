"""Builds and starts foreign programs, and runs scenarios by real clients through their drivers."""
