"""How a chat asks for replies: with the sampling of the model, of the launch, and of the conversation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from localspec.messages import Generate
from localspec.settings import fresh_seed
from localspec.types import ChatMessage, SamplingParams
from tui.conversation import Conversation
from tui.launch import Launch
from tui.setup import Setup


class Requests:
    """Writes requests; what a conversation has of its own beats what the app was started with.

    Args:
        launch: what the app was started with.
        setup: the model.
        number: a new number for each request.
    """

    def __init__(self, launch: Launch, setup: Setup, number: Callable[[], int]) -> None:
        self._launch, self._setup, self._number = launch, setup, number

    @property
    def max_tokens(self) -> int | None:
        """The longest reply, in tokens."""
        return self._launch.max_tokens

    def think(self, conversation: Conversation) -> bool | None:
        """Whether models reason first; None leaves it to them."""
        own = conversation.wishes.think
        return self._launch.think if own is None else own

    def fixed_seed(self, conversation: Conversation) -> int | None:
        """The seed of all replies; None where each has its own."""
        if conversation.wishes.seed is not None:
            return conversation.wishes.seed
        return None if self._setup.fresh_seeds else self._setup.sampling.seed

    def sampling(self, conversation: Conversation) -> SamplingParams:
        """How the next reply is sampled; the seed is a new one where none is fixed."""
        seed, temperature = self.fixed_seed(conversation), conversation.wishes.temperature
        sampling = replace(self._setup.sampling, seed=fresh_seed() if seed is None else seed)
        return sampling if temperature is None else replace(sampling, temperature=temperature)

    def reply(
        self, conversation: Conversation, messages: tuple[ChatMessage, ...], max_tokens: int | None
    ) -> Generate:
        """A request for a reply to `messages` in a conversation; it is to be sent once."""
        return Generate(
            self._number(),
            messages=messages,
            sampling=self.sampling(conversation),
            max_tokens=max_tokens,
            conversation=conversation.memory_name,
            think=self.think(conversation),
        )
