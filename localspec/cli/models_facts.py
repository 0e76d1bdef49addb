"""What `localspec models list` and `show` tell of a model, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.models.choose import Capacity
    from localspec.models.entries import ModelEntry
    from localspec.models.families import Family
    from localspec.models.gguf import GGUFHeader

_CONTEXTS = (2048, 8192, 32768)
_BUFFERS = 512 * 2**20
"""Intermediate results and what the runtime takes, of a model whose file is not here."""
_PLACES = {"gpu": "GPU", "both": "GPU + CPU", "cpu": "CPU"}


@dataclass(frozen=True, slots=True)
class Fit:
    """How a model runs on this machine.

    Attributes:
        place: where its layers go, None where it does not fit or nothing is known of its size.
        slow: whether it fits and is slower than people read.
        tokens_per_second: expected speed without drafts, None where it is not known.
        text: all of it in a few letters.
    """

    place: str | None
    slow: bool
    tokens_per_second: float | None
    text: str


def capacity() -> Capacity:
    """What this machine has."""
    from localspec.runtime.survey import capacity as survey

    return survey()


def fit(entry: ModelEntry, machine: Capacity) -> Fit:
    """How a model runs on a machine."""
    from localspec.models.choose import alone, estimated_bytes

    if entry.head:
        return Fit(None, slow=False, tokens_per_second=None, text="with its model")
    if not estimated_bytes(entry):
        return Fit(None, slow=False, tokens_per_second=None, text="-")
    choice = alone(entry, machine)
    if not choice.fits:
        return Fit(None, slow=False, tokens_per_second=None, text="too large")
    place = _PLACES[choice.place]
    text = place if choice.suits else f"{place}, slow"
    return Fit(choice.place, not choice.suits, choice.tokens_per_second, text)


def entry_facts(entry: ModelEntry, machine: Capacity) -> dict[str, Any]:
    """A registry's entry, the same keys for every model."""
    from localspec.models import store
    from localspec.models.choose import estimated_bytes

    here = store.fetched(entry)
    found = fit(entry, machine)
    shape = entry.shape
    return {
        "name": entry.name,
        "description": entry.description,
        "fetched": here is not None,
        "path": str(here) if here else None,
        "source": [str(source) for source in entry.sources],
        "size": entry.size or estimated_bytes(entry) or None,
        "sha256": entry.sha256,
        "license": entry.license,
        "family": entry.family,
        "parameters": entry.parameters,
        "quantization": entry.quantization,
        "quantizations": list(entry.quantizations),
        "context": entry.context,
        "thinking": entry.thinking,
        "sampling": entry.sampling.given(),
        "drafts": list(entry.drafts),
        "head": entry.head or None,
        "target": entry.target or None,
        "weights": shape.weights if shape else None,
        "active_weights": shape.active if shape else None,
        "checked": entry.checked.isoformat() if entry.checked else None,
        "runs_on": found.place,
        "slow": found.slow,
        "tokens_per_second": found.tokens_per_second,
        "fit": found.text,
        "defined_in": str(entry.origin) if entry.origin else None,
    }


def family_facts(family: Family, machine: Capacity) -> dict[str, Any]:
    """A family, and which of its sizes this machine runs."""
    from localspec.models.choose import choose

    chosen = choose(family, machine) if family.sizes else None
    return {
        "name": family.name,
        "description": family.description,
        "license": family.license,
        "thinking": family.thinking,
        "context": family.context,
        "sampling": family.sampling.given(),
        "checked": family.checked.isoformat() if family.checked else None,
        "recommended": family.recommended,
        "sizes": [entry.name for entry in family.sizes],
        "chosen": chosen.entry.name if chosen else None,
        "chosen_quantization": chosen.entry.quantization if chosen else None,
        "suits": chosen.suits if chosen else False,
        "reason": chosen.reason if chosen else None,
    }


def header_facts(header: GGUFHeader) -> dict[str, Any]:
    """What a file says of itself."""
    experts, used = header.experts
    return {
        "size": header.file_bytes,
        "files": max(header.split_count, 1),
        "architecture": header.architecture,
        "title": header.name,
        "parameters": header.size_label,
        "weights": header.parameters,
        "experts": f"{experts}, {used} of them used" if experts else None,
        "quantization": header.file_type,
        "layers": header.block_count,
        "width": header.embedding_length,
        "vocabulary": header.vocabulary,
        "trained_context": header.context_length,
        "sliding_window": header.sliding_window or None,
        "tokenizer": header.tokenizer,
        "chat_template": header.has_chat_template,
        "memory": _memory_of(header),
    }


def _memory_of(header: GGUFHeader) -> dict[str, Any]:
    """What the model takes with all its layers in one memory, in bytes."""
    from localspec.errors import EngineError
    from localspec.models import fit as fitting
    from localspec.runtime.devices import repacked_types

    try:
        repacked = repacked_types()
    except EngineError:
        # Without a usable llama.cpp there is nothing to ask; what a file holds can be shown all the same.
        repacked = frozenset()
    trained = header.context_length or fitting.DEFAULT_CONTEXT
    context = min(trained, fitting.DEFAULT_CONTEXT)
    at = {
        size: fitting.sizes(header, context=size, batch=min(512, size), repacked=repacked)
        for size in _contexts(trained)
    }
    usual = at[context]
    return {
        "weights": usual.weights_bytes,
        "repacked": usual.repacked_bytes,
        "kv_cache": usual.kv_bytes,
        "kv_cache_context": context,
        "kv_caches": {str(size): sizes.kv_bytes for size, sizes in at.items()},
        "buffers": usual.compute_bytes + usual.output_bytes,
        "other": usual.other_bytes,
        "needed": usual.needed_bytes,
        "total": usual.total_bytes,
    }


