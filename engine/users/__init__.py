"""Who may do what: users, permissions, passwords."""
