"""The model card of an exported folder: what it is, how to use it, how it was trained and how well.
The rest is in electrify.json. No folder of the machine is named in either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..architectures.architecture import ExportedModel, Usage
from ..methods import DISCRIMINATOR, Exported, asked_of, generator_words, other_exports
from ..progress import duration, inert
from ..recipe import STARTS, Recipe, first_asked, override, values_of
from ..train import METRICS
from ..train.log import read
from .places import may_be_on_hub

LOGITS = {  # a line of code for what the head says
    "token": "print({}.argmax(-1))  # for each token: the id of the token that should be there",
    "replaced": "print({}.sigmoid())  # for each token: probability that it was replaced",
    "energy": "print({})  # for each token: its energy",
    "choice": "print({}[0, 2, [5, 6]].softmax(-1))  # at the third token: which of the ids 5 and 6",
}
READING = """\
from transformers import AutoTokenizer, {0}

tokenizer, model = AutoTokenizer.from_pretrained("FOLDER"), {0}.from_pretrained("FOLDER")"""
INPUTS = 'inputs = tokenizer("The chef ate the meal.", return_tensors="pt")'
STATES = "states = model(**inputs).last_hidden_state"
FILLING = """\
from transformers import pipeline

fill = pipeline("fill-mask", model="FOLDER")
print(fill(f"The capital of France is {fill.tokenizer.mask_token}."))"""
CARD = """\
---
{metadata}---

# {name}: {shown.title}

{shown.purpose}

## Use
```python
{code}
```
{notes}

## Training
{training}

Trained with electrify {origin}. The recipe, the corpus and the machine are in
[electrify.json](electrify.json).

## Evaluation
{evaluation}

