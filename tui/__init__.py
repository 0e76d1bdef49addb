"""The terminal app: screens and widgets over the engine's events. Nothing in `localspec` depends on it."""
