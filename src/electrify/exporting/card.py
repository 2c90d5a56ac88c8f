"""The model card of an exported folder, from what the run wrote. Unknown facts are left out, and no
folder of the machine is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ..architectures.exported import ExportedModel
from ..console import inert
from ..model.shape import Shape
from ..recipe import STARTS, Recipe, dump, override
from ..tables import KEPT, Exported, Logits, asked_of, beside, generator_words
from .learned import began_in, learning, so_far
from .wording import HUB_ID, number, start_name, wall_time

LOGITS = {  # a line of code for what the head says
    "token": "print({}.argmax(-1))  # for each token: the id of the token that should be there",
    "replaced": "print({}.sigmoid())  # for each token: probability that it was replaced",
    "energy": "print({})  # for each token: its energy",
    "choice": "print({}[0, 2, [5, 6]].softmax(-1))  # at the third token: which of the ids 5 and 6",
}
MACHINE = {  # what run.json calls it -> what the card does
    "device_name": "device",
    "world_size": "processes",
    "cores": "CPU cores",
    "platform": "platform",
    "python": "Python",
    "cuda": "CUDA",
    "torch": "torch",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "electrify": "electrify",
    "commit": "commit",
}
NOT_RESULTS = {"kind", "step", "tokens", "epoch", "seconds", "time"}


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
    shown = beside(config).get(part) or _kept(config, facts)
    note = so_far(config, part=part, state=state)
    unlearned = part == KEPT and note is not None
    if unlearned:
        shown = replace(shown, title="encoder")
    parameters = sum(p.numel() for p in model.parameters().values())
    learned = learning(run, config, part=part, state=state, records=records)
    if model.head.kind == "token" and model.architecture.token_note:
        shown = replace(shown, fills=False)
    name = inert(run.resolve().name)
    training = _training(model.encoder.shape, learned.used, parameters=parameters)
    training["first stage"] = learned.first_stage
    sections = [
        _metadata(config, shown, start=began_in(config, part)),
        f"# {name}: {shown.title}",
        " ".join(filter(None, (shown.purpose, note, learned.origin))),
        _use(model, says=None if unlearned else shown.logits, fills=shown.fills),
        _section("Training", _rows(training)),
        _validation(learned.valid),
        _corpus(facts) if learned.used else "",
        _machine(facts),
        _recipe(config),
    ]
    return "\n\n".join(s for s in sections if s) + "\n"


def _recipe(config: Recipe) -> str:
    starts = {name: getattr(config.train, name) for name in STARTS}
    recipe = override(config, {name: start_name(start) for name, start in starts.items() if start})
    return (
        "## Recipe\n`electrify pretrain DATA --recipe recipe.yaml --output-dir RUN` with this "
        f"`recipe.yaml`:\n\n```yaml\n{dump(recipe).strip()}\n```"
    )


def _machine(facts: Mapping[str, Any]) -> str:
    said = facts.get("machine", {})
    return _section("Machine", _rows({MACHINE[k]: v for k, v in said.items() if k in MACHINE}))


def _metadata(config: Recipe, shown: Exported, *, start: str | None) -> str:
    tags = ["electrify", config.model.architecture, config.objective.row.tag]
    fields = {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask" if shown.fills else "feature-extraction",
        "tags": tags,
    }
    if start and HUB_ID.fullmatch(start) and not Path(start).exists():
        fields["base_model"] = start
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---"


def _kept(config: Recipe, facts: Mapping[str, Any]) -> Exported:
    """The encoder that a run is for, as the card presents it."""
    row = config.objective.row
    corruptor = config.corruption.row
    purpose = corruptor.card.format(
        asked=asked_of(config.objective)
        or "without a task of its own, since its losses have weight 0",
        architecture=config.model.row.called,
        generator=generator_words(
            config, width=facts.get("shapes", {}).get("generator", {}).get("hidden_size")
        ),
    )
    fills = row.logits == "token" and corruptor.shows_mask
    return Exported(title=row.title, purpose=purpose, logits=row.logits, fills=fills)


_INPUTS = 'inputs = tokenizer("The chef ate the meal.", return_tensors="pt")'


def _use(model: ExportedModel, *, says: Logits | None, fills: bool) -> str:
    """says: None where the head has learned nothing."""
    if says is None:
        code = [
            *_reading("AutoModel"),
            _INPUTS,
            "print(model(**inputs).last_hidden_state)  # a vector for each token",
        ]
    elif fills:
        code = [
            "from transformers import pipeline",
            "",
            'fill = pipeline("fill-mask", model="FOLDER")',
            'print(fill(f"The capital of France is {fill.tokenizer.mask_token}."))',
        ]
    else:
        known = model.architecture
        detects = model.head.kind == "binary"
        logits = known.binary_code if detects else "model(**inputs).logits"
        code = [
            *((detects and known.binary_reading) or _reading(model.table().name)),
            _INPUTS,
            LOGITS[says].format(logits),
        ]
    head = "\n".join(code)
    auto = (
        '`AutoModel.from_pretrained("FOLDER")` gives the encoder, '
        "`AutoModelForSequenceClassification` and its like a model to fine-tune."
    )
    known = model.architecture
    if model.head.kind == "binary" and known.binary_tuning:
        auto = f"{auto} {known.binary_tuning}"
    notes = {"binary": known.binary_note, "token": known.token_note} if says else {}
    note = notes.get(model.head.kind, "")
    return f"## Use\n```python\n{head}\n```\n{f'{note} ' if note else ''}{auto}"


def _reading(name: str) -> tuple[str, ...]:
    """Code for a class of the library."""
    return (
        f"from transformers import AutoTokenizer, {name}",
        "",
        (
            'tokenizer, model = AutoTokenizer.from_pretrained("FOLDER"), '
            f'{name}.from_pretrained("FOLDER")'
        ),
    )


def _training(shape: Shape, last: Mapping[str, Any], *, parameters: int) -> dict[str, Any]:
    heads = shape.num_attention_heads
    return {
        "parameters": f"{parameters:,}",
        "layers, width, heads": f"{shape.num_hidden_layers}, {shape.hidden_size}, {heads}",
        "vocabulary": f"{shape.vocab_size:,}",
        "longest sequence": shape.max_position_embeddings,
        "updates": number(last.get("step")),
        "tokens seen": number(last.get("tokens")),
        "passes over the corpus": number(last.get("epoch")),
        "wall time": wall_time(last.get("seconds")),
    }


def _validation(valid: Mapping[str, Any] | None) -> str:
    """The last validation, under the names of metrics.jsonl."""
    if valid is None:
        return ""
    figures = {
        f"`{k}`": number(v)
        for k, v in valid.items()
        if k not in NOT_RESULTS and isinstance(v, int | float)
    }
    return (
        f"## Validation\nOn held-out documents of the same corpus after {valid['step']:,} updates; "
        f"losses in nats.\n\n{_rows(figures)}"
        if figures
        else ""
    )


def _corpus(facts: Mapping[str, Any]) -> str:
    corpus = facts.get("corpus", {})
    counts = {
        k.replace("_", " "): number(v)
        for k, v in corpus.get("counts", {}).items()
        if isinstance(v, int | float)
    }
    hashes = {
        "prepared corpus, sha256": facts.get("data"),
        "tokenizer, sha256": facts.get("tokenizer_sha256"),
    }
    parts = [_rows(counts | hashes)]
    sources = [s for s in corpus.get("sources", []) if isinstance(s, Mapping) and s.get("name")]
    if sources:
        shown = [
            (
                f"| {inert(_relative(str(s['name'])))} | {number(s.get('bytes')) or ''} | "
                f"{s.get('sha256') or ''} |"
            )
            for s in sources[:50]
        ]
        more = f"\n\nand {len(sources) - 50:,} more." if len(sources) > 50 else ""
        parts.append("| source | bytes | sha256 |\n|---|---|---|\n" + "\n".join(shown) + more)
    return _section("Corpus", "\n\n".join(p for p in parts if p))


def _section(title: str, body: str) -> str:
    return f"## {title}\n{body}" if body else ""


def _relative(name: str) -> str:
    """The last name of an absolute path: cards reveal nothing about the machine's folders."""
    return Path(name).name if Path(name).is_absolute() else name


def _rows(fields: Mapping[str, Any]) -> str:
    """A table of the known fields."""
    known = {k: v for k, v in fields.items() if v is not None}
    return (
        "| | |\n|---|---|\n" + "\n".join(f"| {k} | {inert(str(v))} |" for k, v in known.items())
        if known
        else ""
    )
