"""Regular expressions of policies and permissions, in time that is linear in the name."""
