"""Building and starting foreign programs, and the scenarios that real clients run through their drivers."""
