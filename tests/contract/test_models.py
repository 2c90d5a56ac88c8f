"""What a run leaves: folders for transformers, and what the other verbs make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import material
import numpy as np
import program as adapter
import pytest
from outcomes import BITS, Outcome
from program import Program, words
from test_training import outcome, recipe

ROWS = {
    "electra": "electra",
    "corrective": "corrective, first as a masked language model",
    "teams": "teams",
    "electric": "electric",
    "modernbert": "electra-modernbert",
    "v3": "electra-deberta with the head of v3",
    "decoder": "deberta with a mask decoder",
    "amos": "amos",
}
MORE = {"max_steps": 24, "save_steps": 12}
LABELS = "question,number,loud"
IDS = [[2, *range(20, 40), 3, *range(50, 57), 3]]


@pytest.fixture(scope="module")
def runs_of(
    data_of: Callable[[Program], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Program], Path]:
    """A folder with a run of each of ROWS, trained once by each program."""
    made: dict[Program, Path] = {}

    def trained(program: Program) -> Path:
        if program not in made:
            folder, data = tmp_path_factory.mktemp("runs"), data_of(program)
            outs = {folder / name: row for name, row in ROWS.items()}
            lines = [
                words("pretrain", data, recipe=recipe(folder, row), output_dir=out, **MORE)
                for out, row in outs.items()
            ]
            for done in program.batch(lines):
                done.ok()
            made[program] = folder
        return made[program]

    return trained


def few(values: Any) -> list[float]:
    """Some of many numbers, and their mean size."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    at = np.linspace(0, len(flat) - 1, 7).astype(int)
    return [*flat[at].tolist(), float(np.abs(flat).mean())]


def logits(folder: Path) -> Outcome:
    """The class that config.json names, loaded by transformers, and what it answers."""
    import torch
    import transformers

    name = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    model = getattr(transformers, name).from_pretrained(folder, use_safetensors=True).eval()
    with torch.no_grad():
        found = model(input_ids=torch.tensor(IDS))[0]  # logits, or the states of a bare encoder
    return {"class": name, "logits": few(found), BITS: adapter.sha256(found.numpy().tobytes())}


def test_exports(agrees: Any, runs_of: Callable[[Program], Path]) -> None:
    """Each part of each run, from the newest checkpoint and from an earlier one. transformers
    computes the logits; their deviation from the run's own network is checked by `export`."""

    def measure(program: Program, folder: Path) -> Outcome:
        runs = runs_of(program)
        found: Outcome = {}
        lines = {}
        for name in ROWS:
            for part, place in adapter.exports(runs / name).items():
                found[f"{name} {part}"] = logits(place)
                for step in (12, 24):
                    out = folder / f"{name} {part} {step}"
                    lines[out] = words("export", runs / name, part=part, step=step, output_dir=out)
        for out, done in zip(lines, program.batch(list(lines.values())), strict=True):
            done.ok()
            name, part, step = out.name.split()
            again = adapter.bits(out / "model.safetensors")
            if step == "24":
                assert again == adapter.bits(runs / name / part / "model.safetensors")
            else:
                found[out.name] = logits(out)
        return found

    agrees("exports", measure)


def test_starts_from_folders(
    agrees: Any, data_of: Callable[[Program], Path], runs_of: Callable[[Program], Path]
) -> None:
    def measure(program: Program, folder: Path) -> Outcome:
        runs = runs_of(program)
        starts = {
            "electra": {},
            "modernbert": {"extend_positions": 128, "max_seq_length": 96},
            "v3": {},
        }
        lines = []
        for name, flags in starts.items():
            parts = adapter.exports(runs / name)
            both = {f"init_{part}": parts[part] for part in ("discriminator", "generator")}
            out = folder / name
            config = recipe(folder, ROWS[name])
            lines.append(
                words("pretrain", data_of(program), recipe=config, output_dir=out, **both, **flags)
            )
        for done in program.batch(lines):
            done.ok()
        return {name: outcome(folder / name) for name in starts}

    agrees("starts", measure)


