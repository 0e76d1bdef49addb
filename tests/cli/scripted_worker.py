"""An engine that speaks the protocol and follows a script, for tests of the pipe's other side.

Called as `scripted_worker.py SCENARIO [--log PATH]`, where the client adds the log.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import asdict

from localspec import messages, wire
from localspec.types import StepStats

STATS = StepStats(
    index=0,
    time_ns=1_000_000,
    position=4,
    budget=8,
    drafted=2,
    accepted=1,
    emitted=2,
    kind="correction",
    source="ngram",
    match_length=3,
    threads=2,
    draft_ns=10,
    verify_ns=20,
    sample_ns=30,
    other_ns=40,
)
MEMORY = messages.MemoryUse((), 1, 2, 3)


class Worker:
    def __init__(self, scenario: str) -> None:
        self.scenario = scenario
        self.commands: queue.SimpleQueue[messages.Command | None] = queue.SimpleQueue()
        self.load: messages.Load | None = None
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in sys.stdin.buffer:
            for command in wire.decode_commands(line):
                self.commands.put(command)
        self.commands.put(None)

    def emit(self, *events: messages.Event) -> None:
        sys.stdout.buffer.write(wire.encode_events(events))
        sys.stdout.buffer.flush()

    def run(self) -> None:
        self.emit(messages.Hello(os.getpid(), "0"))
        while True:
            command = self.commands.get()
            if command is None or isinstance(command, messages.Shutdown):
                return
            if isinstance(command, messages.Load):
                self.on_load(command)
            elif isinstance(command, messages.Generate):
                self.on_generate(command)
            elif isinstance(command, messages.SetSpeculation):
                reason = "switched on" if command.enabled else "switched off"
                self.emit(messages.SpeculationChanged(command.enabled, "ngram", reason))
            elif isinstance(command, messages.SetDrafter):
                self.emit(messages.SpeculationChanged(True, command.draft.spec, "measuring"))

    def on_load(self, command: messages.Load) -> None:
        self.load = command
        if self.scenario == "load-fails":
            self.emit(
                messages.Failed(None, "NotEnoughMemoryError", "It needs 9 GB; lower --context.", "trace")
            )
            return
        if self.scenario == "load-hangs":
            return
        if self.scenario == "load-aborts":
            os.kill(os.getpid(), signal.SIGABRT)
        self.emit(messages.LoadProgress(0.5, "weights"))
        info = messages.ModelInfo(
            path=command.path,
            name=command.name,
            architecture="llama",
            description="scripted",
            parameters=1,
            file_bytes=1,
            vocabulary=1,
            layers=1,
            gpu_layers=0,
            context=64,
            trained_context=64,
            has_chat_template=True,
            can_trim=True,
            sliding_window=0,
            backend="CPU",
            draft=command.options.draft.spec,
            speculation=True,
            speculation_reason="on",
        )
        self.emit(messages.Loaded(info, 0.25, MEMORY))

    def on_generate(self, command: messages.Generate) -> None:
        assert self.load is not None
        opening = "<think>" if self.scenario.startswith("opened") else ""
        self.emit(messages.PrefillProgress(command.id, 2, 4, 0, 0.1, opening))
        if self.scenario == "fails":
            self.step(command, "Half a")
            self.emit(messages.Failed(command.id, "BadLogitsError", "The model returned NaN.", ""))
        elif self.scenario == "dies":
            self.step(command, "Half a")
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.scenario == "aborts":
            self.step(command, "Half a")
            os.kill(os.getpid(), signal.SIGABRT)
        elif self.scenario == "holds back":
            self.step(command, "Whole")
            self.finish(command, "Whole E", "context")
        elif self.scenario in ("endless", "deaf"):
            self.talk_until_cancelled(command)
        elif self.scenario == "echo":
            said = {"load": asdict(self.load), "generate": asdict(command)}
            self.reply(command, [json.dumps(said)])
        elif self.scenario == "thinks":
            self.reply(
                command,
                ["<thi", "nk>\nFirst ", "idea.\n\nSecond \x1b[31midea.\n</thi", "nk>\n\nThe ans", "wer."],
            )
        elif self.scenario == "thinks without end":
            self.reply(command, ["<think>\nFirst", " idea.\n"])
        elif self.scenario == "opened":
            self.reply(command, ["First idea.\n", "</think>\n\nThe answer."])
        elif self.scenario == "opened without end":
            self.reply(command, ["First ", "idea."])
        elif self.scenario == "flood":
            self.reply(command, ["word " * 1000] * 100)
        else:
            self.emit(messages.Note("2 old turns were dropped."))
            self.emit(messages.SpeculationChanged(True, "none", "off: acceptance 22 %, break-even 38 %"))
            self.reply(command, ["Hal", "lo, ", "Wörld \x1b[31m日本"])

    def talk_until_cancelled(self, command: messages.Generate) -> None:
        said = []
        while True:
            self.step(command, "on and ")
            said.append("on and ")
            time.sleep(0.01)
            try:
                order = self.commands.get_nowait()
            except queue.Empty:
                continue
            if order is None:
                sys.exit()
            if isinstance(order, messages.Cancel) and self.scenario == "endless":
                self.finish(command, "".join(said), "cancelled")
                return

    def reply(self, command: messages.Generate, texts: list[str]) -> None:
        for text in texts:
            self.step(command, text)
        self.finish(command, "".join(texts), "stop")

    def step(self, command: messages.Generate, text: str) -> None:
        token = messages.EmittedToken(7, "accepted")
        self.emit(messages.Step(command.id, text, (token,), STATS))

    def finish(self, command: messages.Generate, text: str, reason: str) -> None:
        reply = messages.Reply(
            text=text,
            token_ids=(7, 8),
            finish_reason=reason,
            seed=command.sampling.seed,
            timings=messages.Timings(0.25, 4, 0, 0.1, 0.2, 2, 0.1, 20.0),
            speculation=messages.Speculation(1, 0, 2, 1, 0.5, 2.0, (1, 0), 0.1, 0.2, 0.3, 0.4),
        )
        self.emit(messages.Finished(command.id, reply, 6))


if __name__ == "__main__":
    Worker(sys.argv[1]).run()
