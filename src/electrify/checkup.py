"""`electrify doctor`: what is wrong with a corpus, a run or a model, and what to do about it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from .errors import UserError, need
from .exporting.places import SCORES, model_in
from .files import read_json, sha256
from .names import Named
from .progress import Waiting
from .train import CONFIG, FACTS, GENERATOR_STAGE, METRICS
from .values import Options, Positional

if TYPE_CHECKING:
    from .recipe import Recipe

Level = Literal["ok", "note", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
WHAT = {"DATA": "prepared corpus", "RUN": "run", "MODEL": "model"}
PUBLISHED = ((256, 5e-4, 128, 128), (768, 2e-4, 256, 512), (1024, 2e-4, 2048, 512))
"""Width, learning rate, rows of a batch and their tokens: 2003.10555 table 6. Narrower encoders use
a higher rate, in proportion to the width."""
HIGH = 4.0
"""A rate is too high beyond so many times the published one (searches find 2 or 3 times)."""
RISE = 0.02
"""How far a validation loss may be above its best value; noise between validations is smaller."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
RESTORE = "restore it from a copy, or make it again"


@dataclass(frozen=True, kw_only=True)
class DoctorConfig(Options):
    """Which folders are checked."""

    paths: Positional[tuple[str, ...]]
    """Corpora, runs and models. A corpus and a run given together are compared."""
    json: bool = False
    """Write JSON."""


@dataclass(frozen=True)
class Finding:
    """What was seen in a folder. code: a stable name for programs; advice: what to do."""

    level: Level
    code: str
    fact: str
    advice: str = ""


Findings = Iterator[Finding]


def warning(code: str, fact: str, advice: str) -> Finding:
    return Finding("warning", code, fact, advice)


@dataclass
class Folder:
    """A folder that is checked."""

    path: Path
    kind: str
    """A key of WHAT."""
    findings: list[Finding] = field(default_factory=list)

    def run(self, check: Callable[..., Findings], *given: Any) -> None:
        """Adds the findings of a check. Damage that breaks a check is a finding, too."""
        try:
            for finding in check(self.path, *given):
                self.findings.append(finding)
        except UserError as e:
            self.findings.append(Finding("error", "refused", e.fact, e.advice or RESTORE))
        except (OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError) as e:
            said = f"a check ended on what it read: {type(e).__name__}: {str(e)[:200]}"
            self.findings.append(Finding("error", "damaged", said, RESTORE))


@dataclass(frozen=True)
class Report(Named):
    """What was found in every folder, those inside runs included."""

    folders: list[Folder]

    @property
    def counts(self) -> dict[Level, int]:
        levels = [f.level for folder in self.folders for f in folder.findings]
        return {level: levels.count(level) for level in LEVELS}

    @property
    def ok(self) -> bool:
        return not self.counts["error"]

    @property
    def problems(self) -> list[Finding]:
        """The warnings and errors of all folders."""
        every = [f for folder in self.folders for f in folder.findings]
        return [f for f in every if f.level in ("warning", "error")]

    def __str__(self) -> str:
        return self.text()

    def as_json(self) -> str:
        folders = [asdict(folder) | {"path": str(folder.path)} for folder in self.folders]
        return json.dumps({"folders": folders, "counts": self.counts})

    def text(self) -> str:
        """A paragraph for each folder, the worst findings last."""
        lines = []
        for d in self.folders:
            lines.append(f"{d.path}  ({d.kind}: {WHAT[d.kind]})")
            for f in sorted(d.findings, key=lambda f: LEVELS.index(f.level)):
                lines.append(f"  {f.level:<8} {f.fact}")
                lines += [f"{'-> ':>14}{f.advice}"] if f.advice else []
        counts = ", ".join(f"{n} {level}" for level, n in self.counts.items())
        return "\n".join([*lines, f"{len(self.folders)} folders: {counts}"])


def doctor(*paths: str | PathLike[str]) -> Report:
    """Checks folders. Raises UserError for one that does not exist or is none of the three kinds;
    damage is a finding."""
    need(bool(paths), "name at least one folder: a prepared corpus, a run or a model")
    # Of the results of fine-tuning, their model.
    models = [model_in(fspath(path)) if (Path(path) / SCORES).is_file() else path for path in paths]
    named = [Folder(path, kind_of(path)) for path in dict.fromkeys(map(Path, models))]
    corpora = [folder.path for folder in named if folder.kind == "DATA"]
    return Report([f for folder in named for f in checked(folder, corpora)])


