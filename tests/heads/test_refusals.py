"""What llama.cpp would end the process over is refused in a sentence, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from localspec.errors import EngineError, IncompatibleError, NotEnoughMemoryError
from localspec.models.fit import Machine
from localspec.models.gguf import read_header
from localspec.models.heads import head_facts
from localspec.runtime import ext as ext_module
from localspec.runtime import head as head_module
from localspec.runtime import head_loading
from localspec.runtime.context import LlamaContext
from localspec.runtime.ext import Ext
from localspec.runtime.head import Kind
from localspec.runtime.library import lib
from localspec.runtime.loading import load
from localspec.runtime.model import LlamaModel
from localspec.types import DraftOptions, EngineOptions
from tests.heads import alphabet, refusals_child
from tests.heads.making import Made

KINDS: tuple[Kind, ...] = ("eagle3", "mtp", "dflash", "dspark")
_INCOMPATIBLE = {
    "widths of another model",
    "prediction layers that are not loaded",
    "a block beyond a pass",
    "features of another width",
    "a tap beyond the layers",
    "a tap after the last layer",
    "a tap before the first layer",
}

Run = Callable[[Kind], dict[str, tuple[str, str]]]


@pytest.fixture(scope="module")
def refused(made: Made) -> Run:
    """Runs a kind's cases once; the error's class and sentence by case."""
    known: dict[Kind, dict[str, tuple[str, str]]] = {}

    def run(kind: Kind) -> dict[str, tuple[str, str]]:
        if kind not in known:
            target = made(alphabet.target_mtp if kind == "mtp" else alphabet.target)
            head = target if kind == "mtp" else made(getattr(alphabet, kind))
            done = subprocess.run(
                [sys.executable, "-m", refusals_child.__name__, kind, str(target), str(head)],
                env={**os.environ, "GGML_NO_BACKTRACE": "1"},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            lines = [line.split("\t") for line in done.stdout.splitlines()]
            known[kind] = {name: (error, sentence) for name, error, sentence in lines}
            missing = [name for name in refusals_child.cases(kind) if name not in known[kind]]
            assert not missing, f"ended at {missing[0]!r} with {done.returncode}: {done.stderr[-400:]}"
            assert done.returncode == 0, done.stderr[-400:]
        return known[kind]

    return run


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in KINDS for name in refusals_child.cases(kind)]
)
def test_it_is_refused_in_a_sentence(refused: Run, kind: Kind, name: str) -> None:
    error, sentence = refused(kind)[name]
    wanted = IncompatibleError if name in _INCOMPATIBLE else EngineError
    assert error == wanted.__name__
    assert refusals_child.cases(kind)[name][1] in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


class Without:
    """The native library without one of its functions."""

    def __init__(self, symbol: str) -> None:
        self._symbol = symbol

    def __getattr__(self, name: str) -> object:
        if name == self._symbol:
            raise AttributeError(name)
        return getattr(lib()._lib, name)


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Ext:
    """The functions of a library that cannot hand out the inputs of layers."""
    found = Ext(Without("_Z30llama_set_embeddings_layer_inpP13llama_contextjb"))
    monkeypatch.setattr(ext_module, "ext", lambda: found)
    return found


def test_a_function_that_the_library_lacks_is_named(lacking: Ext) -> None:
    assert lacking.missing == ["set_layer_input"]
    said = ext_module.missing()
    assert said is not None
    assert "set_layer_input" in said
    assert "update llama-cpp-python" in said
    with pytest.raises(IncompatibleError, match="set_layer_input"):
        lacking.set_layer_input(None, 0, True)


def test_a_head_is_refused_where_the_library_lacks_one(monkeypatch: pytest.MonkeyPatch, lacking: Ext) -> None:
    assert lacking.missing
    monkeypatch.setattr(head_module, "missing", ext_module.missing)
    model = cast("LlamaModel", SimpleNamespace(with_prediction=False))
    with pytest.raises(IncompatibleError, match="update llama-cpp-python"):
        head_module.LlamaHead(
            model, cast("LlamaContext", None), refusals_child.shape_of("eagle3"), capacity=64
        )


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_estimated_and_what_does_not_fit_is_refused(
    made: Made, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = made(alphabet.target_mtp if kind == "mtp" else alphabet.target)
    head = target if kind == "mtp" else made(getattr(alphabet, kind))
    draft = DraftOptions(kind, files={kind: str(head)})
    options = EngineOptions(context=4096, threads=1, gpu_layers=0, draft=draft)
    facts = head_facts(read_header(head))
    assert facts is not None
    loaded = load(target, options)
    try:
        opened = head_loading.load_head(facts, loaded, options, draft)
        estimated, used = opened.footprint.buffers_bytes, opened.used_bytes
        opened.close()
        opened.close()
        # Of windowed layers two masks are reckoned with, which is much beside a model this small.
        assert used * 0.8 < estimated < used * 2
        monkeypatch.setattr(head_loading, "free_memory", lambda _: Machine(free_ram=2**20))
        with pytest.raises(NotEnoughMemoryError, match="are free; choose a smaller --context") as raised:
            head_loading.load_head(facts, loaded, options, draft)
        assert raised.value.exit_code == 5
    finally:
        loaded.close()
