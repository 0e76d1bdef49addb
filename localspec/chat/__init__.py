"""Conversations: how turns become a prompt, which of them fit, and where they are kept."""