def kind_of(path: Path) -> str:
    """The kind of a folder, complete or not, by the names in it. Raises UserError."""
    fact = f"{path}: {'a file, not a folder' if path.exists() else 'no such folder'}"
    need(path.is_dir(), fact, "name a corpus of `electrify prepare`, a run or a model")
    names = {p.name for p in path.iterdir()}
    need("state.json" not in names, f"{path} is a checkpoint", f"name the run, {path.parent}")
    if names & {FACTS, CONFIG, METRICS}:
        return "RUN"
    if names & {"manifest.json", "unigram.npy", "unfinished"}:
        return "DATA"
    if "config.json" in names or any(n.endswith((".safetensors", *PICKLES)) for n in names):
        return "MODEL"
    raise UserError(f"{path} is neither a prepared corpus nor a run nor a model")


def checked(folder: Folder, corpora: Sequence[Path]) -> list[Folder]:
    """The folder, after its checks, and the folders that a run has made inside. corpora: those that
    were named with it."""
    folder.run({"DATA": check_corpus, "RUN": check_run, "MODEL": check_model}[folder.kind])
    if folder.kind != "RUN":
        return [folder]
    if corpora:
        folder.run(same_data, corpora)
    inside = [Folder(p.parent, "MODEL") for p in sorted(folder.path.glob("*/config.json"))]
    if (stage := folder.path / GENERATOR_STAGE).is_dir():
        inside.append(Folder(stage, "RUN"))
    return [folder, *(f for one in inside for f in checked(one, corpora))]


def check_corpus(path: Path) -> Findings:
    """The files of a corpus against its manifest, and what its counts mean for a run. (The report
    of `prepare` has the advice on its text.)"""
    import numpy as np

    from .text.corpus import Corpus, is_unfinished, verify
    from .train.monitor import GRACE_TOKENS, MAX_EPOCHS

    if is_unfinished(path):
        advice = "the same `electrify prepare` command continues it"
        yield Finding("error", "unfinished", "`prepare` has not ended here", advice)
        return
    with Waiting(f"reading {path.name}"):
        verify(path)
    yield Finding("ok", "whole", "checksums OK")
    train = Corpus(path, "train")
    lengths, tokens = np.concatenate(list(map(np.diff, train.documents))), train.num_tokens
    fact = f"{len(lengths):,} training documents, median length {np.median(lengths):,.0f} tokens"
    yield Finding("ok", "documents", fact)
    fact = f"{tokens:,} training tokens, enough for {MAX_EPOCHS * tokens:,}"
    yield Finding("ok", "enough", f"{fact} ({MAX_EPOCHS} epochs, more bring almost no gain)")
    if tokens < GRACE_TOKENS / MAX_EPOCHS:
        fact = f"models begin to use the context after {GRACE_TOKENS:,} tokens"
        yield warning("little-text", fact, "enough for a trial only: add text")
    if not train.manifest.splits.get("valid"):
        fact = "nothing is set aside for validation, so no run can warn of overfitting"
        yield warning("no-valid", fact, "prepare with a larger valid_fraction")


# ------------------------------------------------------------------ a run


def check_run(path: Path) -> Findings:
    """Everything about a run but the models inside."""
    from .exporting.folder import read_run
    from .rules import check

    recipe, facts = read_run(path)
    check(recipe)
    yield from run_files(path, recipe, facts)
    yield from recipe_traps(recipe, facts.get("corpus", {"counts": {}})["counts"].get("tokens"))
    yield from run_log(path, recipe, facts)


