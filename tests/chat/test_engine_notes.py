from __future__ import annotations

from pathlib import Path

from localspec.engine import Engine
from localspec.messages import Event, Generate, Note
from localspec.types import DraftOptions, EngineOptions, SamplingParams
from tests.chat.shapes import Shape, user, write_model


def test_the_engine_tells_of_template_and_switch_once(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny-chat.gguf", Shape("{{ broken", ("<s>", "</s>")).tokenizer())
    options = EngineOptions(context=128, threads=1, gpu_layers=0, draft=DraftOptions("none"))
    engine = Engine(path, "tiny", options)
    try:
        (note,) = engine.take_notes()
        assert note.startswith("The model's chat template cannot be used (line 1: ")
        assert engine.take_notes() == []
        events: list[Event] = []
        for number in range(2):
            request = Generate(
                number, (user("Hi"),), sampling=SamplingParams(temperature=0), max_tokens=2, think=True
            )
            engine.generate(request, events.append)
        told = [event.text for event in events if isinstance(event, Note)]
        assert len(told) == 1
        assert "no switch for thinking" in told[0]
    finally:
        engine.close()
