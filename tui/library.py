"""Which model answers: the screen of models, downloads beside the chat, and what a first run offers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import LocalspecError
from localspec.models.choose import Capacity
from localspec.models.entries import ModelEntry
from localspec.runtime.survey import capacity
from tui import choices, figures
from tui.background import in_background
from tui.downloads import Downloads
from tui.keymap import KEYS
from tui.launch import Launch
from tui.model_rows import ModelRow, same_file
from tui.model_words import Coming
from tui.offer import Offer, find_offer, remember_model, setting_of
from tui.widgets.bars import ActivityBar

if TYPE_CHECKING:
    from tui.screens.chat import ChatScreen

TICK_S = 0.25


class Library:
    """What the chat screen does about models.

    Args:
        screen: the chat screen.
        launch: how the app was started.
        acted: to be called after something that the figures should show at once.

    Attributes:
        downloads: models that are fetched beside the chat.
        offer: what is offered in place of the demo model; None where nothing is.
    """

    def __init__(self, screen: ChatScreen, launch: Launch, acted: Callable[[], None]) -> None:
        self._screen, self._acted = screen, acted
        self._demo = launch.model_name if launch.demo else ""
        self._capacity: Capacity | None = None
        self.downloads = Downloads()
        self.offer: Offer | None = None

    def begin(self) -> None:
        """Look for something to offer where no model was named; the chat does not wait for it."""
        self._timer = self._screen.set_interval(TICK_S, self.tick, pause=True)
        if self._demo:
            self._screen.run_worker(self._make_offer(), exit_on_error=False)

    # --- what there is ------------------------------------------------------------------------------

    @property
    def file(self) -> Path | None:
        """File of the model that answers now."""
        return self._screen.chat.setup.file

    def coming_of(self, row: ModelRow) -> Coming | None:
        """How far a row's model is; None where it is not on its way."""
        if row.entry is None or row.sizes:
            return None
        if self._fetches_to_use(row.entry):
            return Coming(running=True, progress=self._screen.chat.setup.fetching)
        found = self.downloads.of(row.entry)
        return Coming(found.running, found.progress, found.error) if found is not None else None

    def _fetches_to_use(self, entry: ModelEntry) -> bool:
        """Whether the chat is to go on with a model that is being fetched."""
        setup = self._screen.chat.setup
        coming = setup.coming_model.entry
        return setup.fetching is not None and coming is not None and coming.source_text == entry.source_text

    def in_use(self, path: Path) -> bool:
        """Whether the engine reads from a file."""
        setup = self._screen.chat.setup
        files = [str(setup.file or ""), *setup.options.draft.files.values()]
        return str(path) in files or any(same_file(path, Path(one)) for one in files if one)

    def capacity(self) -> Capacity:
        """The machine's memory and speed; takes a moment the first time: for a thread."""
        if self._capacity is None:
            self._capacity = capacity()
        return self._capacity

    @property
    def known_capacity(self) -> Capacity | None:
        """The same as far as it has been found out."""
        return self._capacity

    # --- choosing -----------------------------------------------------------------------------------

    def choose(self) -> None:
        """Show the models."""
        from tui.screens.models import ModelsScreen

        self._screen.app.push_screen(ModelsScreen(self), self._picked)

    def _picked(self, name: str | None) -> None:
        if name is not None:
            self.use(name)

    def use(self, name: str) -> None:
        """Go on with another model, which is fetched first where it is missing."""
        self._screen.run_worker(self._use(name))

    async def _use(self, name: str) -> None:
        screen = self._screen
        chat = screen.chat
        try:
            model = await asyncio.to_thread(choices.chosen_model, name)
        except LocalspecError as error:
            screen.show_note(str(error), "error")
            return
        if chat.ready and model.path is not None and model.path == chat.setup.file:
            screen.hint(f"{chat.setup.name} answers already.")
            return
        if model.entry is not None:
            # One that waits in line goes on at once.
            self.downloads.stop(model.entry)
        chat.choose_model(model)
        if model.path is not None and chat.replying:
            screen.hint(f"{model.name} answers after this reply.")
        self._acted()

    # --- downloads ----------------------------------------------------------------------------------

    def fetch(self, entry: ModelEntry) -> None:
        """Fetch a model, to be used later; after those that were asked for before."""
        self.downloads.add(entry)
        self._timer.resume()

    def stop(self, entry: ModelEntry) -> bool:
        """Fetch a model no further; False where it is not fetched, or there is no other to go on with."""
        setup = self._screen.chat.setup
        if self._fetches_to_use(entry):
            if not setup.searching:
                return False
            setup.stay()
            self._acted()
            return True
        return self.downloads.stop(entry)

    def tick(self) -> None:
        """Take note of what was fetched; said in the chat where nobody looks at the models."""
        from tui.screens.models import ModelsScreen

        ended = self.downloads.tick()
        if not isinstance(self._screen.app.screen, ModelsScreen):
            for one in ended:
                if one.error:
                    self._screen.show_note(one.error, "error")
                else:
                    self._screen.show_note(f"{one.entry.name} is here; f7 changes to it.", "note")
        bar = self._screen.query_one("#activity", ActivityBar)
        bar.aside = self._aside()
        bar.update_from(self._screen.chat)
        if not self.downloads.busy:
            self._timer.pause()

    def _aside(self) -> str:
        """How far downloads are, in a few words."""
        running = self.downloads.running
        if running is None:
            return ""
        share = Coming(True, running.progress).share
        words = f"fetching {running.entry.name}" + ("…" if share is None else f" {figures.percent(share)}")
        return f"{words}, {self.downloads.waiting} more" if self.downloads.waiting else words

    def close(self) -> None:
        """Fetch nothing more."""
        self.downloads.close()

    # --- the first run ------------------------------------------------------------------------------

    async def _make_offer(self) -> None:
        demo = self._demo
        offer = await in_background(lambda: find_offer(demo))
        if self._demo:
            self.offer = offer
            self._screen.show_note(offer.sentence, "note")
            self._acted()

    def offers(self, action: str) -> bool:
        """Whether an action is worth a place in the key bar: an offer's are only while there is one."""
        if action == "better_model":
            return self.offer is not None and self.offer.entry is not None
        return self.offer is not None or action != "keep_model"

    def accept(self) -> None:
        """Take what is offered; it is remembered when it answers."""
        screen = self._screen
        if self.offer is None or self.offer.entry is None:
            screen.hint(f"There is nothing on offer; {KEYS['chat.model']} shows all models.")
        elif screen.chat.setup.starting and screen.chat.state.info is None:
            screen.hint(f"{self._demo} comes first; f8 again in a moment.")
        else:
            self.use(self.offer.entry.name)

    def decline(self) -> None:
        """Stay with the demo model, and hear no more of it."""
        demo = self._demo
        if self.offer is None:
            self._screen.hint(f"There is nothing on offer; {KEYS['chat.model']} shows all models.")
            return
        self._settle(demo, f"{demo} stays; f7 shows the others at any time.")

    def follow(self) -> None:
        """Remember the model that was chosen in place of the demo model, once it answers."""
        chat = self._screen.chat
        if not self._demo or chat.state.info is None or chat.setup.name == self._demo:
            return
        self._settle(setting_of(chat.setup.model))

    def _settle(self, model: str, said: str = "") -> None:
        """There is nothing to offer any more, whatever comes of remembering that."""
        self._demo, self.offer = "", None
        self._screen.run_worker(self._remember(model, said))
        self._acted()

    async def _remember(self, model: str, said: str) -> None:
        try:
            kept = await self.keep(model)
        except LocalspecError as error:
            self._screen.show_note(str(error), "error")
        else:
            self._screen.show_note(said or kept, "note")

    async def keep(self, model: str) -> str:
        """Start with a model from now on; returns a sentence that says so.

        Args:
            model: its name, source or path.

        Raises:
            StorageError, UsageError: the settings cannot be changed.
        """
        file = await asyncio.to_thread(remember_model, model)
        self._demo, self.offer = "", None
        return f"localspec starts with {Path(model).name} from now on (model in {file})."
