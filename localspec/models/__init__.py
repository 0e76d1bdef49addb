"""Models by name or path: which are known, where their files come from, and what is in a file."""
