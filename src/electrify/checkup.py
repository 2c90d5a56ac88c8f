"""`electrify doctor`: what is wrong with a corpus, a run or a model, and what to do about it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import UserError, need
from .exporting.places import SCORES, model_in
from .files import read_json, sha256
from .progress import Progress, show
from .values import Options, Positional

if TYPE_CHECKING:
    from .recipe import Recipe
    from .text.corpus import Manifest

Level = Literal["ok", "note", "warning", "error"]
Kind = Literal["DATA", "RUN", "MODEL"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")
WHAT = {"DATA": "prepared corpus", "RUN": "run", "MODEL": "model"}
PUBLISHED = ((256, 5e-4, 128, 128), (768, 2e-4, 256, 512), (1024, 2e-4, 2048, 512))
"""Width, learning rate, rows of a batch and their tokens: 2003.10555 table 6. Narrower encoders use
a higher rate, in proportion to the width."""
HIGH, LOW = 4.0, 30.0
"""A rate is far off beyond so many times the published one (searches find 2 or 3 times)."""
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

    def __call__(self) -> int:
        report = doctor(*self.paths)
        show(report.as_json() if self.json else report.text())
        return report.status


@dataclass(frozen=True)
class Finding:
    """What was seen in a folder. code: a stable name for programs; advice: what to do."""

    level: Level
    code: str
    fact: str
    advice: str = ""


Findings = Iterator[Finding]


@dataclass
class Folder:
    """A folder that is checked. about: facts with which it is compared with others."""

    path: Path
    kind: Kind
    findings: list[Finding] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    def run(self, check: Callable[..., Findings], *given: Any) -> None:
        """Adds the findings of a check. Damage that breaks a check is a finding, too."""
        try:
            for finding in check(*given):
                self.findings.append(finding)
        except UserError as e:
            self.findings.append(Finding("error", "refused", e.fact, e.advice or RESTORE))
        except (OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError) as e:
            said = f"a check ended on what it read: {type(e).__name__}: {str(e)[:200]}"
            self.findings.append(Finding("error", "damaged", said, RESTORE))


@dataclass(frozen=True)
class Report:
    """What was found in every folder, those inside runs included."""

    folders: list[Folder]

    @property
    def counts(self) -> dict[Level, int]:
        every = [f.level for folder in self.folders for f in folder.findings]
        return {level: every.count(level) for level in LEVELS}

    @property
    def status(self) -> int:
        """The exit status: 1 if there is an error."""
        return int(self.counts["error"] > 0)

    @property
    def ok(self) -> bool:
        return self.status == 0

    def __str__(self) -> str:
        return self.text()

    def as_json(self) -> str:
        folders = [
            {"path": str(d.path), "kind": d.kind, "findings": [asdict(f) for f in d.findings]}
            for d in self.folders
        ]
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


def doctor(*paths: str | Path) -> Report:
    """Checks folders. Raises UserError for one that does not exist or is none of the three kinds;
    damage is a finding."""
    need(bool(paths), "name at least one folder: a prepared corpus, a run or a model")
    named = [Folder(path, kind_of(path)) for path in dict.fromkeys(map(meant, paths))]
    folders = [f for folder in named for f in checked(folder)]
    corpora = [f for f in named if "manifest" in f.about]
    for run in folders:
        if corpora and "facts" in run.about:
            run.run(same_data, run, corpora)
    return Report(folders)


def meant(path: str | Path) -> Path:
    """The folder that is checked: for the results of fine-tuning their model."""
    return Path(model_in(str(path)) if (Path(path) / SCORES).is_file() else path)


def kind_of(path: Path) -> Kind:
    """The kind of a folder, complete or not, by the names in it. Raises UserError."""
    fact = f"{path}: {'a file, not a folder' if path.exists() else 'no such folder'}"
    need(path.is_dir(), fact, "name a corpus of `electrify prepare`, a run or a model")
    names = {p.name for p in path.iterdir()}
    need("state.json" not in names, f"{path} is a checkpoint", f"name the run, {path.parent}")
    if names & {"run.json", "config.yaml", "metrics.jsonl"}:
        return "RUN"
    if names & {"manifest.json", "unigram.npy", "unfinished"}:
        return "DATA"
    if "config.json" in names or any(n.endswith((".safetensors", *PICKLES)) for n in names):
        return "MODEL"
    raise UserError(f"{path} is neither a prepared corpus nor a run nor a model")


def checked(folder: Folder) -> list[Folder]:
    """The folder, after its checks, and the folders that a run has made inside."""
    inside: list[Folder] = []
    if folder.kind == "DATA":
        folder.run(corpus, folder)
    elif folder.kind == "MODEL":
        folder.run(model_files, folder)
        folder.run(model_loads, folder)
    else:
        folder.run(run_identity, folder)
        if "recipe" in folder.about:
            folder.run(run_progress, folder)
            tokens = folder.about["facts"].get("corpus", {"counts": {}})["counts"].get("tokens")
            folder.run(recipe_traps, folder.about["recipe"], tokens)
            folder.run(run_log, folder)
        inside = [Folder(p.parent, "MODEL") for p in sorted(folder.path.glob("*/config.json"))]
        if (folder.path / "generator-stage").is_dir():
            inside.append(Folder(folder.path / "generator-stage", "RUN"))
    return [folder, *(f for one in inside for f in checked(one))]


def hashes(folder: Path, wanted: dict[str, str], where: str, advice: str) -> Findings:
    """Every byte of files against the hashes in another one."""
    sizes = {n: (folder / n).stat().st_size / 1e6 for n in wanted if (folder / n).is_file()}
    whole = True
    with Progress(sum(sizes.values()), title=f"reading {folder.name}", unit="MB") as bar:
        for name, digest in wanted.items():
            if name not in sizes:
                yield Finding("error", "missing", f"{name}, named by {where}, is missing", advice)
            elif sha256(folder / name) != digest:
                yield Finding("error", "hash", f"{name} does not have its hash in {where}", advice)
            else:
                bar.advance(sizes[name])
                continue
            whole = False
    if whole:
        yield Finding("ok", "whole", f"checksums OK ({len(wanted)} files)")


# ------------------------------------------------------------------ a corpus


def corpus(folder: Folder) -> Findings:
    """The files of a corpus against its manifest, and what its counts mean for a run. (The report
    of `prepare` has the advice on its text.)"""
    import numpy as np

    from .text.corpus import AGAIN, MANIFEST, Corpus, is_unfinished, read_manifest
    from .train.monitor import GRACE_TOKENS, MAX_EPOCHS

    if is_unfinished(folder.path):
        advice = "the same `electrify prepare` command continues it"
        yield Finding("error", "unfinished", "`prepare` has not ended here", advice)
        return
    manifest: Manifest = read_manifest(folder.path)
    folder.about["manifest"] = manifest
    shards = [s for split in manifest.splits.values() for s in split]
    wanted = {s.tokens_file: s.tokens_sha256 for s in shards}
    wanted |= {s.documents_file: s.documents_sha256 for s in shards}
    wanted |= {f"tokenizer/{n}": h for n, h in manifest.tokenizer_files.items()}
    wanted["unigram.npy"] = manifest.unigram_sha256
    found = list(hashes(folder.path, wanted, MANIFEST, AGAIN))
    yield from found
    if found[0].level == "error":
        return
    tokens = sum(s.tokens for s in manifest.splits["train"])
    lengths = np.concatenate(
        [np.diff(offsets) for offsets in Corpus(folder.path, "train").documents]
    )
    fact = f"{len(lengths):,} training documents, median length {np.median(lengths):,.0f} tokens"
    yield Finding("ok", "documents", fact)
    fact = f"{tokens:,} training tokens, enough for {MAX_EPOCHS * tokens:,}"
    yield Finding("ok", "enough", f"{fact} ({MAX_EPOCHS} epochs, more bring almost no gain)")
    if tokens < GRACE_TOKENS / MAX_EPOCHS:
        fact = f"{tokens:,} tokens to train on; models begin to use the context after "
        fact += f"{GRACE_TOKENS:,}, and repeats beyond {MAX_EPOCHS} gain next to nothing"
        yield Finding("warning", "little-text", fact, "enough to try the path only: add text")
    if not manifest.splits.get("valid"):
        fact = "nothing is set aside for validation, so no run can warn of overfitting"
        yield Finding("warning", "no-valid", fact, "prepare with a larger valid_fraction")


# ------------------------------------------------------------------ a run


def run_identity(folder: Folder) -> Findings:
    """The recipe, run.json, and the tokenizer that both mean."""
    from .recipe import load
    from .rules import check
    from .train.job import decisive

    recipe = load(folder.path / "config.yaml", trusted=False)
    facts = read_json(folder.path / "run.json")
    check(recipe)
    folder.about = {"facts": facts, "recipe": recipe}
    theirs, ours = facts["recipe"], decisive(recipe)
    odd = [n for n in {**theirs, **ours} if theirs.get(n) != ours.get(n)]
    if odd:
        fact = f"config.yaml and run.json are not of one run: {', '.join(odd[:5])}"
        yield Finding("error", "recipe", fact, "restore config.yaml from a copy")
    wanted = {f"tokenizer/{n}": h for n, h in facts.get("tokenizer_files", {}).items()}
    advice = "copy the corpus's tokenizer there: other ids mean other words"
    yield from hashes(folder.path, wanted, "run.json", advice)


def run_progress(folder: Folder) -> Findings:
    """Every checkpoint to the last byte, and how far the run came."""
    from .train import checkpoint

    whole = [0]
    for step in checkpoint.steps(folder.path):
        try:
            checkpoint.read_state(checkpoint.folder_of(folder.path, step))
            whole.append(step)
        except UserError as e:
            yield Finding("error", "checkpoint", e.fact, "it is passed over: remove it")
    exported = any(folder.path.glob("*/config.json"))
    steps = folder.about["recipe"].train.max_steps
    if exported and whole[-1] in (0, steps):
        yield Finding("ok", "finished", f"the run has done its {steps:,} steps and is exported")
    elif whole[-1] < steps:
        fact = f"the run stands at step {whole[-1]:,} of {steps:,}"
        yield Finding("note", "unfinished", fact, "the same command continues it")
    else:
        advice = "`electrify export RUN --output-dir MODEL` writes it"
        yield Finding("warning", "not-exported", f"{steps:,} steps are done, no model", advice)


def recipe_traps(recipe: Recipe, tokens: int | None) -> Findings:
    """Numbers that can work together but are known not to work well. tokens: of the corpus."""
    from .data.phases import phases_of
    from .train.monitor import MAX_EPOCHS, grace_of

    t, m, c = recipe.train, recipe.model, recipe.corruption

    def warning(code: str, fact: str, advice: str) -> Finding:
        return Finding("warning", code, fact, advice)

    least, most = published_rate(m.hidden_size, t.train_batch_size, recipe.data.max_seq_length)
    fact = f"learning rate {t.learning_rate:g}; published for this width and batch: {least:.1e} to "
    fact += f"{most:.1e}"
    if t.learning_rate > HIGH * most:
        advice = "lower it, or raise the batch: usually the model knows nothing in the end"
        yield warning("learning-rate-high", fact, advice)
    elif t.learning_rate < least / LOW:
        yield warning("learning-rate-low", fact, "raise it: little will be learnt")
    if t.warmup_steps > 0.25 * t.max_steps:
        fact = f"the warm-up takes {t.warmup_steps:,} of {t.max_steps:,} steps"
        advice = f"warmup_steps {max(1, t.max_steps // 10)} or less; recipes take 1 to 2 %"
        yield warning("warmup", fact, advice)
    slots = phases_of(recipe).slots(t.max_steps)
    grace = grace_of(m.init)
    if slots < grace:
        fact = f"{t.max_steps:,} steps are {slots:,} tokens; models use the context after {grace:,}"
        yield warning("few-steps", fact, "enough to try the path only")
    if tokens and slots / tokens > MAX_EPOCHS:
        fact = f"the corpus of {tokens:,} tokens is seen {slots / tokens:,.0f} times"
        advice = f"more text, or max_steps {int(t.max_steps * MAX_EPOCHS * tokens / slots)}"
        yield warning("epochs", fact, advice)
    own = m.generator_numbers()
    share = own["hidden_size"] / m.hidden_size
    # In two stages and for shared encoders, equal size is part of the method; a given generator has
    # its size; a shallower one is small though it is as wide.
    meant = t.generator_steps or t.init_generator or m.tie in ("all", "lower")
    meant = meant or own["num_hidden_layers"] < m.num_hidden_layers
    if c.row.learned and (share < 1 / 8 or (share >= 1 and not meant)):
        fact = f"the generator is {share:.2g} times as wide as the encoder; published: 1/4 to 1/3"
        yield warning("generator-size", fact, "generator_size 0.25")
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


def run_log(folder: Folder) -> Findings:
    """What metrics.jsonl says at its end: the warnings of the monitor (a dead generator, too many
    epochs, ...), numbers that are not finite, a validation loss that rises."""
    from .train import log
    from .train.monitor import Monitor, untaught

    recipe: Recipe = folder.about["recipe"]
    path = folder.path / "metrics.jsonl"
    records = log.read(path) if path.is_file() else []
    # Numbers that are not finite are written as text.
    odd = ("nan", "inf", "-inf")
    records = [{k: float(v) if v in odd else v for k, v in r.items()} for r in records]
    train, valid = ([r for r in records if r["kind"] == kind] for kind in ("train", "valid"))
    monitor = Monitor(recipe, folder.about["facts"].get("unigram_entropy", math.inf))
    lasting = [trouble for r in (*train[-1:], *valid[-1:]) for trouble in monitor.watch(r)]
    for trouble in dict.fromkeys(lasting):
        yield Finding("warning", trouble.topic, trouble.fact, trouble.advice)
    names = (*recipe.objective.term_weights, "grad_norm")
    bad = [r["step"] for r in train + valid if not all(math.isfinite(r.get(n, 0)) for n in names)]
    if bad:
        level: Level = "error" if max(bad) == train[-1]["step"] else "warning"
        fact = f"losses or gradients are not finite in {len(bad):,} lines, from step {min(bad):,}"
        advice = "a lower learning_rate, a higher warmup_steps or bf16=false"
        yield Finding(level, "not-finite", fact, advice)
    if not valid:
        yield Finding("note", "not-validated", "nothing was validated yet")
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
            fact += ", while that of training fell"
            yield Finding("warning", "overfitting", fact, advice)
        else:
            yield Finding("warning", "diverging", fact, "a lower learning_rate or longer warm-up")


def same_data(run: Folder, corpora: list[Folder]) -> Findings:
    """Whether the run was trained on one of the corpora."""
    facts = run.about["facts"]
    for found in corpora:
        if found.about["manifest"].fingerprint == facts["data"]:
            yield Finding("ok", "same-data", f"it was trained on {found.path}")
            return
    words = {c.about["manifest"].tokenizer_sha256 for c in corpora}
    what = "other text" if facts["tokenizer_sha256"] in words else "another vocabulary"
    fact = f"it was not trained on {corpora[0].path}, which has {what}"
    yield Finding("error", "other-data", fact, "give `pretrain` the corpus that it began with")


# ------------------------------------------------------------------ a model


def model_files(folder: Folder) -> Findings:
    """Code and pickles in the folder."""
    names = sorted(p.name for p in folder.path.iterdir())
    if pickles := [n for n in names if n.endswith(PICKLES)]:
        fact = f"{', '.join(pickles[:3])}: pickles, which run any code that they hold when loaded"
        yield Finding("warning", "pickle", fact, "remove them where there is model.safetensors")
    config = read_json(folder.path / "config.json")
    code = [n for n in names if n.endswith(".py")] + ["auto_map"] * ("auto_map" in config)
    if code:
        fact = f"{', '.join(code[:3])}: code of its own, which was not run here"
        yield Finding("warning", "code", fact, "read it before you set trust_remote_code")


def model_loads(folder: Folder) -> Findings:
    """What transformers says of the weights as it loads them, and the tokenizer."""
    import transformers

    from .exporting.loading import SAFE_WEIGHTS, load_config, load_tokenizer, quiet

    path = str(folder.path)
    config = load_config(path)
    named = next(iter(config.architectures or []), "")
    # Without a class of that name only the encoder is loaded, and the rest is unexpected.
    cls: Any = getattr(transformers, named, None)
    how = {"config": config, "output_loading_info": True} | SAFE_WEIGHTS
    with quiet():
        model, info = (cls or transformers.AutoModel).from_pretrained(path, **how)
        own = own_class(config, named) if info["unexpected_keys"] else None
        if own:
            model, info = own.from_pretrained(path, **how)
    missing, shapes = sorted(info["missing_keys"]), sorted(n for n, *_ in info["mismatched_keys"])
    extra = sorted(info["unexpected_keys"]) if cls else []
    odd = [n for n, t in model.state_dict().items() if not t.isfinite().all()]
    only_pooler = all("pooler" in name for name in missing)
    rows: list[tuple[list[str], Level, str, str]] = [
        (missing, "note" if only_pooler else "error", "missing", "are missing: drawn at random"),
        (shapes, "error", "shapes", "do not have the shape that config.json gives"),
        (extra, "note", "extra", f"have no place in {named} and are ignored"),
        (odd, "error", "not-finite", "hold values that are not finite"),
    ]
    for keys, level, code, what in rows:
        if keys:
            fact = f"{len(keys)} weights {what}: {', '.join(keys[:3])}"
            yield Finding(level, code, fact, "is it the config.json of these weights?")
    if not (missing or shapes or odd):
        fact = f"{named or 'the encoder'} loads with every weight"
        also = ", those of a head or decoder that transformers lacks included"
        yield Finding("ok", "loads", fact + also * bool(own))
    load_tokenizer(path, vocab_size=config.vocab_size)


def own_class(config: Any, named: str) -> Any:
    """Our class for what the library has none for (DeBERTaV3's own head, DeBERTa's mask decoder);
    None if it has one, or if the architecture is not ours."""
    import transformers

    from .architectures import class_in

    own = class_in(config)
    return None if own is getattr(transformers, named, None) else own
