"""A pre-training recipe: five sections of plain numbers, read from YAML, overridden by flags, checked before anything runs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from ..errors import UserError, nearest
from .schema import convert, field_types, from_mapping


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The encoder that is kept, and how the generator derives from it."""

    num_hidden_layers: int
    """Blocks of the encoder that is kept."""
    hidden_size: int
    """Width of the encoder that is kept."""
    num_attention_heads: int
    """Attention heads of the encoder that is kept."""
    intermediate_size: int
    """Width of its feed-forward layers."""
    embedding_size: int
    """Width of the word, position and segment tables."""
    max_position_embeddings: int = 512
    """Longest sequence the position table allows."""
    generator_size: float = 0.25
    """Width, heads and feed-forward width of the generator as a share of the encoder's; depth is kept."""
    tie: Literal["embeddings", "none", "tokens", "all"] = "embeddings"
    """What generator and discriminator share: the embedding layer, nothing, the token table, or every encoder weight (needs generator_size 1)."""
    dropout: float
    """Dropout of embeddings and sub-layer outputs."""
    attention_dropout: float
    """Dropout of attention weights."""
    init: Literal["bert", "local"]
    """Initial values: bert = truncated normal .02; local = heads that look at neighbours from the first step (leaves the unigram plateau sooner)."""
    local_amplitude: float = 3.0
    """With init local: how sharply a head looks at its neighbour at the start (its logit is 4 times this)."""
    init_words: Literal["random", "cooccurrence"] = "random"
    """Where word embeddings start: random = as init draws them; cooccurrence = from which of them stand together in DATA (half a minute)."""


