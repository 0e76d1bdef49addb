"""Telemetry: folds over `StepStats`, and recordings of them."""