def memory_of_entry(entry: ModelEntry) -> dict[str, Any] | None:
    """The same as far as the registry tells, for a model that is not here; None where it does not."""
    from localspec.models.choose import estimated_bytes
    from localspec.models.fit import DEFAULT_CONTEXT

    weights = estimated_bytes(entry)
    if not weights or entry.shape is None:
        return None
    trained = entry.context or DEFAULT_CONTEXT
    context = min(trained, DEFAULT_CONTEXT)
    caches = {size: entry.shape.cache_bytes * size for size in _contexts(trained)}
    needed = weights + caches[context] + _BUFFERS
    return {
        "weights": weights,
        "repacked": 0,
        "kv_cache": caches[context],
        "kv_cache_context": context,
        "kv_caches": {str(size): count for size, count in caches.items()},
        "buffers": _BUFFERS,
        "other": 0,
        "needed": needed,
        "total": needed,
    }


def _contexts(trained: int) -> list[int]:
    return sorted({min(size, trained) for size in (*_CONTEXTS, trained)})


def drafters(entry: ModelEntry | None, header: GGUFHeader | None) -> list[dict[str, Any]]:
    """Who can draft for this model: those made for it, and of what is here all that its file allows.

    Each with "name" (as `--draft` takes it), "fetched", "size", "head" (its kind, such as "DFlash", null for
    a draft model), "family" (whether it is of the same one), "vocabulary" ("same", "alike" or "other" where
    files tell), and "refusal" (why a head that was made for it cannot draft, else null).
    """
    from localspec.errors import LocalspecError
    from localspec.models import registry, store
    from localspec.models.choose import estimated_bytes
    from localspec.models.compat import check_draft_file
    from localspec.models.entries import HEADS
    from localspec.models.gguf import read_header
    from localspec.models.installed import installed

    catalogue = registry.catalogue()
    known = catalogue.models
    found: dict[str, dict[str, Any]] = {}
    for name in entry.drafts if entry is not None else ():
        if name.partition(":")[0] in HEADS:
            continue
        one = known.get(name)
        found[name] = _drafter(
            name,
            fetched=one is not None and store.fetched(one) is not None,
            size=estimated_bytes(one) or None if one is not None else None,
            family=one is not None and _same_family(entry, one),
        )
    for one, path in installed(catalogue) if header is not None else ():
        if header is None or one.head:
            continue
        try:
            draft = read_header(path)
            check_draft_file(draft, target=header)
        except LocalspecError:
            found.pop(one.name, None)
            continue
        found[one.name] = _drafter(
            one.name,
            fetched=True,
            size=draft.file_bytes,
            family=_same_family(entry, one),
            vocabulary=_vocabulary(header, draft),
        )
    models = sorted(found.values(), key=lambda one: (not one["fetched"], one["vocabulary"] == "other"))
    return [*_heads(entry, header), *models]


def _heads(entry: ModelEntry | None, header: GGUFHeader | None) -> list[dict[str, Any]]:
    """Heads that were made for a model; those that are here are compared with its file."""
    from localspec.errors import LocalspecError
    from localspec.model_choice import heads_of
    from localspec.models.entries import HEADS
    from localspec.models.gguf import read_header
    from localspec.models.heads import check_draft
    from localspec.models.registry import Resolved

    name = entry.name if entry is not None else header.path.stem if header is not None else ""
    model = Resolved(name=name, path=None if header is None else header.path, entry=entry)
    found = []
    for head in heads_of(model):
        path = head.resolved.path
        size, refusal = None if head.resolved.entry is None else head.resolved.entry.size, None
        if path is not None:
            try:
                own = read_header(path)
                size = None if path == model.path else own.file_bytes
                if header is not None:
                    check_draft(head.member, own, header)
            except LocalspecError as error:
                refusal = str(error)
        found.append(
            _drafter(head.member, fetched=path is not None, size=size, head=HEADS[head.kind], refusal=refusal)
        )
    return found


def _drafter(name: str, **known: Any) -> dict[str, Any]:
    plain = {
        "fetched": False,
        "size": None,
        "head": None,
        "family": False,
        "vocabulary": None,
        "refusal": None,
    }
    return {"name": name, **plain, **known}


def _same_family(entry: ModelEntry | None, one: ModelEntry) -> bool:
    return entry is not None and bool(entry.family) and one.family == entry.family


def _vocabulary(target: GGUFHeader, draft: GGUFHeader) -> str:
    from localspec.models.compat import MOST_EXTRA, compare_headers

    if compare_headers(target, draft) is not None:
        return "same"
    alike = (draft.tokenizer, draft.pre_tokenizer) == (target.tokenizer, target.pre_tokenizer)
    return "alike" if alike and abs(draft.vocabulary - target.vocabulary) <= MOST_EXTRA else "other"
