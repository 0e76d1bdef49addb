"""Training heads: on models that the tests write, and for a few steps."""
