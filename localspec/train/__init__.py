"""Drafting heads made for a model that the user has: `localspec train`."""
