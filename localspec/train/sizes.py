"""How much of everything a training handles at once: what it takes of memory follows from that."""

from __future__ import annotations

LONGEST = 896
"""Tokens of a text at most."""
AT_ONCE = 32
"""Texts that are written side by side."""
BATCH = 1024
"""Tokens of a step of training, filled-up places included."""
DRAFTED = 12288
"""Tokens that a head can draft: the most frequent ones."""
LEARNT_SINCE = (0.0, 0.15, 0.5)
"""Shares of the time from which on the first, second and third step of a draft are learnt."""
