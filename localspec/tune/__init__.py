"""Finding the settings with which one model is fastest on this machine and on the user's own prompts.

Everything is measured by the bench's means (driver, recorded replies, paired rounds) and told as a ratio to
the present settings in the same rounds, with how far it may be off. What there was no time for is named, not
guessed.
"""
