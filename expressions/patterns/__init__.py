"""Regular expressions of operators and of filters, in time that is linear in the text, or bounded."""
