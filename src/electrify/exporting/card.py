"""The model card of an exported folder, from what the run wrote: what it is, how to use
it, how it was trained and how well. The rest is in electrify.json. Unknown facts are left out, and
no folder of the machine is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ..architectures.architecture import ExportedModel, Usage
from ..console import inert
from ..progress import duration
from ..recipe import STARTS, Recipe, first_asked, last_asked, override, values_of
from ..tables import DISCRIMINATOR, Exported, asked_of, generator_words, is_untaught, other_exports
from ..train import GENERATOR_STAGE, METRICS
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
STATES = "print(model(**inputs).last_hidden_state)  # a vector for each token"
FILLING = """\
from transformers import pipeline

fill = pipeline("fill-mask", model="FOLDER")
print(fill(f"The capital of France is {fill.tokenizer.mask_token}."))"""
AUTO = (
    '`AutoModel.from_pretrained("FOLDER")` gives the encoder, '
    "`AutoModelForSequenceClassification` and its like a model to fine-tune."
)
MACHINE = (
    *("device_name", "world_size", "cores", "platform", "python", "cuda", "torch", "transformers"),
    *("tokenizers", "electrify", "commit"),
)
"""Of what run.json holds about the machine."""
NOT_RESULTS = {"kind", "step", "tokens", "epoch", "seconds", "time"}
MOST_NAMED = 5


def model_card(
    run: Path,
    part: str,
    model: ExportedModel,
    *,
    config: Recipe,
    facts: Mapping[str, Any],
    state: Mapping[str, Any] | None,
) -> str:
    """README.md of one network.

    part: the name of its folder. facts: run.json. state: that of the exported checkpoint, None at
    the end of a run.
    """
    shown, note = _shown(config, facts, part=part, state=state), so_far(config, part, state)
    unlearned = part == DISCRIMINATOR and note is not None
    if unlearned:
        shown = replace(shown, title="encoder")
    use = model.architecture.usage.get(model.head.kind, Usage())
    if model.head.kind == "token" and use.note:
        shown = replace(shown, fills=False)
    c, stage = config.corruption, _log_of(run / GENERATOR_STAGE)
    # Such a generator learned in the first stage, or not at all.
    frozen = part in c.row.leaves and c.generator_training == "frozen"
    at = None if state is None or frozen else state["step"]
    records = [r for r in (stage if frozen else _log_of(run)) if at is None or r["step"] <= at]
    used = records[-1] if records else {}
    if at not in (None, used.get("step")):
        used = {"step": at}  # saved between two lines of the log
    valid = [r for r in records if r["kind"] == "valid"]
    began = [inert(start_name(s)) for s in (getattr(config.train, n) for n in STARTS) if s]
    origin = f"in a run that started from {' and '.join(began)}" if began else "from raw text"
    if stage and not frozen:
        origin += f", after {stage[-1]['step']:,} updates of the generator alone"
    origin = f"Trained with electrify {origin}."
    if frozen and not stage:
        origin = "It is as it was in the folder from which the run took it."
    sections = [
        _metadata(config, part, shown),
        f"# {inert(run.resolve().name)}: {shown.title}",
        " ".join(filter(None, [shown.purpose, note, origin])),
        _use(model, use, shown, unlearned=unlearned),
        _training(model, used),
        _validation(valid[-1]) if valid else "",
        _corpus(facts) if used else "",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def so_far(config: Recipe, part: str, state: Mapping[str, Any] | None) -> str | None:
    """Sentences if the network `part` has not learned what its card says, else None. state: that of
    the exported checkpoint, None at the end of a run."""
    o = config.objective
    kept, own = part == DISCRIMINATOR, other_exports(config).get(part)
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


def _log_of(run: Path) -> list[dict[str, Any]]:
    """The records of training and validation in a run's log; none if there is no log."""
    path = run / METRICS
    return [r for r in read(path) if r["kind"] != "event"] if path.is_file() else []


def _shown(
    config: Recipe, facts: Mapping[str, Any], *, part: str, state: Mapping[str, Any] | None
) -> Exported:
    """The network as its card presents it."""
    reached = config
    if state is not None and state["step"] <= last_asked(config):
        # The part of the run that mlm_end_share names has not begun.
        reached = override(config, {"mlm_end_share": 0.0})
    if own := other_exports(reached).get(part) or other_exports(config).get(part):
        return own
    row, corruptor = reached.objective.row, reached.corruption.row
    width = facts["shapes"].get("generator", {}).get("hidden_size")
    purpose = corruptor.card.format(
        asked=asked_of(reached.objective)
        or "without a task of its own, since its losses have weight 0",
        architecture=reached.model.row.called,
        generator=generator_words(reached, width=width),
    )
    fills = row.logits == "token" and corruptor.shows_mask
    return Exported(title=row.title, purpose=purpose, logits=row.logits, fills=fills)


# ------------------------------------------------------------------ sections


