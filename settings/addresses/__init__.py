"""What an address may be set to: fields, values of queue arguments, which entries match an address, what they give."""
