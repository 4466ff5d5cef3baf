"""Foreign programs, how they are built and started, and the scenarios that real clients run by their drivers."""