def _metadata(config: Recipe, part: str, shown: Exported) -> str:
    t = config.train
    start = t.init_generator if part in config.corruption.row.leaves else t.init_discriminator
    fields = {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask" if shown.fills else "feature-extraction",
        "tags": ["electrify", config.model.architecture, config.objective.row.tag],
    }
    if start and is_of_hub(start):
        fields["base_model"] = start
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---"


def _use(model: ExportedModel, use: Usage, shown: Exported, *, unlearned: bool) -> str:
    """Code that loads the folder, and notes. unlearned: whether the head has learned nothing."""
    if unlearned:
        code = [READING.format("AutoModel"), INPUTS, STATES]
    elif shown.fills:
        code = [FILLING]
    else:
        reading = use.reading or READING.format(model.table().name)
        code = [reading, INPUTS, LOGITS[shown.logits].format(use.code)]
    notes = " ".join(filter(None, ["" if unlearned else use.note, AUTO, use.tuning]))
    return "## Use\n```python\n{}\n```\n{}".format("\n".join(code), notes)


def _training(model: ExportedModel, used: Mapping[str, Any]) -> str:
    """The shape, and what the run has used by a line of its log."""
    shape = model.encoder.shape
    sizes = (shape.num_hidden_layers, shape.hidden_size, shape.num_attention_heads)
    rows = {
        "parameters": f"{sum(t.numel() for t in model.exported().values()):,}",
        "layers, width, heads": ", ".join(map(str, sizes)),
        "vocabulary": f"{shape.vocab_size:,}",
        "longest sequence": shape.max_position_embeddings,
    }
    names = {"step": "updates", "tokens": "tokens seen", "epoch": "passes over the corpus"}
    rows |= {said: number(used[name]) for name, said in names.items() if name in used}
    rows |= {"wall time": duration(used["seconds"])} if "seconds" in used else {}
    rest = "The recipe, the corpus in full and the machine are in [electrify.json](electrify.json)."
    return f"## Training\n{_rows(rows)}\n\n{rest}"


def _validation(valid: Mapping[str, Any]) -> str:
    """The last validation, under the names of metrics.jsonl."""
    rows = {f"`{name}`": number(value) for name, value in valid.items() if name not in NOT_RESULTS}
    after = f"after {valid['step']:,} updates; losses in nats."
    return f"## Validation\nOn held-out documents of the same corpus {after}\n\n{_rows(rows)}"


def _corpus(facts: Mapping[str, Any]) -> str:
    """The texts in a sentence, and what a reader must find out."""
    counts, names = facts["corpus"]["counts"], [source["name"] for source in _sources(facts)]
    kinds = [kind for kind in ("documents", "words", "tokens") if kind in counts]
    more = f" and {len(names) - MOST_NAMED:,} more" * (len(names) > MOST_NAMED)
    of = f" of {', '.join(map(inert, names[:MOST_NAMED]))}{more}" if names else ""
    read = ", ".join(f"{number(counts[kind])} {kind}" for kind in kinds)
    unknown = "Its languages and licence are unknown: name them here before you publish the model."
    return f"## Corpus\n{read}{of}. {unknown}"


def _rows(fields: Mapping[str, Any]) -> str:
    """A table."""
    rows = [f"| {k} | {inert(str(v))} |" for k, v in fields.items() if v is not None]
    return "\n".join(["| | |", "|---|---|", *rows])


def number(value: Any) -> str | None:
    """A number with at most four digits after its first; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return f"{int(value):,}" if isinstance(value, int) or value.is_integer() else f"{value:.4g}"


# ------------------------------------------------------------------ electrify.json


def details(config: Recipe, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a card leaves to electrify.json: the recipe, the corpus and the machine of the run."""
    starts = {name: getattr(config.train, name) for name in STARTS}
    recipe = override(config, {name: start_name(start) for name, start in starts.items() if start})
    machine, values = facts["machine"], values_of(recipe)
    return {
        # Without how often something is saved or logged.
        "recipe": {name: value for name, value in values.items() if name in facts["recipe"]},
        "corpus": {"counts": facts["corpus"]["counts"], "sources": _sources(facts)},
        "tokenizer": facts["tokenizer_sha256"],
        "machine": {name: machine[name] for name in MACHINE if machine.get(name) is not None},
    }


def _sources(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sources of the corpus, which name no folder of the machine."""
    found = [source for source in facts["corpus"]["sources"] if source["name"]]
    own = ({"name": p.name} if (p := Path(s["name"])).is_absolute() else {} for s in found)
    return [source | name for source, name in zip(found, own, strict=True)]


def is_of_hub(start: str) -> bool:
    """Whether a run started from a model of the Hub."""
    return may_be_on_hub(start) and not Path(start).exists()


def start_name(start: str) -> str:
    """Where a run started from: a Hub id, or the last name of a folder."""
    return start if is_of_hub(start) else Path(start).name
