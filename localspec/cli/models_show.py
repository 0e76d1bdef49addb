"""`localspec models list` and `show`: what is known, what is here, and what a file holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.models_output import JsonOption, print_facts, print_json, print_table, readable

if TYPE_CHECKING:
    from localspec.models.choose import Capacity
    from localspec.models.entries import ModelEntry
    from localspec.models.families import Catalogue, Family

_THINKING = {"switch": "as you like, by --think or --no-think", "always": "always, before every reply"}
_VOCABULARY = {"same": "same vocabulary", "alike": "much the same vocabulary", "other": "through text"}


def list_models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A family: show its sizes and quantizations.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show every size of every family.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what is on this machine and what can be fetched, and how it would run here."""
    from localspec.cli.models_facts import capacity, entry_facts, family_facts
    from localspec.models import registry
    from localspec.models.installed import every_file

    known = registry.catalogue()
    machine = capacity()
    families = list(known.families.values())
    entries: Sequence[ModelEntry] = every_file(known) if as_json else list(known.models.values())
    if name is not None:
        family = known.family(name)
        families = [] if family is None else [family]
        entries = [registry.find_entry(name)] if family is None else family.sizes
        if as_json and families:
            entries = [file for entry in entries for file in known.files_of(entry.name)]
    if as_json:
        print_json(
            {
                "models": [entry_facts(entry, machine) for entry in entries],
                "families": [family_facts(family, machine) for family in families],
            }
        )
    elif name is not None or everything:
        _print_exact(entries, known, machine, described=name is None)
    else:
        _print_overview(known, machine)


def _print_overview(known: Catalogue, machine: Capacity) -> None:
    """What is here, then what can be fetched, a line a family."""
    from localspec.models.installed import installed

    here = [entry for entry, _ in installed(known)]
    if here:
        typer.echo("On this machine:")
        rows = [("NAME", "SIZE", "RUNS ON", "DESCRIPTION")]
        rows += [(one.name, _bytes_of(one), _runs_on(one, machine), one.description) for one in here]
        print_table(rows)
        typer.echo()
    typer.echo("To fetch, with `localspec models pull NAME` or --model NAME:")
    rows = [("NAME", "SIZES", "BEST HERE", "DESCRIPTION")]
    of_families = {entry.name for family in known.families.values() for entry in family.sizes}
    for family in known.families.values():
        rows.append((family.name, _range(family), _best_here(family, machine), family.description))
    for entry in known.models.values():
        if entry.name not in of_families and entry not in here:
            rows.append((entry.name, entry.parameters or "-", _best_alone(entry, machine), entry.description))
    print_table(rows)
    typer.echo("\n`localspec models list NAME` shows the sizes of a family, --all every model.")


def _print_exact(
    entries: Iterable[ModelEntry], known: Catalogue, machine: Capacity, *, described: bool
) -> None:
    """A line a model, with those of its quantizations that are here."""
    from localspec.models import store

    rows = [("NAME", "SIZE", "RUNS ON", "HERE", "DESCRIPTION" if described else "QUANTIZATIONS")]
    for entry in entries:
        files = known.files_of(entry.name) or (entry,)
        fetched = [one.quantization or "yes" for one in files if store.fetched(one) is not None]
        here = ", ".join(fetched) or "no"
        last = entry.description if described else ", ".join(entry.quantizations) or entry.quantization
        rows.append((entry.name, _bytes_of(entry), _runs_on(entry, machine), here, last))
    print_table(rows)


def _range(family: Family) -> str:
    labels = [entry.name.removeprefix(f"{family.name}-") for entry in family.sizes]
    # Not joined by a dash, which is a part of some.
    return labels[0] if len(labels) == 1 else f"{labels[-1]} to {labels[0]}" if labels else "-"


def _best_here(family: Family, machine: Capacity) -> str:
    from localspec.cli.models_facts import fit
    from localspec.models.choose import choose

    if not family.sizes:
        return "-"
    choice = choose(family, machine)
    name, size = choice.entry.name.removeprefix(f"{family.name}-"), _bytes_of(choice.entry)
    if choice.suits:
        return f"{name}, {size}"
    return "too large" if fit(choice.entry, machine).place is None else f"{name}, slow"


def _best_alone(entry: ModelEntry, machine: Capacity) -> str:
    from localspec.cli.models_facts import fit

    found = fit(entry, machine)
    return _bytes_of(entry) if found.place is not None and not found.slow else found.text


def _runs_on(entry: ModelEntry, machine: Capacity) -> str:
    from localspec.cli.models_facts import fit

    return fit(entry, machine).text


