"""Tokens set as flowing text: where each of them stands, with everything invisible made visible."""

from __future__ import annotations

import codecs
import unicodedata
from dataclasses import dataclass

from rich.cells import cell_len, get_character_cell_size

from localspec.messages import Spelling
from localspec.text import printable
from tui.tokens import Item, ItemKind

MARKS: dict[ItemKind, str] = {"accepted": "›", "bonus": "»", "correction": "≠", "own": "", "ghost": "×"}
"""What stands before a token, so that its kind can be read without colour."""

SPACE, NEWLINE, TAB = "·", "↵", "⇥"

_SPACES = {"\u00a0": "⍽", "\u2007": "⍽", "\u202f": "⍽"}


def label(spelling: Spelling) -> str:
    """A token by itself, on one row."""
    if spelling.kind == "bytes":
        return f"‹{spelling.text}›"
    return visible(spelling.text).replace("\n", "")


def visible(text: str) -> str:
    """Text in which nothing is invisible and nothing has an effect; newlines stay beside their sign."""
    if text.isascii() and text.isprintable():
        return text.replace(" ", SPACE)
    shown = "".join(_visible(character) for character in printable(text))
    # An accent at the beginning needs something to stand on.
    return f"◌{shown}" if shown and get_character_cell_size(shown[0]) == 0 else shown


def _visible(character: str) -> str:
    match character:
        case " ":
            return SPACE
        case "\n":
            return NEWLINE + "\n"
        case "\t":
            return TAB
    if character in _SPACES:
        return _SPACES[character]
    category = unicodedata.category(character)
    if category in ("Cf", "Zl", "Zp", "Zs", "Cn", "Co") or 0xFE00 <= ord(character) <= 0xFE0F:
        return f"‹U+{ord(character):04X}›"
    return character


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a row: `style` is a token's kind, "mark" or "blank"; `item` is the token's number."""

    text: str
    style: str
    item: int
    start: int
    width: int


class TokenFlow:
    """Rows of tokens, which grow at the end.

    Args:
        width: cells of a row.
        ghosts: whether refused tokens are shown.

    Attributes:
        items: all tokens that were added, shown or not.
        rows: pieces of each row, from left to right.
    """

    def __init__(self, width: int, *, ghosts: bool) -> None:
        self._width = max(width, 8)
        self.ghosts = ghosts
        self.items: list[Item] = []
        self.rows: list[list[Piece]] = [[]]
        self._row_of: dict[int, int] = {}
        self._used = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    def add(self, item: Item, spelling: Spelling, *, last_ghost: bool = False) -> None:
        """One more token; `last_ghost` says that the next one is no ghost of the same pass."""
        number = len(self.items)
        self.items.append(item)
        if item.ghost and not self.ghosts:
            return
        first_ghost = item.ghost and (number == 0 or not self.items[number - 1].ghost)
        text = self._text(item, spelling)
        mark = ("[" if first_ghost else "") + MARKS[item.kind]
        closing = "]" if last_ghost else ""
        whole = text.rstrip("\n")
        needed = cell_len(mark) + cell_len(whole) + len(closing)
        if self._used and "\n" not in whole and self._used + needed > self._width:
            self._break()
        self._row_of[number] = len(self.rows) - 1
        if mark:
            # A mark does not stand alone at the end of a row.
            if self._used + cell_len(mark) + 1 > self._width:
                self._break()
                self._row_of[number] = len(self.rows) - 1
            self._put(mark, "mark", number)
        for part in text.splitlines(keepends=True):
            self._fold(part.removesuffix("\n"), item.kind, number)
            if part.endswith("\n") and not item.ghost:
                self._break()
        if closing:
            self._fold(closing, "mark", number)

    def row_of(self, number: int) -> int:
        """The row in which a token begins; 0 for one that is not shown."""
        return self._row_of.get(number, 0)

    def shown(self, number: int) -> bool:
        """Whether a token is on any row."""
        return number in self._row_of

    def start_of(self, number: int) -> int:
        """The cell at which a token begins in its row."""
        row = self.rows[self.row_of(number)]
        return next((piece.start for piece in row if piece.item == number), 0)

    def at(self, row: int, cell: int) -> int | None:
        """The token at a place, or the one nearest to it in its row; None where the row has none."""
        if not 0 <= row < len(self.rows) or not self.rows[row]:
            return None
        found = next((piece for piece in self.rows[row] if cell < piece.start + piece.width), None)
        return (found or self.rows[row][-1]).item

    # --- inner steps

    def _text(self, item: Item, spelling: Spelling) -> str:
        """What is written for a token; the last one of a character in pieces shows it whole."""
        if item.ghost:
            return label(spelling)
        if spelling.kind == "bytes":
            whole = self._decoder.decode(bytes.fromhex(spelling.text))
            return label(spelling) + visible(whole)
        self._decoder.reset()
        return visible(spelling.text)

    def _put(self, text: str, style: str, item: int) -> None:
        width = cell_len(text)
        if width:
            self.rows[-1].append(Piece(text, style, item, self._used, width))
            self._used += width

    def _fold(self, text: str, style: str, item: int) -> None:
        """Put text, over several rows where it is longer than what is left of this one."""
        run, kind = "", style
        room = self._width - self._used
        for character in text:
            cells = get_character_cell_size(character)
            wanted = "blank" if character in (SPACE, NEWLINE, TAB) else style
            if cells > room or wanted != kind:
                self._put(run, kind, item)
                run, kind = "", wanted
            if cells > room:
                self._break()
                room = self._width
            run += character
            room -= cells
        self._put(run, kind, item)

    def _break(self) -> None:
        self.rows.append([])
        self._used = 0