## Licence and language
Corpus: {corpus}. Add its languages and licence here before you publish the model.
"""
AUTO = (
    '`AutoModel.from_pretrained("FOLDER")` gives the encoder, '
    "`AutoModelForSequenceClassification` and its like a model to fine-tune."
)
NOT_RESULTS = {"kind", "step", "tokens", "epoch", "seconds", "time"}
MOST_NAMED = 5


@dataclass(frozen=True)
class Run:
    """A run of which a network is exported. facts: what run.json holds."""

    folder: Path
    config: Recipe
    facts: Mapping[str, Any]


def model_card(run: Run, part: str, model: ExportedModel, state: Mapping[str, Any] | None) -> str:
    """README.md of the network in the folder `part`. state: that of the exported checkpoint, None
    at the end of a run."""
    config, facts, log = run.config, run.facts, run.folder / METRICS
    shown, use = _shown(run, part), model.architecture.usage.get(model.head.kind, Usage())
    fills = shown.fills and not use.note
    note = so_far(config, part, state)
    if not use.code or (part == DISCRIMINATOR and note):  # the encoder alone
        code = [READING.format("AutoModel"), INPUTS, STATES]
    elif fills:
        code = [FILLING]
    else:
        logits = LOGITS[shown.logits].format(use.code)
        code = [READING.format(model.table().name), INPUTS, logits]
    notes = [note, use.note, AUTO, use.tuning]
    records = read(log) if log.is_file() else []
    last = config.train.max_steps if state is None else state["step"]
    records = [r for r in records if r["kind"] != "event" and r["step"] <= last]
    starts = [getattr(config.train, name) for name in STARTS]
    began = " and ".join(inert(start_name(start)) for start in starts if start)
    counts, sources = facts["corpus"]["counts"], [s["name"] for s in _sources(facts)]
    kinds = [f"{number(counts[k])} {k}" for k in ("documents", "words", "tokens") if k in counts]
    names = [*map(inert, sources[:MOST_NAMED]), *["..."] * (len(sources) > MOST_NAMED)]
    return CARD.format(
        metadata=_metadata(config, part, shown, fills=fills),
        name=inert(run.folder.resolve().name),
        shown=shown,
        code="\n".join(code),
        notes=" ".join(filter(None, notes)),
        training=_rows(_training(model, records[-1] if records else {}, last)),
        origin=f"in a run that started from {began}" if began else "from raw text",
        evaluation=_evaluation(records),
        corpus=" of ".join(filter(None, [", ".join(kinds), ", ".join(names)])),
    )


def so_far(config: Recipe, part: str, state: Mapping[str, Any] | None) -> str:
    """A sentence if the discriminator's head has learned nothing. state: that of the exported
    checkpoint, None at the end of a run."""
    loss = next(iter(config.objective.row.losses))
    if part == DISCRIMINATOR and not config.objective.term_weights[loss]:
        return f"Its head has learned nothing in this run: its loss, `{loss}`, has weight 0."
    begins, own = first_asked(config), other_exports(config).get(part)
    shares = part == DISCRIMINATOR or (own is not None and own.same)
    if state is None or state["step"] > begins or not shares:
        return ""
    return (
        f"Until update {begins:,} of its run the encoder is a masked language model, and its head "
        f"is not trained: this is update {state['step']:,}."
    )


def _shown(run: Run, part: str) -> Exported:
    """The network as its card presents it."""
    config, facts = run.config, run.facts
    if own := other_exports(config).get(part):
        return own
    row, corruptor = config.objective.row, config.corruption.row
    width = facts["shapes"].get("generator", {}).get("hidden_size")
    purpose = corruptor.card.format(
        asked=asked_of(config.objective)
        or "without a task of its own, since its losses have weight 0",
        architecture=config.model.row.called,
        generator=generator_words(config, width=width),
    )
    fills = row.logits == "token" and corruptor.shows_mask
    return Exported(title=row.title, purpose=purpose, logits=row.logits, fills=fills)


def _metadata(config: Recipe, part: str, shown: Exported, *, fills: bool) -> str:
    t = config.train
    start = t.init_generator if part in config.corruption.row.leaves else t.init_discriminator
    fields = {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask" if fills else "feature-extraction",
        "tags": ["electrify", config.model.architecture, config.objective.row.tag],
    }
    if start and is_of_hub(start):
        fields["base_model"] = start
    return yaml.safe_dump(fields, sort_keys=False)


def _training(model: ExportedModel, used: Mapping[str, Any], step: int) -> dict[str, str]:
    """The shape, and what the run has used by the last line of its log."""
    shape = model.encoder.shape
    sizes = (shape.num_hidden_layers, shape.hidden_size, shape.num_attention_heads)
    rows = {
        "parameters": f"{sum(t.numel() for t in model.exported().values()):,}",
        "layers, width, heads": ", ".join(map(str, sizes)),
        "vocabulary, longest sequence": f"{shape.vocab_size:,}, {shape.max_position_embeddings:,}",
        "updates": f"{step:,}",
    }
    if used.get("step") == step:  # not saved between two lines of the log
        rows["tokens seen"] = f"{number(used['tokens'])}"
        rows["wall time"] = duration(used["seconds"])
    return rows


def _evaluation(records: Sequence[Mapping[str, Any]]) -> str:
    """The last validation, under the names of metrics.jsonl."""
    valid = [r for r in records if r["kind"] == "valid"]
    if not valid:
        return "None yet."
    results = {f"`{n}`": number(x) for n, x in valid[-1].items() if n not in NOT_RESULTS}
    after = f"after {valid[-1]['step']:,} updates, losses in nats."
    return f"On held-out documents of the same corpus {after}\n\n{_rows(results)}"


def _rows(fields: Mapping[str, str]) -> str:
    """A table."""
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in fields.items())])


def number(value: float | str) -> str:
    """A number with at most four digits after its first; one that is not finite is text."""
    if isinstance(value, str):
        return value
    return f"{int(value):,}" if value == value // 1 else f"{value:.4g}"


# ------------------------------------------------------------------ electrify.json


def details(run: Run) -> dict[str, Any]:
    """What a card leaves to electrify.json: the recipe, the corpus and the machine of the run."""
    config, facts = run.config, run.facts
    starts = {name: getattr(config.train, name) for name in STARTS}
    recipe = override(config, {name: start_name(start) for name, start in starts.items() if start})
    values = values_of(recipe).items()
    return {
        # Without how often something is saved or logged.
        "recipe": {name: value for name, value in values if name in facts["recipe"]},
        "corpus": {"counts": facts["corpus"]["counts"], "sources": _sources(facts)},
        "tokenizer": facts["tokenizer_sha256"],
        "machine": facts["machine"],
    }


def _sources(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sources of the corpus, which name no folder of the machine."""
    found = [dict(source) for source in facts["corpus"]["sources"] if source["name"]]
    for source in found:
        if Path(source["name"]).is_absolute():
            source["name"] = Path(source["name"]).name
    return found


def is_of_hub(start: str) -> bool:
    """Whether a run started from a model of the Hub."""
    return may_be_on_hub(start) and not Path(start).exists()


def start_name(start: str) -> str:
    """Where a run started from: a Hub id, or the last name of a folder."""
    return start if is_of_hub(start) else Path(start).name