def test_scores_without_training(agrees: Any, runs_of: Callable[[Program], Path]) -> None:
    """detect, evaluate, embed."""

    def measure(program: Program, folder: Path) -> Outcome:
        runs, tasks = runs_of(program), material.tasks(folder / "tasks")
        made = material.Language(4)
        short, long = made.sentence(), " ".join(made.document() for _ in range(9))
        file = material.write(folder / "long.txt", long)
        own, fitted = tasks / "own" / "own.csv", tasks / "own" / "valid.csv"
        vectors = {
            "mean": {},
            "cls": {"pooling": "cls", "max_seq_length": 16},
            "centred": {"center": fitted},
            "whitened": {"whiten": fitted},
        }
        detecting = [runs / name / "discriminator" for name in ("electra", "v3", "modernbert")]
        models = {
            "electra": runs / "electra" / "discriminator",
            "generator": runs / "electra" / "generator",
            "corrector": runs / "corrective" / "corrector",
            "electric": runs / "electric" / "discriminator",
            "v3": runs / "v3" / "discriminator",
            "mask decoder": runs / "decoder" / "discriminator",
        }
        lines = [
            *(words("detect", model, short, json=True) for model in detecting),
            *(words("detect", model, file=file, json=True) for model in detecting),
            words("evaluate", *models.values(), data_dir=tasks, output_dir=folder / "blimp"),
            *(
                words("embed", detecting[0], own, output_file=folder / f"{name}.npy", **flags)
                for name, flags in vectors.items()
            ),
        ]
        done = [one.ok() for one in program.batch(lines)]
        found: Outcome = {}
        for i, one in enumerate(done[: 2 * len(detecting)]):
            said = json.loads(one.out)
            tokens = [t["probability"] for t in said["tokens"]]
            found[f"detect {i}"] = {
                "tokens": len(tokens),
                "first": [t["token"] for t in said["tokens"][:5]],
                "probabilities": few(tokens),
                BITS: adapter.sha256(repr(tokens).encode()),
            }
        piped = program.run(words("detect", detecting[0], unit="word"), stdin=short).ok()
        found["detect from stdin"] = {BITS: piped.out}
        table = json.loads((folder / "blimp" / "blimp.json").read_text(encoding="utf-8"))
        names = list(models)
        for i, row in enumerate(table["paradigms"]):
            name = f"blimp {names[i // 3]} {row['paradigm']}"
            found[name] = [row["part"], row["pairs"], row["accuracy"], row["ties"]]
        for name in vectors:
            array = np.load(folder / f"{name}.npy", allow_pickle=False)
            found[f"embed {name}"] = [*array.shape, *few(array)]
        return found

    agrees("scores without training", measure)


def test_probes_and_finetuning(agrees: Any, runs_of: Callable[[Program], Path]) -> None:
    """Frozen probes of three kinds, the published protocol, our own, and what is predicted by a
    model that was kept."""

    def measure(program: Program, folder: Path) -> Outcome:
        runs, tasks = runs_of(program), material.tasks(folder / "tasks")
        model = runs / "electra" / "discriminator"
        own, many, questions = (
            {"train_file": a, "validation_file": b}
            for kind in ("own", "many", "questions")
            for a, b in [sorted((tasks / kind).iterdir())]
        )
        known = {"task": "cola,stsb,conll2000", "data_dir": tasks}
        alone = {"baselines": False}
        published = {"protocol": "published", "num_train_epochs": 3}
        ways = {
            "frozen last": {"frozen_encoder": "last", **known},
            "frozen last4": {"frozen_encoder": "last4", **known},
            "frozen all": {"frozen_encoder": "all", **known},
            "published": {**published, **known},
            "published, questions": {**published, **questions},
            "own protocol": {"num_train_epochs": 3, "baselines": True, **known},
            "own files": {"num_train_epochs": 5, "save_model": True, **own, **alone},
            "own files of several labels": {"num_train_epochs": 3, "label_column": LABELS, **many}
            | alone,
            "own files of questions": {"num_train_epochs": 3, **questions},
        }
        lines = [
            words("finetune", model, f"random:{model}", seeds=2, output_dir=folder / name, **flags)
            for name, flags in ways.items()
        ]
        for done in program.batch(lines):
            done.ok()
        found: Outcome = {name: adapter.scores(folder / name) for name in ways}
        (kept,) = (folder / "own files" / "models").iterdir()
        table = folder / "predicted.jsonl"
        program.one("predict", kept, own["validation_file"], output_file=table, probabilities=True)
        rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
        found["predicted"] = {"columns": sorted(rows[0]), "rows": len(rows)}
        return found

    agrees("finetuning", measure)


