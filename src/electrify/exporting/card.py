"""The model card of an exported folder, from what the run wrote: what it is, how to use
it, how it was trained and how well. The rest is in electrify.json. Unknown facts are left out, and
no folder of the machine is named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ..architectures.exported import ExportedModel
from ..console import inert
from ..recipe import STARTS, Recipe, first_asked, last_asked, override, values_of
from ..tables import DISCRIMINATOR, Exported, Logits, asked_of, beside, generator_words, is_untaught
from ..train import GENERATOR_STAGE, METRICS
from ..train.log import read

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
LOGITS = {  # a line of code for what the head says
    "token": "print({}.argmax(-1))  # for each token: the id of the token that should be there",
    "replaced": "print({}.sigmoid())  # for each token: probability that it was replaced",
    "energy": "print({})  # for each token: its energy",
    "choice": "print({}[0, 2, [5, 6]].softmax(-1))  # at the third token: which of the ids 5 and 6",
}
MACHINE = (
    *("device_name", "world_size", "cores", "platform", "python", "cuda", "torch", "transformers"),
    *("tokenizers", "electrify", "commit"),
)
"""Of what run.json holds about the machine."""
REST = "The recipe, the corpus in full and the machine are in [electrify.json](electrify.json)."
NOT_RESULTS = {"kind", "step", "tokens", "epoch", "seconds", "time"}
MOST_NAMED = 5
AUTO = (
    '`AutoModel.from_pretrained("FOLDER")` gives the encoder, '
    "`AutoModelForSequenceClassification` and its like a model to fine-tune."
)
INPUTS = 'inputs = tokenizer("The chef ate the meal.", return_tensors="pt")'
FILLING = [
    "from transformers import pipeline",
    "",
    'fill = pipeline("fill-mask", model="FOLDER")',
    'print(fill(f"The capital of France is {fill.tokenizer.mask_token}."))',
]


def model_card(
    run: Path,
    *,
    part: str,
    model: ExportedModel,
    config: Recipe,
    facts: Mapping[str, Any],
    state: Mapping[str, Any] | None,
    records: list[dict[str, Any]] | None = None,
) -> str:
    """README.md of one network.

    part: the name of its folder, `discriminator` for the one that is kept. facts: run.json. state:
    that of the exported checkpoint, None at the end of a run. records: the last ones of the run's
    log, which is read without them.
    """
    reached = config
    if state is not None and state["step"] <= last_asked(config):
        # The part of the run that mlm_end_share names has not begun.
        reached = override(config, {"mlm_end_share": 0.0})
    shown = beside(reached).get(part) or beside(config).get(part) or _kept(reached, facts)
    note = so_far(config, part=part, state=state)
    unlearned = part == DISCRIMINATOR and note is not None
    if unlearned:
        shown = replace(shown, title="encoder")
    if model.head.kind == "token" and model.architecture.token_note:
        shown = replace(shown, fills=False)
    learned = learning(run, config, part=part, state=state, records=records)
    sections = [
        _metadata(config, shown, start=began_in(config, part)),
        f"# {inert(run.resolve().name)}: {shown.title}",
        " ".join(filter(None, (shown.purpose, note, learned.origin))),
        _use(model, says=None if unlearned else shown.logits, fills=shown.fills),
        _section("Training", f"{_rows(_training(model, learned))}\n\n{REST}"),
        _validation(learned.valid),
        _corpus(facts) if learned.used else "",
    ]
    return "\n\n".join(s for s in sections if s) + "\n"


# ------------------------------------------------------------------ how a network has learned


@dataclass(frozen=True)
class Learned:
    """How a network has learned."""

    used: Mapping[str, Any] = field(default_factory=dict)
    """What the run in which it learned has used; empty if it learned in none."""
    valid: Mapping[str, Any] | None = None
    """The last validation of that run."""
    first_stage: str | None = None
    """What it had learned from before, in a first stage."""
    origin: str = "Trained from raw text with electrify."


def learning(
    run: Path,
    config: Recipe,
    *,
    part: str,
    state: Mapping[str, Any] | None,
    records: list[dict[str, Any]] | None = None,
) -> Learned:
    """How the network `part` has learned; the arguments of `model_card`. A frozen generator has
    learned in the first stage, or not at all."""
    t = config.train
    stage = log_of(run / GENERATOR_STAGE)
    of_generator = part in config.corruption.row.leaves
    if of_generator and config.corruption.generator_training == "frozen":
        if t.init_generator:
            name = inert(start_name(t.init_generator))
            return Learned(origin=f"It is as it was in {name}, from which the run took it.")
        return Learned(stage[-1] if stage else {}, _last_validation(stage))
    records = [
        r
        for r in (log_of(run) if records is None else records)
        if r["kind"] != "event" and (state is None or r["step"] <= state["step"])
    ]
    begins_there = t.generator_steps and (of_generator or t.discriminator_start == "generator")
    learned = Learned(
        _used(records, state),
        _last_validation(records),
        _of_first_stage(stage[-1]) if begins_there and stage else None,
    )
    if start := began_in(config, part):
        origin = f"Trained further with electrify from {inert(start_name(start))}."
    elif config.model.tie != "none" and (start := t.init_generator or t.init_discriminator):
        shared = "what it shares with the network beside it"
        origin = f"Trained with electrify; {shared} began as in {inert(start_name(start))}."
    else:
        return learned
    return replace(learned, origin=origin)


def began_in(config: Recipe, part: str) -> str | None:
    """The folder or Hub id whose weights the network `part` had at the start of its run."""
    t = config.train
    return t.init_generator if part in config.corruption.row.leaves else t.init_discriminator


def so_far(config: Recipe, *, part: str, state: Mapping[str, Any] | None) -> str | None:
    """Sentences if the network `part` has not learned what its card says, else None. state: that of
    the exported checkpoint, None at the end of a run."""
    o = config.objective
    kept, own = part == DISCRIMINATOR, beside(config).get(part)
    loss = next(iter(o.row.losses))
    if part in config.corruption.row.leaves and is_untaught(config):
        return "It has learned nothing of its own in this run: its loss, `generator`, has weight 0."
    if kept and not o.term_weights[loss]:
        return f"Its head has learned nothing in this run: its loss, `{loss}`, has weight 0."
    begins = first_asked(config)
    if state is None or state["step"] > begins or not (kept or (own and own.same)):
        return None
    waits = (
        "Its head has learned nothing yet: it is first asked after"
        if kept
        else "It has read [MASK] at the chosen positions, and reads samples after"
    )
    return f"At this checkpoint it is still a masked language model. {waits} update {begins:,}."


def log_of(run: Path) -> list[dict[str, Any]]:
    """The records of training and validation in a run's log; none if there is no log."""
    path = run / METRICS
    return [r for r in read(path) if r.get("kind") in ("train", "valid")] if path.is_file() else []