@dataclass(frozen=True, kw_only=True)
class CorruptionConfig:
    """What is changed, and by whom."""

    corruptor: Literal["mask", "generator"]
    """mask = [MASK], kept and random tokens, no parameters; generator = samples of a masked LM trained beside."""
    mask_rate: float
    """Share of the tokens of each sequence that is chosen."""
    mask_mix: tuple[float, ...]
    """Shares of the chosen tokens shown to the language model as [MASK], unchanged, random."""
    temperature: float = 1.0
    """The generator's logits are divided by this before sampling."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is asked about the corrupted text."""

    objective: Literal["mlm", "rtd"]
    """mlm = predict the original at chosen positions; rtd = say of every token whether it was replaced."""
    term_weights: dict[str, float]
    """Weight of each loss term, e.g. generator=1,rtd=50."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How documents become rows."""

    max_seq_length: int
    """Slots in a row, and the longest sequence, [CLS] and [SEP] included."""
    num_segments: int = 1
    """1: [CLS] a [SEP]; 2: [CLS] a [SEP] b [SEP], one sequence in ten single, so that the segment embeddings are trained."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The run."""

    max_steps: int
    """Optimiser updates of the whole run; the schedule ends there."""
    train_batch_size: int
    """Rows in one update over all processes: what decides the result."""
    per_device_train_batch_size: int | None = None
    """Rows in one forward pass of one process; by default all its rows. Together with --gradient-accumulation-steps it sets train_batch_size."""
    gradient_accumulation_steps: int | None = None
    """Forward passes per update; by default what train_batch_size, per_device_train_batch_size and the number of processes ask for."""
    learning_rate: float
    """Peak learning rate."""
    generator_learning_rate: float | None = None
    """Peak learning rate of the parameters that only the generator has; by default learning_rate."""
    lr_scheduler_type: Literal["electra", "linear", "cosine", "wsd", "constant"] = "electra"
    """electra = the paper's (linear decay that already runs during warm-up); the others decay after warm-up; wsd holds, then decays over the
    last fifth."""
    warmup_steps: int
    """Updates until the peak learning rate."""
    optim: Literal["electra_adam", "adamw"] = "electra_adam"
    """electra_adam = Adam without bias correction and with decoupled weight decay, as published; adamw = torch's."""
    weight_decay: float = 0.01
    """Decoupled; not on biases and LayerNorm."""
    adam_beta1: float = 0.9
    """First-moment decay."""
    adam_beta2: float = 0.999
    """Second-moment decay."""
    adam_epsilon: float = 1e-6
    """Added to the root of the second moment."""
    max_grad_norm: float = 1.0
    """Gradients of all parameters together are clipped to this norm; 0 switches it off."""
    seed: int = 0
    """Decides initial values, order of the data, masks, samples and dropout."""
    bf16: bool = True
    """Autocast to bfloat16; parameters and optimiser stay float32."""
    torch_compile: bool = False
    """Compile the objective (GPU; on a CPU the first step then takes half a minute)."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    logging_steps: int = 50
    """Updates between two lines of metrics.jsonl."""
    eval_steps: int = 1000
    """Updates between two validations; 0 validates at the end only."""
    eval_rows: int = 512
    """Rows of the valid split read by a validation, always the same ones."""
    save_steps: int = 1000
    """Updates between two checkpoints; there is always one at the end."""
    save_total_limit: int | None = 2
    """Newest checkpoints kept."""
    max_minutes: float | None = None
    """Wall time after which the run saves and stops; the same command goes on for as long again."""
    report_to: tuple[str, ...] = ("tensorboard",)
    """Trackers beside metrics.jsonl: tensorboard, or none."""
    init_discriminator: str | None = None
    """Hugging Face folder or Hub id that the kept encoder starts from; it decides that half's shape."""
    init_generator: str | None = None
    """Hugging Face folder or Hub id that the generator starts from; it decides that half's shape."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """A whole recipe."""

    model: ModelConfig
    corruption: CorruptionConfig
    objective: ObjectiveConfig
    data: DataConfig
    train: TrainConfig


SECTIONS: dict[str, type] = dict(field_types(PretrainConfig))
SECTION_OF: dict[str, str] = {name: section for section, cls in SECTIONS.items() for name in field_types(cls)}


def recipe_names() -> list[str]:
    return sorted(p.name.removesuffix(".yaml") for p in (resources.files("electrify") / "recipes").iterdir() if p.name.endswith(".yaml"))


def load_recipe(name: str) -> PretrainConfig:
    """A shipped recipe by name. Raises UserError with the nearest name."""
    if name not in recipe_names():
        raise UserError(f"there is no recipe {name!r}{nearest(name, recipe_names())}")
    return parse((resources.files("electrify") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8"), f"recipe {name}")


def load_file(path: Path) -> PretrainConfig:
    """A recipe file of the user. Raises UserError naming file and field."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as e:
        raise UserError(f"the recipe {path} cannot be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise UserError(f"the recipe {path} is not UTF-8 text (byte {e.start})") from e


def parse(text: str, where: str) -> PretrainConfig:
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise UserError(f"{where} is not valid YAML: {' '.join(str(e).split())}") from e
    if not isinstance(raw, dict):
        raise UserError(f"{where} must have the sections {', '.join(SECTIONS)}")
    for key in raw:
        if key not in SECTIONS:
            home = SECTION_OF.get(str(key))
            raise UserError(f"{where} has no section {key!r}" + (f"; {key} belongs to the section {home}" if home else nearest(str(key), SECTIONS)))
    sections = {s: from_mapping(cls, raw.get(s) or {}, f"{where}, section {s}") for s, cls in SECTIONS.items()}
    return PretrainConfig(**sections)


def dump(config: PretrainConfig) -> str:
    """YAML that `parse` reads back to an equal recipe."""
    plain = {s: {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()} for s, fields in dataclasses.asdict(config).items()}
    return yaml.safe_dump(plain, sort_keys=False, width=150)


def override(config: PretrainConfig, fields: dict[str, Any]) -> PretrainConfig:
    """The recipe with bare fields replaced: override(c, {"max_steps": 10}). Raises UserError for an unknown field."""
    by_section: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        if name not in SECTION_OF:
            raise UserError(f"there is no field {name!r}{nearest(name, SECTION_OF)}")
        section = SECTION_OF[name]
        by_section.setdefault(section, {})[name] = convert(value, field_types(SECTIONS[section])[name], f"--{name.replace('_', '-')}")
    new = {s: dataclasses.replace(getattr(config, s), **values) for s, values in by_section.items()}
    return dataclasses.replace(config, **new)


def check(config: PretrainConfig) -> None:
    """Raises UserError where the numbers cannot work together."""
    check_model(config.model, corruptor=config.corruption.corruptor)
    check_task(config.corruption, config.objective)
    check_train(config.train)
    d, longest = config.data, config.model.max_position_embeddings
    need(d.max_seq_length <= longest, f"max_seq_length {d.max_seq_length} exceeds max_position_embeddings {longest}")
    need(d.max_seq_length >= 8, f"max_seq_length {d.max_seq_length} is too short; use at least 8")
    need(d.num_segments in (1, 2), f"num_segments is 1 or 2, not {d.num_segments}")


def need(ok: bool, sentence: str) -> None:
    if not ok:
        raise UserError(sentence)


def check_model(m: ModelConfig, *, corruptor: str) -> None:
    for name in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size", "max_position_embeddings"):
        need(getattr(m, name) > 0, f"{name} must be positive, not {getattr(m, name)}")
    need(m.hidden_size % m.num_attention_heads == 0, f"hidden_size {m.hidden_size} is no multiple of num_attention_heads {m.num_attention_heads}")
    need(m.tie != "all" or m.generator_size == 1, f"tie all shares every encoder weight and needs generator_size 1, not {m.generator_size}")
    need(0 < m.generator_size <= 1, f"generator_size must lie in (0, 1], not {m.generator_size}")
    heads, width = m.num_attention_heads * m.generator_size, m.hidden_size * m.generator_size
    need(
        corruptor == "mask" or (heads >= 1 - 1e-9 and round(width) % max(1, round(heads)) == 0),
        f"generator_size {m.generator_size} leaves {heads:g} attention heads over {width:g}; choose a size that divides",
    )
    need(0 <= m.dropout < 1 and 0 <= m.attention_dropout < 1, "dropout and attention_dropout must lie in [0, 1)")
    need(0 < m.local_amplitude < math.inf, f"local_amplitude must be positive, not {m.local_amplitude}")
    narrow = min(m.hidden_size // m.num_attention_heads, m.embedding_size)
    need(m.init != "local" or narrow >= 4, f"init local needs heads and embeddings at least 4 wide, not {narrow}; take init bert")


def check_task(c: CorruptionConfig, o: ObjectiveConfig) -> None:
    need(0 < c.mask_rate < 1, f"mask_rate must lie between 0 and 1, not {c.mask_rate}")
    need(
        len(c.mask_mix) == 3 and min(c.mask_mix) >= 0 and abs(sum(c.mask_mix) - 1) < 1e-6, f"mask_mix {c.mask_mix} must be three shares that sum to 1"
    )
    need(c.temperature > 0, f"temperature must be positive, not {c.temperature}")
    need(o.objective != "rtd" or c.corruptor == "generator", "objective rtd needs corruptor generator; corruptor mask goes with objective mlm")
    need(o.objective != "mlm" or c.corruptor == "mask", "objective mlm needs corruptor mask")
    want = {"mlm": {"mlm"}, "rtd": {"generator", "rtd"}}[o.objective]
    need(set(o.term_weights) == want, f"term_weights must name {sorted(want)}, not {sorted(o.term_weights)}")
    weights = o.term_weights.values()
    need(all(0 <= w < math.inf for w in weights) and any(weights), f"term_weights must be numbers from 0 on, not all 0: {o.term_weights}")


def check_train(t: TrainConfig) -> None:
    for name in ("max_steps", "train_batch_size", "logging_steps", "save_steps", "learning_rate", "adam_epsilon", "eval_rows"):
        need(getattr(t, name) > 0, f"{name} must be positive, not {getattr(t, name)}")
    for name in ("warmup_steps", "eval_steps", "weight_decay", "max_grad_norm"):
        need(getattr(t, name) >= 0, f"{name} cannot be negative: {getattr(t, name)}")
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "save_total_limit", "max_minutes", "generator_learning_rate"):
        need(getattr(t, name) is None or getattr(t, name) > 0, f"{name} must be positive, not {getattr(t, name)}")
    for name in ("adam_beta1", "adam_beta2"):
        need(0 <= getattr(t, name) < 1, f"{name} must lie in [0, 1), not {getattr(t, name)}")
    need(0 <= t.seed < 2**63, f"seed must lie between 0 and 2**63 - 1, not {t.seed}")