def test_a_study(agrees: Any, data_of: Callable[[Program], Path]) -> None:
    """Two recipes at equal FLOPs: cosines, replaced words, minimal pairs, a frozen probe."""

    def measure(program: Program, folder: Path) -> Outcome:
        tasks = material.tasks(folder / "tasks")
        small = (
            "num_hidden_layers: 1, hidden_size: 32, num_attention_heads: 2, intermediate_size: 64, "
            "embedding_size: 32, max_seq_length: 32, train_batch_size: 8, warmup_steps: 4, "
            "eval_rows: 32, bf16: false"
        )
        entries = [f"{n}: {{recipe: {n}-tiny, {small}}}\n" for n in ("bert", "electra")]
        file = material.write(folder / "recipes.yaml", "".join(entries))
        common = {"recipe_file": file, "seeds": 1, "task_seeds": 1, "baselines": False}
        common |= {"data_dir": tasks, "device": "cpu"}
        task = program.substitution
        study = {"tasks": f"stsb:cosine,{task},blimp,conll2000:frozen", "budgets": "5e8,1e9"}
        plan = {"tasks": task, "budgets": 0.5, "equal": "epochs", "plan_only": True}
        done = program.batch(
            [
                words("compare", data_of(program), output_dir=folder / out, **common | asked)
                for out, asked in {"study": study, "plan": plan | {"json": True}}.items()
            ]
        )
        planned = json.loads(done[1].ok().out)["lines"]
        results = (folder / "study" / "results.jsonl").read_text(encoding="utf-8")
        assert done[0].ok().out
        keep = ("flops", "steps", "tokens", "parameters", "scores", "validation")
        found: Outcome = {
            f"{row['entry']} {row['budget']:.0e}": {name: row[name] for name in keep}
            for row in map(json.loads, results.replace("planted", "substitution").splitlines())
        }
        keep = ("recipe", "flops", "updates", "tokens", "epochs", "parameters")
        return found | {"equal epochs": [{name: row[name] for name in keep} for row in planned]}

    agrees("study", measure)


def test_flops(agrees: Any) -> None:
    """All shipped recipes in both conventions, and the published models."""

    def measure(program: Program, folder: Path) -> Outcome:
        paper = {"convention": "paper", "json": True}
        lines = [
            words("flops", **paper),
            words("flops", convention="hardware", vocab_size=8192, length=128, json=True),
            words("flops", "electra-tiny:mask_rate=.3,tie=gdes", equal_to="bert-tiny", **paper),
            words("flops", published=True, json=True),
        ]
        by_paper, hardware, changed, published = (
            json.loads(done.ok().out) for done in program.batch(lines)
        )
        both = {"paper": by_paper["recipes"], "hardware": hardware["recipes"]}
        found = {f"{n} {name}": row for n, rows in both.items() for name, row in rows.items()}
        return found | {"changed": changed["recipes"], "published": published["published"]}

    agrees("flops", measure)
