"""Drafters that read the target's hidden states, on small models that these tests write themselves."""
