"""What a bench prints and writes: tables, JSON, CSV, Markdown, pictures."""
