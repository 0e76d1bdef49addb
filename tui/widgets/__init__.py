"""Widgets of the chat: drawn line by line, so that live figures never relayout the screen."""
