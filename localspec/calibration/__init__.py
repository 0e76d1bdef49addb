"""What passes of the target cost on this machine: measured in idle moments, kept on disk."""