def run_files(path: Path, recipe: Recipe, facts: dict[str, Any]) -> Findings:
    """What run.json names, every checkpoint, and how far the run came."""
    from .train import checkpoint
    from .train.job import decisive

    theirs, ours = facts["recipe"], decisive(recipe)
    if odd := [n for n in {**theirs, **ours} if theirs.get(n) != ours.get(n)]:
        fact = f"{CONFIG} and {FACTS} are not of one run: {', '.join(odd[:5])}"
        yield Finding("error", "recipe", fact, f"restore {CONFIG} from a copy")
    wanted = {path / "tokenizer" / n: h for n, h in facts.get("tokenizer_files", {}).items()}
    if changed := [p.name for p, h in wanted.items() if not p.is_file() or sha256(p) != h]:
        fact = f"tokenizer/{changed[0]} is missing or does not have its hash in {FACTS}"
        advice = "copy the corpus's tokenizer there: other ids mean other words"
        yield Finding("error", "hash", fact, advice)
    else:
        yield Finding("ok", "whole", f"checksums OK ({len(wanted)} files)")
    whole, steps = [0], recipe.train.max_steps
    for step in checkpoint.steps(path):
        try:
            checkpoint.read_state(checkpoint.folder_of(path, step))
            whole.append(step)
        except UserError as e:
            yield Finding("error", "checkpoint", e.fact, "it is passed over: remove it")
    exported = any(path.glob("*/config.json"))
    if 0 < whole[-1] < steps or not exported:
        fact = f"the newest whole checkpoint is of step {whole[-1]:,} of {steps:,}"
        fact += ", and nothing is exported" * (not exported)
        yield Finding("note", "unfinished", fact, "the same command continues it")
    else:
        yield Finding("ok", "finished", f"the run has done its {steps:,} steps and is exported")


def recipe_traps(recipe: Recipe, tokens: int | None) -> Findings:
    """Numbers that can work together but are known not to work well. tokens: of the corpus."""
    from .data.phases import phases_of
    from .rules import LONG_WARMUP
    from .train.monitor import MAX_EPOCHS, grace_of

    t, m, c = recipe.train, recipe.model, recipe.corruption
    least, most = published_rate(m.hidden_size, t.train_batch_size, recipe.data.max_seq_length)
    if t.learning_rate > HIGH * most:
        fact = f"learning rate {t.learning_rate:g}; published for this width and batch: "
        advice = "lower it, or raise the batch: usually the model knows nothing in the end"
        yield warning("learning-rate-high", f"{fact}{least:.1e} to {most:.1e}", advice)
    if t.warmup_steps > LONG_WARMUP * t.max_steps:
        fact = f"the warm-up takes {t.warmup_steps:,} of {t.max_steps:,} steps"
        advice = f"warmup_steps {max(1, t.max_steps // 10)} or less; recipes take 1 to 2 %"
        yield warning("warmup", fact, advice)
    slots, grace = phases_of(recipe).slots(t.max_steps), grace_of(m.init)
    if slots < grace:
        fact = f"{t.max_steps:,} steps are {slots:,} tokens; context is learnt after {grace:,}"
        yield warning("few-steps", fact, "enough for a trial only")
    if tokens and slots / tokens > MAX_EPOCHS:
        fact = f"the corpus of {tokens:,} tokens is seen {slots / tokens:,.0f} times"
        advice = f"more text, or max_steps {int(t.max_steps * MAX_EPOCHS * tokens / slots)}"
        yield warning("epochs", fact, advice)
    high = 0.3 if c.row.learned else 0.4  # of 2202.08005
    odd = [r for r in (c.mask_rate, c.mask_rate_end or c.mask_rate) if not 0.1 <= r <= high]
    if odd:
        fact = f"{odd[0]:.0%} of the tokens are chosen; published: 15 to {high:.0%}"
        yield warning("mask-rate", fact, "mask_rate 0.15")


def published_rate(width: int, rows: int, length: int) -> tuple[float, float]:
    """The published learning rate for a width, scaled to a batch by the square root and in
    proportion (the smaller and the larger of the two). A longer row counts for several."""
    at, rate, batch, usual = min(PUBLISHED, key=lambda p: abs(math.log(p[0] / width)))
    rate *= max(1.0, at / width)
    ratio = rows * max(1.0, length / usual) / batch
    return rate * min(ratio, math.sqrt(ratio)), rate * max(ratio, math.sqrt(ratio))