def _bytes_of(entry: ModelEntry) -> str:
    from localspec.models.choose import estimated_bytes

    return readable(estimated_bytes(entry)) or "-"


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME|PATH", help="A known model, a family of models, or a GGUF file.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Describe a model: where it is from, what its file holds, the memory it takes, and who can draft for it.

    Only the file's header is read, and nothing is fetched.
    """
    from localspec.models import registry

    family = registry.catalogue().family(name)
    facts = _of_family(family) if family is not None else _of_model(name)
    if as_json:
        print_json(facts)
        return
    shown = _shown(facts)
    print_facts(
        {
            key.replace("_", " "): _readable(key, value)
            for key, value in shown.items()
            if value not in (None, "", {}, [])
        }
    )
    if family is None and not facts["fetched"]:
        entry = registry.find_entry(name)
        gone = f"Its file is gone: there is no {entry.sources[0]}; `localspec models rm {name}` forgets it."
        typer.echo(gone if entry.is_local else f"Not fetched yet: `localspec models pull {name}`.", err=True)


def _of_family(family: Family) -> dict[str, Any]:
    from localspec.cli.models_facts import capacity, entry_facts, family_facts

    machine = capacity()
    facts = family_facts(family, machine)
    return {**facts, "sizes": [entry_facts(entry, machine) for entry in family.sizes]}


def _of_model(name: str) -> dict[str, Any]:
    from localspec.cli.models_facts import (
        capacity,
        drafters,
        entry_facts,
        header_facts,
        memory_of_entry,
    )
    from localspec.models import registry
    from localspec.models.gguf import read_header
    from localspec.models.lookalikes import purpose

    found = registry.resolve(name)
    entry = found.entry
    header = read_header(found.path) if found.path is not None else None
    facts: dict[str, Any] = {"name": found.name, "fetched": True, "path": str(found.path)}
    if entry is not None:
        facts = entry_facts(entry, capacity())
    if header is not None:
        facts |= {key: value for key, value in header_facts(header).items() if value or key not in facts}
        what = purpose(header)
        facts |= {"no_model": f"This is {what}."} if what else {"drafters": drafters(entry, header)}
    elif entry is not None:
        facts |= {"memory": memory_of_entry(entry), "drafters": drafters(entry, None)}
        # Told by `drafters`, with what is here.
    facts.pop("drafts", None)
    return facts


def _shown(facts: dict[str, Any]) -> dict[str, Any]:
    """What of it is for people: nothing that says the same twice."""
    shown = {key: value for key, value in facts.items() if key not in ("suits", "slow")}
    fit = shown.pop("fit", None)
    shown["made_for"] = shown.pop("target", None)
    if fit:
        # Nothing is known of a source that no list has.
        shown["runs_on"] = fit.removeprefix("-")
    if shown.get("files") == 1:
        shown.pop("files")
    if shown.get("chosen"):
        shown["chosen"] = f"{shown['chosen']} {shown.pop('chosen_quantization')}".rstrip()
    if shown.get("active_weights") == shown.get("weights"):
        shown.pop("active_weights", None)
    if len(shown.get("quantizations", ())) < 2:
        shown.pop("quantizations", None)
    return shown


def _readable(key: str, value: Any) -> str:
    match key:
        case "size":
            return readable(value)
        case "thinking":
            return str(_THINKING.get(value, value))
        case "memory":
            return _readable_memory(value)
        case "head":
            from localspec.models.entries import HEADS

            return HEADS.get(value, str(value))
        case "drafters":
            return "\n".join(map(_readable_drafter, value))
        case "sizes":
            return "\n".join(map(_readable_size, value))
        case "tokens_per_second":
            return f"about {value:.0f} without drafts"
        case "weights" | "active_weights":
            return f"{value:,}".replace(",", " ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', '-')} {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _readable_memory(value: dict[str, Any]) -> str:
    weights = f"{readable(value['weights'])} for the weights"
    if value["repacked"]:
        weights += f", {readable(value['repacked'])} for a copy that this CPU works with"
    caches = [
        f"{readable(count) or '0 bytes'} for {size} tokens" for size, count in value["kv_caches"].items()
    ]
    buffers = f"{readable(value['buffers'] + value['other'])} for buffers and vocabulary"
    total = f"{readable(value['needed'])} have to be free for {value['kv_cache_context']} tokens of context"
    if value["total"] > value["needed"]:
        total += f"; {readable(value['total'])} show as used while the system has no other use for them"
    return "\n".join((weights, f"cache: {', '.join(caches)}", buffers, total))


def _readable_drafter(value: dict[str, Any]) -> str:
    if value["head"]:
        what = f"{value['head']} head made for this model"
        if value["name"] == "mtp":
            what = "prediction layers of this model"
        if value["refusal"]:
            return f"{value['name']} ({what}, which cannot be used: {value['refusal']})"
        notes = [what, readable(value["size"]), "" if value["fetched"] else "not fetched"]
        return f"{value['name']} ({', '.join(note for note in notes if note)})"
    origin = "same family" if value["family"] else "made for this model"
    notes = [readable(value["size"]), _VOCABULARY.get(value["vocabulary"], origin)]
    if not value["fetched"]:
        notes.append("not fetched")
    return f"{value['name']} ({', '.join(note for note in notes if note)})"


def _readable_size(value: dict[str, Any]) -> str:
    quantizations = "/".join(value["quantizations"]) or value["quantization"]
    here = ", on this machine" if value["fetched"] else ""
    return f"{value['name']}: {readable(value['size'])}, {value['fit']}{here}; {quantizations}"
