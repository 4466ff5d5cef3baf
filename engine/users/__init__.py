"""Users, permissions and passwords."""