def run_log(path: Path, recipe: Recipe, facts: dict[str, Any]) -> Findings:
    """What metrics.jsonl says at its end: the warnings of the monitor (a dead generator, too many
    epochs, ...), numbers that are not finite, a validation loss that rises."""
    from .train import log
    from .train.monitor import Monitor, untaught

    records = log.read(path / METRICS) if (path / METRICS).is_file() else []
    records = list(map(log.with_numbers, records))
    train, valid = ([r for r in records if r["kind"] == kind] for kind in ("train", "valid"))
    monitor = Monitor(recipe, facts.get("unigram_entropy", math.inf))
    lasting = [trouble for r in (*train[-1:], *valid[-1:]) for trouble in monitor.watch(r)]
    for trouble in dict.fromkeys(lasting):
        yield warning(trouble.topic, trouble.fact, trouble.advice)
    names = (*recipe.objective.term_weights, "grad_norm")
    bad = [r["step"] for r in train + valid if not all(math.isfinite(r.get(n, 0)) for n in names)]
    if bad:
        level: Level = "error" if max(bad) == train[-1]["step"] else "warning"
        fact = f"losses or gradients are not finite in {len(bad):,} lines, from step {min(bad):,}"
        advice = "a lower learning_rate, a higher warmup_steps or bf16=false"
        yield Finding(level, "not-finite", fact, advice)
    # The loss of a discriminator may rise while its generator gets better.
    losses = ("generator",) if recipe.corruption.row.learned else recipe.objective.row.losses
    for name in [loss for loss in losses if loss not in untaught(recipe)][:1]:
        found = [r for r in valid if name in r]
        best = min(found, key=lambda r: r[name], default={})
        if len(found) < 3 or found[-1][name] <= best[name] * (1 + RISE):
            continue
        fact = f"the validation loss of {name} rose from {best[name]:.3f} at step "
        fact += f"{best['step']:,} to {found[-1][name]:.3f}"
        then = [r[name] for r in train if name in r and r["step"] <= best["step"]][-1:]
        if then and train[-1].get(name, math.inf) < then[0]:
            advice = f"more text, dropout 0.1, or the checkpoint of step {best['step']:,}"
            yield warning("overfitting", f"{fact}, while that of training fell", advice)
        else:
            yield warning("diverging", fact, "a lower learning_rate or longer warm-up")


def same_data(path: Path, corpora: Sequence[Path]) -> Findings:
    """Whether the run was trained on one of the corpora."""
    from .text.corpus import read_manifest

    data = read_json(path / FACTS)["data"]
    same = next((str(c) for c in corpora if read_manifest(c).fingerprint == data), None)
    if same:
        yield Finding("ok", "same-data", f"it was trained on {same}")
    else:
        fact = f"it was not trained on {' or '.join(map(str, corpora))}"
        yield Finding("error", "other-data", fact, "give `pretrain` the corpus that it began with")


# ------------------------------------------------------------------ a model


def check_model(path: Path) -> Findings:
    """Code and pickles in the folder, and what transformers says of the weights that it loads."""
    import transformers

    from .architectures import class_in
    from .exporting.loading import load_config, load_tokenizer, loaded
    from .onnx_models import is_onnx

    names = sorted(p.name for p in path.iterdir())
    if pickles := [n for n in names if n.endswith(PICKLES)]:
        fact = f"{', '.join(pickles[:3])}: pickles, which run any code that they hold when loaded"
        yield warning("pickle", fact, "remove them where there is model.safetensors")
    has_code = "auto_map" in read_json(path / "config.json")
    if code := [n for n in names if n.endswith(".py")] + ["auto_map"] * has_code:
        fact = f"{', '.join(code[:3])}: code of its own, which was not run here"
        yield warning("code", fact, "read it before you set trust_remote_code")
    if is_onnx(str(path)):
        fact = "an ONNX model, for detect and predict. Its graph is not checked here"
        yield Finding("note", "onnx", fact)
        return
    config = load_config(str(path))
    named = next(iter(config.architectures or []), "")
    # Without a class of that name only the encoder is loaded, and the rest is unexpected.
    library, own = getattr(transformers, named, None), class_in(config)
    _, info = loaded(library or transformers.AutoModel, str(path), config)
    if info["unexpected_keys"] and own not in (None, library):
        _, info = loaded(own, str(path), config)  # a head or decoder that transformers lacks
    missing = sorted(info["missing_keys"])
    if missing:
        level: Level = "note" if all("pooler" in name for name in missing) else "error"
        fact = f"{len(missing)} weights are missing: drawn at random: {', '.join(missing[:3])}"
        yield Finding(level, "missing", fact, "is it the config.json of these weights?")
    else:
        yield Finding("ok", "loads", f"{named or 'the encoder'} loads with every weight")
    if library and (extra := sorted(info["unexpected_keys"])):
        fact = f"{len(extra)} weights have no place in {named} and are ignored: {extra[0]}, ..."
        yield Finding("note", "extra", fact, "is it the config.json of these weights?")
    load_tokenizer(str(path), vocab_size=config.vocab_size)
