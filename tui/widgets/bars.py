"""The one-row widgets around the transcript: title, activity, keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len
from textual import events

from localspec.messages import ModelInfo
from localspec.model_files import short_draft_label
from localspec.models.progress import PullProgress
from tui import figures
from tui.chat import Chat
from tui.conversation import title_of
from tui.keymap import KEYS
from tui.keys import KEY_BAR, Action
from tui.state import Phase
from tui.widgets.panel import speculation_words
from tui.widgets.rows import Row, Rows, cut, row_width, spread


class TitleBar(Rows):
    """The product, the model, the conversation, and whether speculation is on."""

    def update_from(self, chat: Chat) -> None:
        """Show the chat's state."""
        self.show([title_row(chat, self.size.width)])


class ActivityBar(Rows):
    """What is going on, in words; a hint takes its place for a moment.

    Attributes:
        aside: what goes on beside the chat, shown while the chat itself is at rest.
    """

    HINT_SECONDS = 4.0
    HINT_ROWS = 3

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.aside = ""
        self._hint = ""
        self._activity: Row = []

    def update_from(self, chat: Chat) -> None:
        """Show the chat's state."""
        row = activity_row(chat) or ([(self.aside, "muted")] if self.aside else [])
        if chat.queued is not None:
            row = [*row, (f"   next: {title_of(chat.queued)}", "accent")]
        self._activity = row
        self._draw()

    def hint(self, text: str) -> None:
        """Show a sentence for a few seconds."""
        self._hint = text
        self._draw()
        self.set_timer(self.HINT_SECONDS, lambda: self._drop(text))

    def _drop(self, text: str) -> None:
        if self._hint == text:
            self._hint = ""
            self._draw()

    def _draw(self) -> None:
        width = self.size.width
        rows: list[Row] = [cut(self._activity, width)]
        if self._hint:
            rows = [[(line, "accent")] for line in wrapped(self._hint, width, self.HINT_ROWS)]
        # What a hint advises stands at its end: in a narrow window it takes more rows for its moment.
        self.styles.height = len(rows)
        self.show(rows)


def wrapped(text: str, width: int, most: int) -> list[str]:
    """A sentence in rows of `width` cells, at most so many; what is left over ends with an ellipsis."""
    rows: list[str] = []
    for word in text.split():
        if rows and cell_len(rows[-1]) + 1 + cell_len(word) <= width:
            rows[-1] += f" {word}"
        elif len(rows) < most:
            rows.append(word)
        else:
            # Too long for its row, so that it is cut where it is shown.
            rows[-1] += f" {word}"
    return ["".join(piece for piece, _ in cut([(row, "")], width)) for row in rows] or [""]


