"""From token bytes to certain text: incremental UTF-8, stop strings, and characters made safe to print."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

from localspec.errors import UsageError


class _StopMatcher:
    """One stop string, matched character by character (Knuth, Morris, Pratt).

    `matched` is the length of the longest beginning of the stop string that the text so far ends with.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        # fallback[n]: the longest beginning of `stop` that its first n characters also end with.
        self._fallback = [0, 0]
        length = 0
        for character in stop[1:]:
            while length and stop[length] != character:
                length = self._fallback[length]
            length += stop[length] == character
            self._fallback.append(length)

    def feed(self, character: str) -> bool:
        """Take one more character; True when the stop string is complete."""
        matched = self.matched
        while matched and self.stop[matched] != character:
            matched = self._fallback[matched]
        matched += self.stop[matched] == character
        self.matched = matched
        return matched == len(self.stop)


class ReplyText:
    """The text of a reply, built from the bytes of its tokens.

    A token may end inside a UTF-8 character or inside a stop string; both are held back until it is certain
    what they are, so that text once shown never changes. The stop string that is complete first ends the
    reply (the longest, where several end with the same character); it is cut, and so is all that follows.
    How the bytes are divided into pieces makes no difference.

    Args:
        stop: strings that end the reply.

    Raises:
        UsageError: a stop string is empty.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        if not all(stop):
            raise UsageError("A stop string must not be empty; leave it out or give at least one character.")
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # Longest first: of several that end together, the first one found is the one that starts earliest.
        self._matchers = [_StopMatcher(text) for text in sorted(set(stop), key=len, reverse=True)]
        self._first_characters = tuple({text[0] for text in stop})
        self._held = ""
        self._certain: list[str] = []
        self._taken: list[str] = []
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self._stopped

    @property
    def text(self) -> str:
        """All text handed out so far by `take` and `finish`."""
        return "".join(self._taken)

    def push(self, piece: bytes) -> bool:
        """Add the bytes of one token; True when a stop string is now complete and the reply ends with it."""
        if not self._stopped:
            self._feed(self._decoder.decode(piece))
        return self._stopped

    def take(self) -> str:
        """The text that became certain since the last call."""
        if not self._certain:
            return ""
        text = "".join(self._certain)
        self._certain.clear()
        self._taken.append(text)
        return text

    def finish(self) -> str:
        """The rest of the text, now that no token follows; an incomplete UTF-8 character becomes U+FFFD."""
        if not self._stopped:
            self._feed(self._decoder.decode(b"", final=True))
        if not self._stopped:
            self._certain.append(self._held)
            self._held = ""
        return self.take()

    def _feed(self, new: str) -> None:
        if not new:
            return
        if not self._held and not any(first in new for first in self._first_characters):
            self._certain.append(new)
            return
        text = self._held + new
        for end, character in enumerate(new, start=len(self._held) + 1):
            # Every matcher takes the character: a list, not a generator that stops at the first match.
            found = [matcher for matcher in self._matchers if matcher.feed(character)]
            if found:
                self._certain.append(text[: end - len(found[0].stop)])
                self._held = ""
                self._stopped = True
                return
        certain = len(text) - max(matcher.matched for matcher in self._matchers)
        self._certain.append(text[:certain])
        self._held = text[certain:]


# C0 but tab and newline, DEL, C1, line separators, bidirectional controls, lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0:
        # A C1 control is ESC and a letter in one character; Unicode has no picture of its own for it.
        return "\u241b" + chr(code - 0x40)
    if code >= 0xD800:
        return "\ufffd"
    return f"\u2039U+{code:04X}\u203a"


def printable(text: str) -> str:
    """Text that is safe to draw: control characters become visible, newline and tab stay.

    C0 and C1 controls become Unicode's control pictures, so escape sequences are shown and never executed;
    characters that reorder text (bidirectional embeddings, overrides, isolates) or end lines of their own
    (U+2028, U+2029) become their code point in angle quotes, and lone surrogates U+FFFD. Each character is
    treated alone: printing text piece by piece or as a whole gives the same.
    """
    return _UNSAFE.sub(_visible, text)