def _last_validation(records: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((r for r in reversed(records) if r["kind"] == "valid"), None)


def _used(records: list[dict[str, Any]], state: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the run has used: by the last line of its log, or by a checkpoint after that line."""
    last = records[-1] if records else {}
    if state is None or last.get("step") == state["step"]:
        return last
    since, _ = state["window"].get("tokens", (0, 0))
    tokens = int(state["tokens"] + since)
    return {"step": state["step"], "seconds": state["seconds"], "tokens": tokens}


def _of_first_stage(last: Mapping[str, Any]) -> str:
    """What the generator of a run of two stages had learned from before the second, by the last
    record of the first."""
    tokens, took = number(last.get("tokens")), wall_time(last.get("seconds"))
    seen = (f"{last['step']:,} updates of the generator alone", tokens and f"{tokens} tokens", took)
    return ", ".join(filter(None, seen))


# ------------------------------------------------------------------ sections


def _metadata(config: Recipe, shown: Exported, *, start: str | None) -> str:
    fields = {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask" if shown.fills else "feature-extraction",
        "tags": ["electrify", config.model.architecture, config.objective.row.tag],
    }
    if start and HUB_ID.fullmatch(start) and not Path(start).exists():
        fields["base_model"] = start
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---"


def _kept(config: Recipe, facts: Mapping[str, Any]) -> Exported:
    """The encoder that a run is for, as the card presents it."""
    row, corruptor = config.objective.row, config.corruption.row
    width = facts.get("shapes", {}).get("generator", {}).get("hidden_size")
    purpose = corruptor.card.format(
        asked=asked_of(config.objective)
        or "without a task of its own, since its losses have weight 0",
        architecture=config.model.row.called,
        generator=generator_words(config, width=width),
    )
    fills = row.logits == "token" and corruptor.shows_mask
    return Exported(title=row.title, purpose=purpose, logits=row.logits, fills=fills)


def _use(model: ExportedModel, *, says: Logits | None, fills: bool) -> str:
    """Code that loads the folder, and notes. says: None where the head has learned nothing."""
    known, kind = model.architecture, model.head.kind
    if says is None:
        states = "print(model(**inputs).last_hidden_state)  # a vector for each token"
        code = [*_reading("AutoModel"), INPUTS, states]
    elif fills:
        code = FILLING
    else:
        binary = kind == "binary"
        reading = (binary and known.binary_reading) or _reading(model.table().name)
        logits = known.binary_code if binary else "model(**inputs).logits"
        code = [*reading, INPUTS, LOGITS[says].format(logits)]
    notes = {"binary": known.binary_note, "token": known.token_note} if says else {}
    said = (notes.get(kind), AUTO, known.binary_tuning if kind == "binary" else "")
    return "## Use\n```python\n{}\n```\n{}".format("\n".join(code), " ".join(filter(None, said)))


def _reading(name: str) -> list[str]:
    """Code for a class of the library."""
    loads = f'AutoTokenizer.from_pretrained("FOLDER"), {name}.from_pretrained("FOLDER")'
    return [
        f"from transformers import AutoTokenizer, {name}",
        "",
        f"tokenizer, model = {loads}",
    ]


def _training(model: ExportedModel, learned: Learned) -> dict[str, Any]:
    shape, last = model.encoder.shape, learned.used
    sizes = (shape.num_hidden_layers, shape.hidden_size, shape.num_attention_heads)
    return {
        "parameters": f"{sum(p.numel() for p in model.parameters().values()):,}",
        "layers, width, heads": ", ".join(map(str, sizes)),
        "vocabulary": f"{shape.vocab_size:,}",
        "longest sequence": shape.max_position_embeddings,
        "updates": number(last.get("step")),
        "tokens seen": number(last.get("tokens")),
        "passes over the corpus": number(last.get("epoch")),
        "wall time": wall_time(last.get("seconds")),
        "first stage": learned.first_stage,
    }


def _validation(valid: Mapping[str, Any] | None) -> str:
    """The last validation, under the names of metrics.jsonl."""
    figures = {f"`{k}`": number(v) for k, v in (valid or {}).items() if k not in NOT_RESULTS}
    rows = _rows(figures)
    if valid is None or not rows:
        return ""
    after = f"after {valid['step']:,} updates; losses in nats."
    return f"## Validation\nOn held-out documents of the same corpus {after}\n\n{rows}"


def _corpus(facts: Mapping[str, Any]) -> str:
    """The texts in a sentence, and what a reader must find out."""
    counts = facts.get("corpus", {}).get("counts", {})
    names = [source["name"] for source in _sources(facts)]
    read = ", ".join(
        f"{number(counts.get(key))} {key}"
        for key in ("documents", "words", "tokens")
        if number(counts.get(key))
    )
    more = f" and {len(names) - MOST_NAMED:,} more" * (len(names) > MOST_NAMED)
    of = f" of {', '.join(map(inert, names[:MOST_NAMED]))}{more}" if names else ""
    unknown = "Its languages and licence are unknown: name them here before you publish the model."
    return f"## Corpus\n{read}{of}. {unknown}" if read else ""


def _sources(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sources of the corpus, which name no folder of the machine."""
    sources = [s for s in facts.get("corpus", {}).get("sources", []) if s.get("name")]
    return [s | {"name": _relative(str(s["name"]))} for s in sources]


def _relative(name: str) -> str:
    return Path(name).name if Path(name).is_absolute() else name


def details(config: Recipe, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a card leaves to electrify.json: the recipe, the corpus and the machine of the run."""
    starts = {name: getattr(config.train, name) for name in STARTS}
    recipe = override(config, {name: start_name(start) for name, start in starts.items() if start})
    machine, values = facts.get("machine", {}), values_of(recipe)
    decisive = facts.get("recipe", values)  # without how often something is saved or logged
    return {
        "recipe": {name: value for name, value in values.items() if name in decisive},
        "corpus": {"counts": facts.get("corpus", {}).get("counts", {}), "sources": _sources(facts)},
        "tokenizer": facts.get("tokenizer_sha256"),
        "machine": {name: machine[name] for name in MACHINE if machine.get(name) is not None},
    }


def _section(title: str, body: str) -> str:
    return f"## {title}\n{body}" if body else ""


def _rows(fields: Mapping[str, Any]) -> str:
    """A table of the known fields."""
    known = [f"| {k} | {inert(str(v))} |" for k, v in fields.items() if v is not None]
    return "\n".join(["| | |", "|---|---|", *known]) if known else ""


def wall_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 3600:.2f} h"


def start_name(start: str) -> str:
    """Where a run started from: a Hub id, or the last name of a folder."""
    own = HUB_ID.fullmatch(start) and not start.startswith(".") and not Path(start).exists()
    return start if own else Path(start).name


def number(value: Any) -> str | None:
    """A number with at most four digits after its first; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return f"{int(value):,}" if isinstance(value, int) or value.is_integer() else f"{value:.4g}"