class KeyBar(Rows):
    """The most important keys; a click does what the key does."""

    def __init__(
        self,
        press: Callable[[Action], None],
        actions: Sequence[Action] = KEY_BAR,
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self._press, self._actions = press, actions
        self._places: list[tuple[int, int, Action]] = []

    def update_from(self, usable: Callable[[Action], bool], words: Mapping[str, str] | None = None) -> None:
        """Show the keys that can be used now; those that do not fit are left out.

        Args:
            usable: whether an action can be used.
            words: what actions are called now, by their ids, where that is not their usual word.
        """
        row: list[tuple[str, str]] = []
        self._places = []
        for action in self._actions:
            if not usable(action):
                continue
            key = KEYS.shown(action).replace("ctrl+", "^")
            start = row_width(row) + (2 if row else 0)
            word = (words or {}).get(action.id, action.hint)
            end = start + cell_len(key) + 1 + cell_len(word)
            if end > self.size.width:
                continue
            row += [("  ", "")] if row else []
            row += [(key, "key"), (f" {word}", "muted")]
            self._places.append((start, end, action))
        self.show([row])

    def on_click(self, event: events.Click) -> None:
        """Do what the key under the pointer does."""
        x = event.get_content_offset_capture(self).x
        for start, end, action in self._places:
            if start <= x < end:
                self._press(action)
                return


def title_row(chat: Chat, width: int) -> Row:
    """The title bar's row."""
    state = chat.state
    word, style = speculation_words(state)
    mark = "●" if word == "on" else "○"
    right: Row = [
        (f"{mark} ", style),
        ("speculation ", "muted"),
        (word, style),
        *cut([(f" · {short_draft_label(state.draft)}", "muted")], max(width // 4, 8)),
        *([] if state.exact else [(" · lossy", "warning")]),
    ]
    left: list[tuple[str, str]] = [("localspec", "accent"), ("  ", ""), (chat.setup.name, "value")]
    if chat.private:
        left.append(("  private", "warning"))
    if state.info is not None and width >= 100:
        left.append((f"  {model_words(state.info)}", "muted"))
    if chat.conversation.title:
        left.append((f"  ›  {chat.conversation.title}", "muted"))
    return spread(left, right, width)


def model_words(info: ModelInfo) -> str:
    """Architecture, size and quantization; the size counted, since llama.cpp's label is of a model class."""
    architecture, _, rest = info.description.partition(" ")
    return f"{architecture} {figures.parameters(info.parameters)} {rest.partition(' ')[2]}".strip()


def activity_row(chat: Chat) -> Row:
    """What is going on."""
    state = chat.state
    if chat.setup.fetching is not None:
        return _fetching(chat.setup.fetching, chat.setup.coming)
    if chat.stopping:
        return [
            ("Stopping…", "muted"),
            (f"  {KEYS['chat.stop']} again ends an engine that does not answer", "faint"),
        ]
    if chat.busy and not chat.replying:
        return [(f"Ending {chat.desk.errand}…", "muted")]
    match state.phase:
        case Phase.STARTING:
            what = "Looking for the model" if chat.setup.finder.running else "Starting the engine"
            return [(f"{what}…", "muted")]
        case Phase.LOADING:
            share = state.load.fraction if state.load else 0.0
            return [(f"Loading {chat.setup.coming}  ", "muted"), *_meter(share)]
        case Phase.PREFILL:
            return _prefill(chat)
        case Phase.WRITING:
            tokens = state.reply.emitted
            thinking = chat.thoughts.reasoning.thinking
            return [("Thinking" if thinking else "Writing", "good"), (f"  {tokens} tokens", "muted")]
        case Phase.DOWN:
            if chat.failure is not None:
                return [
                    ("No model. ", "bad"),
                    (f"The next message tries again; {KEYS['app.quit']} quits.", "muted"),
                ]
            return [("The engine has stopped. ", "bad"), ("The next message starts it again.", "muted")]
        case Phase.READY if chat.branches.editing is not None:
            return [
                ("Editing a message", "accent"),
                (f"  enter asks it anew, {KEYS['chat.stop']} leaves it be", "muted"),
            ]
        case Phase.READY:
            if state.load is not None:
                return [("Loading the draft model  ", "muted"), *_meter(state.load.fraction)]
            return [(f"{chat.setup.coming} comes next…", "muted")] if chat.setup.switching else []


def _prefill(chat: Chat) -> Row:
    progress = chat.state.prefill
    if progress is None:
        return [("Reading the prompt…", "muted")]
    new, done = progress.total - progress.cached, progress.done - progress.cached
    row: list[tuple[str, str]] = [
        ("Reading the prompt ", "muted"),
        *_meter(progress.done / progress.total if progress.total else 1.0),
        (f"  {done} of {new} tokens", "muted"),
    ]
    if progress.cached:
        row.append((f", {progress.cached} known", "muted"))
    if progress.elapsed_s > 0.2 and done > 0:
        row.append((f"  {figures.rate(done / progress.elapsed_s)} tok/s", "muted"))
    return row


def _fetching(progress: PullProgress, model_name: str) -> Row:
    verb = progress.stage.capitalize()
    row: list[tuple[str, str]] = [(f"{verb} {model_name}  ", "muted")]
    if progress.total_bytes:
        row += _meter(progress.done_bytes / progress.total_bytes)
        row.append((f"  {figures.sizes(progress.done_bytes, progress.total_bytes)}", "muted"))
    elif progress.done_bytes:
        row.append((figures.size(progress.done_bytes), "value"))
    if progress.rate:
        row.append((f"  {figures.size(progress.rate)}/s", "muted"))
    remaining = progress.remaining_s
    if remaining is not None:
        row.append((f"  {figures.duration(remaining)} left", "muted"))
    return row


def _meter(share: float, width: int = 10) -> list[tuple[str, str]]:
    filled, rest = figures.bar(share, width)
    return [(filled, "bar"), (rest, "track"), (f" {share * 100:3.0f} %", "value")]
