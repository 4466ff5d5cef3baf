"""Regular expressions of operators and of filters, with a time that is linear in the text, or bounded."""
