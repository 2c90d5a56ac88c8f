"""A pre-training recipe: five sections of plain values, from shipped rows, a file, flags.

A shipped recipe is composed: `electra-tiny` is the row `tiny` of recipes/sizes.yaml under the row
`electra` of recipes/objectives.yaml. Runs with the numbers of a paper are in
recipes/published.yaml.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from annotated_types import Ge, Gt, Le, Lt

from . import methods
from .errors import UserError
from .names import nearest
from .values import (
    AboveOne,
    BelowOne,
    Count,
    Even,
    Inside,
    Natural,
    NotNegative,
    ParameterKind,
    Positive,
    Share,
    checked,
    from_text,
    kinds,
    plain_yaml,
)


class _Chosen:
    """A section in which one field, CHOICE, names a row of methods.yaml."""

    CHOICE: typing.ClassVar[str]

    @property
    def row(self) -> Any:
        return methods.row_of(self.CHOICE, getattr(self, self.CHOICE))

    @property
    def options(self) -> dict[str, Any]:
        """The options of the row."""
        own = getattr(self, f"{self.CHOICE}_options")
        return {name: getattr(self, name) for name in self.row.options} | own


@dataclass(frozen=True, kw_only=True)
class Model(_Chosen):
    """The encoder, and how the generator differs from it."""

    CHOICE = "architecture"

    architecture: str = "electra"
    """Encoder: electra (post-norm, learned positions, also BERT's), modernbert (pre-norm, rotary
    positions, gated feed-forward layers, local and global attention), deberta (post-norm,
    disentangled attention), or a class of your own as module:Class."""
    architecture_options: dict[str, Any] = field(default_factory=dict)
    """Options of an architecture of your own, e.g. depth=2."""
    local_attention: Even = 128
    """With --architecture modernbert: tokens that a local layer sees, half of them on either
    side."""
    global_attn_every_n_layers: Count = 3
    """With --architecture modernbert: every n-th layer, from the lowest, attends to the whole
    sequence."""
    global_rope_theta: AboveOne = 160_000.0
    """With --architecture modernbert: base of the rotary positions of global attention."""
    local_rope_theta: AboveOne = 10_000.0
    """With --architecture modernbert: base of the rotary positions of local attention."""
    global_rope_theta_schedule: dict[int, AboveOne] = field(default_factory=dict)
    """With --architecture modernbert: another global_rope_theta in phases of seq_length_schedule,
    by row length, e.g. 1024=10000. Rows of other lengths and the exported model have
    global_rope_theta."""
    extend_positions: Annotated[int, Ge(8), Le(2**20)] | None = None
    """With --architecture modernbert: read rows of up to this many tokens, more than the folder of
    --init-discriminator allows. No weight depends on it."""
    extend_rope_theta: AboveOne | None = None
    """With --architecture modernbert: global_rope_theta in place of that of the folder of
    --init-discriminator."""
    position_buckets: Even = 256
    """With --architecture deberta: buckets of relative distance on either side. Distances up to
    half this number have one each."""
    mask_decoder: bool = False
    """With --architecture deberta: predict masked tokens through DeBERTa's enhanced mask decoder,
    which runs the last layer twice with absolute positions. transformers has no class for it."""
    num_hidden_layers: Count
    """Layers of the discriminator."""
    hidden_size: Count
    """Hidden size of the discriminator."""
    num_attention_heads: Count
    """Attention heads of the discriminator."""
    intermediate_size: Count
    """Feed-forward size of the discriminator."""
    embedding_size: Count
    """Size of word, position and segment embeddings."""
    max_position_embeddings: Count = 512
    """Longest sequence in tokens that the position table allows."""
    layer_norm_eps: Inside | None = None
    """Epsilon of LayerNorm [default: the architecture's, electra 1e-12, modernbert 1e-5, deberta
    1e-7]."""
    generator_size: Annotated[float, Gt(0), Le(1)] = 0.25
    """Hidden size, heads and feed-forward size of the generator, or of each tower of two_tower, as
    a share of the discriminator's. The number of layers is the same."""
    generator_num_hidden_layers: Count | None = None
    """Layers of the generator [default: num_hidden_layers]."""
    generator_hidden_size: Count | None = None
    """Hidden size of the generator [default: from generator_size]."""
    generator_num_attention_heads: Count | None = None
    """Attention heads of the generator [default: from generator_size]."""
    generator_intermediate_size: Count | None = None
    """Feed-forward size of the generator [default: from generator_size]."""
    generator_dropout: BelowOne | None = None
    """Dropout and attention dropout of the generator [default: the discriminator's]. Needs --tie
    none, tokens or gdes. COCO-LM uses 0."""
    tie: Literal["embeddings", "none", "tokens", "all", "lower", "gdes"] = "embeddings"
    """Weights that generator and discriminator share: the embedding layer, none, the token table,
    all of the encoder (needs generator_size 1), the embedding layer and the lowest layers (lower),
    or the token table by gradient-disentangled sharing (gdes)."""
    tie_layers: Count | None = None
    """With --tie lower: number of lowest layers that are shared."""
    dropout: BelowOne
    """Dropout of embeddings and of the outputs of sub-layers."""
    attention_dropout: BelowOne
    """Dropout of attention weights."""
    init: Literal["bert", "published", "local"]
    """Initialisation: bert (normal of 0.02, cut at two deviations), published (the architecture's
    public code), local (heads attend to neighbours from the first update, so the loss falls sooner
    below the entropy of token frequencies)."""
    local_amplitude: Positive = 3.0
    """With --init local: how strongly heads attend to a neighbour at the start. The attention logit
    of the neighbour is 4 times this number."""
    init_scale: Literal["none", "depth"] = "none"
    """depth: divide the initial output matrices of attention and feed-forward layers by the root of
    twice the number of layers."""
    init_rtd_bias: Literal["zero", "replaced"] = "zero"
    """Initial bias of the RTD head: zero, or the log-odds of the share of masked positions."""
    init_words: Literal["random", "cooccurrence"] = "random"
    """Initial word embeddings: random, or computed from the co-occurrences of words in DATA (20 s
    for 16.8 M tokens)."""

    @property
    def extends(self) -> list[str]:
        """The given options that extend the encoder of a folder."""
        return [name for name in self.row.extends if getattr(self, name) is not None]

    def generator_numbers(self) -> dict[str, int]:
        """The generator's sizes: those given, else a share `generator_size` of the discriminator's,
        with the same depth (2003.10555 section 3.2). Its embeddings are as wide as the
        discriminator's, or as its layers where an architecture has no narrow embeddings."""
        numbers: dict[str, int] = {}
        for name in GENERATOR_SIZES:
            whole, given = getattr(self, name), getattr(self, f"generator_{name}")
            part = max(1, round(whole * self.generator_size))
            derived = whole if name == "num_hidden_layers" else part
            numbers[name] = derived if given is None else given
        if not self.row.narrow_embeddings:
            numbers["embedding_size"] = numbers["hidden_size"]
        return numbers


GENERATOR_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
"""Numbers that a generator may have of its own, as generator_hidden_size."""
GENERATOR_RATES = ("learning_rate", "warmup_steps", "weight_decay")
"""What the parameters of a generator may have of their own, as generator_learning_rate."""


@dataclass(frozen=True, kw_only=True)
class Corruption(_Chosen):
    """Which tokens are replaced, and with what."""

    CHOICE = "corruptor"

    corruptor: str
    """Source of replacements: mask ([MASK], as BERT), generator (a masked language model trained
    jointly), unigram (by frequency in the corpus), uniform, two_tower (a cloze model of two
    one-directional encoders), mixture (several masked language models in one encoder, trained
    against the discriminator, as AMOS), or module:Class."""
    corruptor_options: dict[str, Any] = field(default_factory=dict)
    """Options of a corruptor of your own, e.g. shift=2."""
    read_outs: tuple[Count, ...] = ()
    """With --corruptor mixture: generator layers with an MLM head, ascending and ending with the
    last layer [default: at 1/2, 3/4 and 1 of the depth]."""
    mask_rate: Inside
    """Share of the positions of each sequence that is masked or replaced."""
    mask_rate_end: Inside | None = None
    """mask_rate at the end of the run, reached linearly [default: constant]. Validation uses the
    current rate, so its losses at different steps do not compare."""
    mask_mix: tuple[Share, ...] = (0.85, 0.15, 0.0)
    """Shares of masked positions that an MLM reads as [MASK], unchanged, as a random token."""
    mask_unit: Literal["token", "word", "span"] = "token"
    """Unit of masking: tokens, whole words, or spans of 1 to span_length tokens."""
    span_length: Annotated[int, Ge(2), Le(64)] = 3
    """With --mask-unit span: longest span in tokens. All lengths are equally frequent."""
    mask_choice: Literal["uniform", "rare"] = "uniform"
    """Probability that a position is masked: uniform, or proportional to minus the logarithm of the
    token's frequency in the corpus."""
    clean_rate: BelowOne = 0.0
    """Share of sequences left uncorrupted. If --term-weights has one for `sentence`, a head on
    [CLS] detects corrupted sequences."""
    temperature: Positive = 1.0
    """Temperature at which the generator samples."""
    temperature_end: Positive | None = None
    """Temperature at the end of the run [default: constant]."""
    temperature_schedule: Literal["linear", "exponential"] = "linear"
    """How the temperature moves to temperature_end. exponential: at share u of the run, the
    distance to temperature_end is exp(-u / temperature_decay) of that at the start, as
    Fast-ELECTRA."""
    temperature_decay: Positive = 0.1
    """With --temperature-schedule exponential: share of the run in which that distance falls to
    1/e."""
    disallow_correct: bool = False
    """Never sample the original token."""
    generator_training: Literal["joint", "frozen"] = "joint"
    """Train the generator jointly, or freeze it (needs --init-generator or generator_steps)."""


@dataclass(frozen=True, kw_only=True)
class Objective(_Chosen):
    """What the encoder learns from the corrupted text."""

    CHOICE = "objective"

    objective: str
    """Training objective: mlm (predict masked tokens), rtd (detect replaced tokens, ELECTRA),
    all_tokens (predict every token through a copy gate), corrective (rtd and predict the
    originals), selective (rtd and select the original among candidates), adversarial (rtd with a
    generator rewarded for fooling it), electric (energies, by noise-contrastive estimation), or
    module:Class."""
    objective_options: dict[str, Any] = field(default_factory=dict)
    """Options of an objective of your own, e.g. gamma=2."""
    rtd_head: Literal["dense", "linear", "v3"] = "dense"
    """RTD head: dense (the architecture's own), linear (one layer, as COCO-LM), v3 (DeBERTaV3's,
    which adds the hidden state of the first token, for architecture deberta)."""
    loss_on: Literal["all", "chosen"] = "all"
    """With --objective rtd: tokens in the RTD loss, all or masked positions (chosen)."""
    correct_as_replaced: bool = False
    """With --objective rtd: label a sample equal to the original as replaced, as Electric."""
    copy_gate: bool = True
    """With --objective all_tokens: mix the prediction with a copy of the input token."""
    correction: Literal["plain", "gate", "copy", "none"] = "plain"
    """With --objective corrective: loss at a masked position, c being the RTD head's probability of
    original: plain (cross-entropy), gate (times 1 - c), copy (of the mixture c * copy + (1 - c) *
    prediction), none (detection alone outside mlm_share and mlm_end_share)."""
    mlm_share: BelowOne = 0.0
    """With --objective corrective: share of the run, from its start, that trains masked language
    modelling alone."""
    mlm_end_share: BelowOne = 0.0
    """With --objective corrective: the same for a share of the run at its end. The exported
    corrector/ is then a masked language model. The RTD head is not trained in that part."""
    contrast_rows: Natural = 0
    """With --objective corrective, if --term-weights has one for `contrast`: find the crop of each
    sequence among those of this many consecutive rows (COCO-LM)."""
    contrast_temperature: Annotated[float, Ge(0.001), Le(1000)] = 1.0
    """With --objective corrective: temperature of the contrast."""
    crop_share: Inside = 0.9
    """With --objective corrective: share of a sequence that its crop keeps."""
    candidates: Annotated[int, Ge(2), Le(64)] = 5
    """With --objective selective: number of candidates, the original and samples of the
    generator."""
    term_weights: dict[str, NotNegative] = field(default_factory=dict)
    """Weights of the losses, e.g. generator=1,rtd=50 [default: those of the objective]."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """How documents become rows."""

    max_seq_length: Annotated[int, Ge(8)]
    """Tokens per row (one or several packed sequences), special tokens included."""
    seq_length_schedule: dict[Annotated[int, Ge(8)], Inside] = field(default_factory=dict)
    """Shorter rows first, e.g. 64=0.9 for rows of 64 tokens in 90 % of the updates. `none` removes
    a recipe's schedule."""
    num_segments: Annotated[int, Ge(1), Le(2)] = 1
    """1: [CLS] a [SEP]. 2: [CLS] a [SEP] b [SEP] in nine of ten sequences, which trains segment
    embeddings."""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Optimisation, logging and checkpoints."""

    max_steps: Count
    """Number of updates."""
    train_batch_size: Count
    """Rows per update over all processes."""
    batch_size_schedule: dict[Count, Inside] = field(default_factory=dict)
    """Smaller batches first, e.g. 32=0.1,64=0.1 for 32 rows in 10 % of the updates, then 64 in the
    next 10 %. `none` removes a recipe's schedule."""
    per_device_train_batch_size: Count | None = None
    """Rows per forward pass of one process [default: all of its rows]. With
    gradient_accumulation_steps it sets train_batch_size."""
    gradient_accumulation_steps: Count | None = None
    """Forward passes per update [default: from train_batch_size]."""
    learning_rate: Positive
    """Peak learning rate."""
    generator_learning_rate: Positive | None = None
    """Peak learning rate of parameters that only the generator trains [default: learning_rate]."""
    lr_factors: dict[ParameterKind, Positive] = field(default_factory=dict)
    """Factors on the peak learning rate, e.g. embeddings=0.5,heads=2. Kinds of parameters:
    embeddings (tables), matrices (of the linear layers in the blocks), heads (everything outside
    the encoders), rest (biases and LayerNorm of the encoders, the projection of the embeddings)."""
    lr_scheduler_type: Literal["electra", "linear", "cosine", "wsd", "constant"] = "electra"
    """Learning-rate schedule: electra (linear decay that already runs during warm-up), the others
    after warm-up. wsd holds, then decays over the last decay_share."""
    decay_share: Annotated[float, Gt(0), Le(1)] = 0.2
    """With --lr-scheduler-type wsd: share of the run, at its end, over which the learning rate
    decays to 0."""
    warmup_steps: Natural
    """Updates until the peak learning rate."""
    generator_warmup_steps: Natural | None = None
    """warmup_steps of parameters that only the generator trains [default: warmup_steps]."""
    optim: Literal["electra_adam", "adamw", "muon"] = "electra_adam"
    """electra_adam (Adam without bias correction, with decoupled weight decay, as published), adamw
    (PyTorch's), or muon (PyTorch's for the matrices of the blocks, adamw for the rest, with one
    learning rate: Muon's updates are scaled to those of adamw, arXiv:2502.16982)."""
    weight_decay: NotNegative = 0.01
    """Decoupled weight decay, not applied to biases and LayerNorm."""
    generator_weight_decay: NotNegative | None = None
    """weight_decay of parameters that only the generator trains [default: weight_decay]."""
    adam_beta1: BelowOne = 0.9
    """Adam's decay of the first moment."""
    adam_beta2: BelowOne = 0.999
    """Adam's decay of the second moment."""
    adam_beta2_tokens: Annotated[float, Ge(1), Le(1e15)] | None = None
    """Half-life of Adam's second moment in tokens, padding included, in place of adam_beta2: beta2
    is 0.5 ** (tokens per update / adam_beta2_tokens). So the average is over as much text at any
    batch size (arXiv:2507.07101)."""
    adam_epsilon: Positive = 1e-6
    """Adam's epsilon."""
    max_grad_norm: NotNegative = 1.0
    """Norm to which gradients are clipped. 0 disables clipping."""
    clip: Literal["together", "apart"] = "together"
    """Clip all gradients by one norm, or the generator's own and the rest each by its norm."""
    seed: Annotated[int, Ge(0), Lt(2**63)] = 0
    """Random seed of initialisation, data order, masks, samples and dropout."""
    bf16: bool | None = None
    """Autocast to bfloat16 with float32 parameters and optimiser [default: if the device multiplies
    bfloat16 in hardware]."""
    fsdp: Literal["no_shard", "full_shard"] = "no_shard"
    """full_shard: each process holds only its share of parameters, gradients and optimiser state.
    Results are the same up to rounding."""
    torch_compile: bool | None = None
    """Compile the model, and on a single GPU run each update as a CUDA graph [default: on GPUs that
    torch's compiler supports, without fsdp full_shard]."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured, for a second)."""
    logging_steps: Count = 50
    """Updates between lines of metrics.jsonl."""
    eval_steps: Natural = 1000
    """Updates between validations. 0 validates only at the end."""
    eval_rows: Count = 512
    """Rows of the validation set, the same in every validation."""
    save_steps: Count = 1000
    """Updates between checkpoints. The last update is always saved."""
    save_total_limit: Count | None = 2
    """Number of newest checkpoints to keep. `none` keeps all."""
    max_minutes: Positive | None = None
    """Save and stop after this many minutes. The same command resumes for as long again."""
    report_to: tuple[Literal["tensorboard", "wandb", "none"], ...] = ("tensorboard",)
    """Trackers in addition to metrics.jsonl. wandb sends the recipe and the metrics to the project
    $WANDB_PROJECT (else electrify)."""
    non_finite: Literal["stop", "skip", "rollback"] = "stop"
    """If the loss or gradient of an update is not finite: stop without saving, skip the update, or
    roll back to the newest checkpoint and continue with the following batches."""
    max_non_finite: Natural = 10
    """With --non-finite skip or rollback: number of such updates, over the whole run, after which
    it stops."""
    spike: Literal["warn", "skip", "rollback"] = "warn"
    """If the loss is spike_sigmas standard deviations above the mean of up to 128 earlier updates:
    warn, skip the update, or roll back."""
    spike_sigmas: Positive = 6.0
    """Size of a spike in standard deviations."""
    max_spikes: Natural = 10
    """With --spike skip or rollback: number of spikes, over the whole run, after which it stops."""
    ddp_timeout: Positive = 1800.0
    """Seconds that a process waits for the others."""
    init_discriminator: str | None = None
    """Hugging Face folder or Hub id from which the discriminator starts. It sets the encoder's
    shape."""
    init_generator: str | None = None
    """Hugging Face folder or Hub id from which the generator starts. It sets the generator's
    shape."""
    generator_steps: Natural = 0
    """Two stages: updates of the generator alone, in RUN/generator-stage, before the max_steps."""
    discriminator_start: Literal["generator", "random"] = "generator"
    """With --generator-steps: start the discriminator from the generator's weights (needs equal
    shapes) or at random."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A pre-training run."""

    model: Model
    corruption: Corruption
    objective: Objective
    data: Data
    train: Train

    def __getattr__(self, name: str) -> Any:
        """A field of a section: `recipe.learning_rate`."""
        if name in ("parameters", "num_parameters"):
            raise AttributeError("parameters are counted by `electrify.flops(recipe).parameters`")
        if name not in SECTION_OF:
            raise AttributeError(f"a recipe has no field {name!r}{nearest(name, SECTION_OF)}")
        return getattr(getattr(self, SECTION_OF[name]), name)


SECTIONS = kinds(Recipe)
CHOICES = {s: cls.CHOICE for s, cls in SECTIONS.items() if issubclass(cls, _Chosen)}
"""The field of a section that names a row of methods.yaml."""
SECTION_OF = {f.name: s for s, cls in SECTIONS.items() for f in dataclasses.fields(cls)}
"""Every field with its section."""
DEFAULTS = {
    f.name: f.default_factory() if callable(f.default_factory) else f.default
    for cls in SECTIONS.values()
    for f in dataclasses.fields(cls)
}
"""Every field with its default, or MISSING."""
STARTS = ("init_discriminator", "init_generator")
"""The fields that name folders from which networks start."""


# ------------------------------------------------------------------ reading


def names() -> list[str]:
    """The shipped recipes."""
    rows = _table("objectives").items()
    composed = [f"{row}-{size}" for row, its in rows for size in its["sizes"]]
    return sorted([*composed, *_table("published")])


def load(name: str | Path, *, trusted: bool = True) -> Recipe:
    """A shipped recipe by its name, or the recipe in a .yaml file, in which a path that begins with
    ./ or ../ is relative to the file's folder. trusted: see `parse`. Raises UserError."""
    if not str(name).endswith((".yaml", ".yml")):
        return _recipe(shipped(str(name)), f"recipe {name}: ")
    try:
        recipe = parse(Path(name).read_text(encoding="utf-8"), str(name), trusted=trusted)
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"{name} cannot be read: {e}") from e
    starts = {field: getattr(recipe.train, field) or "" for field in STARTS}
    near = {field: start for field, start in starts.items() if start.startswith(("./", "../"))}
    return override(recipe, {f: str(Path(name).parent / start) for f, start in near.items()})


def parse(text: str, where: str, *, trusted: bool = True) -> Recipe:
    """The recipe in the text of a file. Raises UserError that names the file and the field.

    Args:
        where: The file's name in messages.
        trusted: Whether the user wrote it. The config.yaml of a folder is data: a class of one's
            own that it names is used only if this process has imported its module.
    """
    own = {name: its or {} for name, its in plain_yaml(text, where).items()}
    like = own.pop("like", None)
    for section, fields in own.items():
        home = SECTION_OF.get(section)
        hint = f". It belongs to the section {home}" if home else nearest(section, SECTIONS)
        if section not in SECTIONS:
            raise UserError(f"{where} has no section {section!r}{hint}")
        if not isinstance(fields, dict):
            raise UserError(f"{where}: section {section} must hold fields, not {fields!r}")
        chosen = fields.get(CHOICES.get(section, ""), "")
        if not (trusted or methods.is_imported(chosen)):
            raise UserError(f"{where} names {chosen}, and code that a folder names is not run")
    below = shipped(str(like), f"{where}: ") if like is not None else {}
    return _recipe(merged(below, own), f"{where}: ")


def shipped(name: str, before: str = "") -> dict[str, dict[str, Any]]:
    """The values that the rows of a shipped recipe state, by section. Raises UserError."""
    if name not in names():
        raise UserError(f"{before}there is no recipe {name!r}{nearest(name, names())}")
    return reduce(merged, _rows(name), {})


def _rows(name: str) -> list[dict[str, Any]]:
    """The rows of a shipped recipe, each above those before it. A published run has those of the
    recipe that it is like, and its own. Others have those of the method that theirs is like, of a
    size, and of their method. A method with an architecture has that architecture's sizes, each
    above a plain size."""
    row = _table("published").get(name)
    if row is not None:
        return [*_rows(row["like"]), row]
    method, _, size = name.rpartition("-")
    row, sizes = _table("objectives")[method], _table("sizes")
    shape = f"{row['architecture']}-{size}" if "architecture" in row else size
    below = []
    if "like" in row:
        below = _rows(f"{row['like']}-{sizes[shape].get('like', size)}")
    if shape != size or "like" not in row:
        below.append(sizes[shape])
    return [*below, row, row["sizes"].get(size) or {}]


def description(name: str) -> dict[str, str]:
    """What is known of a shipped recipe: what it is, its source, its hardware, what was measured or
    published (`note`)."""
    rows = _rows(name)
    known = {k: v for row in rows for k, v in row.items() if k != "note"} | rows[-1]
    return {k: known[k] for k in ("about", "source", "hardware", "note") if k in known}


def listing() -> dict[str, dict[str, Any]]:
    """The shipped recipes with layers, width, parameters and FLOPs for a vocabulary of 30,522,
    rough hours, and what was measured or published."""
    table = {}
    for name in names():
        numbers = {k: v for fields in shipped(name).values() for k, v in fields.items()}
        cost, width = _table("costs")[name], int(numbers["hidden_size"])
        machine, rate = next((m, r) for most, m, r in MACHINES if width <= most)
        flops = float(cost["flops"])
        hours = flops / rate / 3600
        table[name] = {
            "layers": int(numbers["num_hidden_layers"]),
            "width": width,
            "parameters": int(cost["parameters"]),
            "FLOPs": float(f"{flops:.1e}"),
            "hours": f"{hours:,.0f} {machine}" if hours > 9.5 else f"{hours:.2g} {machine}",
            "measured or published": description(name).get("note", ""),
        }
    return table


MACHINES = (
    (128, "2 cores", 3.5e11),
    (256, "H100", 1e14),
    (10**9, "H100", 4e14),
)
"""The widest encoder, the machine, and its FLOP/s in bfloat16: the first two measured with
electra-tiny and electra-small, the third 40 % of the peak."""


@cache
def _table(name: str) -> dict[str, dict[str, Any]]:
    """Rows of recipes/NAME.yaml."""
    return plain_yaml((methods.RECIPES / f"{name}.yaml").read_text(encoding="utf-8"), name)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of each section over those below. Another objective, corruptor or architecture
    begins with its own defaults, another objective also with its own weights."""
    found = {section: dict(fields) for section, fields in below.items()}
    for section in above.keys() & SECTIONS:
        had, fields, choice = found.get(section, {}), above[section], CHOICES.get(section, "")
        if choice in fields and fields[choice] != had.get(choice, DEFAULTS[choice]):
            reset = {"term_weights", f"{choice}_options", *methods.options_of(choice)}
            had = {name: value for name, value in had.items() if name not in reset}
        found[section] = had | fields
    return found


def override(recipe: Recipe, fields: Mapping[str, Any]) -> Recipe:
    """The recipe with fields replaced, e.g. `override(r, {"max_steps": 10, "tie": "none"})`. Text
    is read as a flag's value is. Raises UserError that names the field."""
    above: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        if name not in SECTION_OF:
            raise UserError(f"there is no field {name!r}{nearest(name, SECTION_OF)}")
        above.setdefault(SECTION_OF[name], {})[name] = value
    return _recipe(merged(_values(recipe), above))


def _recipe(values: Mapping[str, Mapping[str, Any]], before: str = "") -> Recipe:
    """Raises UserError that names the field after `before`."""
    sections = {s: _section(s, values.get(s, {}), before) for s in SECTIONS}
    return with_weights(Recipe(**sections))


def _section(section: str, values: Mapping[str, Any], before: str) -> Any:
    cls, found = SECTIONS[section], {}
    for name, value in values.items():
        kind = kinds(cls).get(name)
        if kind is None:
            home = SECTION_OF.get(name)
            hint = f". It belongs to the section {home}" if home else nearest(name, SECTION_OF)
            raise UserError(f"{before}section {section} has no field {name!r}{hint}")
        found[name] = checked(from_text(value, kind), kind, before + name)
    missing = [n for n in kinds(cls) if n not in found and DEFAULTS[n] is dataclasses.MISSING]
    if missing:
        what = f"section {section} lacks {', '.join(missing)}"
        raise UserError(f"{before}{what}. `like: RECIPE` takes them from a shipped recipe")
    its = cls(**found)
    if choice := CHOICES.get(section):
        own = f"{choice}_options"
        if ":" in getattr(its, choice):
            its = dataclasses.replace(its, **{own: methods.completed(its.row, getattr(its, own))})
        elif getattr(its, own):
            what = f"{before}{own} is for {choice} module:Class"
            raise UserError(f"{what}, not {getattr(its, choice)}")
        for name in sorted(methods.options_of(choice) - {*its.row.options}):
            if getattr(its, name) != DEFAULTS[name]:
                rows = " or ".join(
                    n for n, r in methods.rows_of(choice).items() if name in r.options
                )
                chosen = getattr(its, choice)
                raise UserError(f"{before}{name} is for {choice} {rows}, not {chosen}")
    return its


def with_weights(recipe: Recipe) -> Recipe:
    """The recipe with the default weights of its objective, if it states none."""
    o = recipe.objective
    if o.term_weights:
        return recipe
    weights = {"generator": 1.0} if learns_by_likelihood(recipe) else {}
    objective = dataclasses.replace(o, term_weights=weights | o.row.losses)
    return dataclasses.replace(recipe, objective=objective)


def _values(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The sections as plain values, without options that belong to rows not chosen."""
    found = {}
    for section in SECTIONS:
        its = getattr(recipe, section)
        idle: set[str] = set()
        if choice := CHOICES.get(section):
            idle = methods.options_of(choice) - {*its.row.options}
            idle |= {f"{choice}_options"} if ":" not in getattr(its, choice) else set()
        found[section] = {name: v for name, v in vars(its).items() if name not in idle}
    return found


def values_of(recipe: Recipe) -> dict[str, Any]:
    """Every field that belongs to the recipe, with its value."""
    return {name: value for fields in _values(recipe).values() for name, value in fields.items()}


def dump(recipe: Recipe) -> str:
    """YAML that `parse` reads back to an equal recipe."""
    plain = {
        section: {k: list(v) if isinstance(v, tuple) else copy.deepcopy(v) for k, v in its.items()}
        for section, its in _values(recipe).items()
    }
    return yaml.safe_dump(plain, sort_keys=False, width=150)


# ------------------------------------------------------------------ what follows from a recipe


def with_batch(recipe: Recipe, *, processes: int = 1) -> Recipe:
    """The recipe with the batch that it trains: its train_batch_size, or the product of
    per_device_train_batch_size, gradient_accumulation_steps and the number of processes."""
    t = recipe.train
    if not (t.per_device_train_batch_size and t.gradient_accumulation_steps):
        return recipe
    rows = t.per_device_train_batch_size * t.gradient_accumulation_steps * processes
    return override(recipe, {"train_batch_size": rows})


def learns_by_likelihood(recipe: Recipe) -> bool:
    """Whether a generator is trained with the likelihood of the original tokens (the loss
    `generator`)."""
    c = recipe.corruption
    joint = c.generator_training != "frozen"
    return c.row.learned and joint and not recipe.objective.row.rewarded


def first_asked(recipe: Recipe) -> int:
    """The update, counted from 0, from which the discriminator's head is trained."""
    return first_update(recipe.objective.mlm_share, recipe.train.max_steps)


def last_asked(recipe: Recipe) -> int:
    """The update, counted from 0, from which the discriminator's head is no longer trained."""
    return first_update(1 - recipe.objective.mlm_end_share, recipe.train.max_steps)


def first_update(share: float, max_steps: int) -> int:
    """The first update, counted from 0, after this share of the run."""
    return math.ceil(share * max_steps - 1e-6)


def first_steps(schedule: Mapping[int, float], last: int, max_steps: int) -> dict[int, int]:
    """For each update at which a row length or batch size changes, the value that holds from then
    on. A schedule gives values with their shares of all updates, `last` follows."""
    found = dict[int, int]()
    share = 0.0
    for value, of_all in schedule.items():
        found[round(share * max_steps)] = value
        share += of_all
    return found | {round(share * max_steps): last}


def stages_of(recipe: Recipe) -> list[Recipe]:
    """The runs of a recipe: with generator_steps first one that trains the generator alone, as a
    masked language model (2003.10555 section 3.2). Options of corruption and objective that are not
    named here are at their defaults there."""
    m, c, o, t = recipe.model, recipe.corruption, recipe.objective, recipe.train
    if not t.generator_steps:
        return [recipe]
    shape: dict[str, Any] = m.generator_numbers()
    if m.generator_dropout is not None:
        shape |= dict.fromkeys(("dropout", "attention_dropout"), m.generator_dropout)
    shape |= dict.fromkeys(f"generator_{name}" for name in (*GENERATOR_SIZES, "dropout"))
    chosen = ("mask_rate", "mask_mix", "mask_unit", "span_length", "mask_choice")
    its = {name: getattr(t, f"generator_{name}") for name in GENERATOR_RATES}
    first = Recipe(
        model=dataclasses.replace(m, **shape, **dict.fromkeys(m.row.extends), init_rtd_bias="zero"),
        corruption=Corruption(corruptor="mask", **{name: getattr(c, name) for name in chosen}),
        objective=o if o.objective == "mlm" else Objective(objective="mlm"),
        data=recipe.data,
        train=dataclasses.replace(
            t,
            **{name: getattr(t, name) if own is None else own for name, own in its.items()},
            **dict.fromkeys(f"generator_{name}" for name in GENERATOR_RATES),
            max_steps=t.generator_steps,
            generator_steps=0,
            discriminator_start="generator",
            clip="together",
            init_discriminator=None,
        ),
    )
    return [with_weights(first), recipe]


# ------------------------------------------------------------------ entries of a comparison


@dataclass(frozen=True)
class Entry:
    """A recipe with changes, `electra-tiny:mask_rate=0.3,tie=gdes`: a line of a table."""

    name: str
    """As the user wrote it."""
    recipe: str
    changes: dict[str, Any]

    def load(self) -> Recipe:
        """Raises UserError."""
        return override(load(self.recipe), self.changes)


def entry(text: str) -> Entry:
    """`RECIPE` or `RECIPE:field=value,...`. Raises UserError."""
    recipe, _, rest = text.strip().partition(":")
    changes: dict[str, str] = {}
    for part in filter(None, (word.strip() for word in rest.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not name or not value:
            raise UserError(f"{text}: {part!r} is not a change. Write field=value")
        changes[name] = value
    return Entry(text.strip(), recipe, changes)


def joined(words: Sequence[str]) -> list[str]:
    """Entries from the words between commas, which separate recipes and changes: a word with `=`
    and no colon before it continues the entry before it."""
    found: list[str] = []
    for word in words:
        if found and "=" in word and ":" not in word.partition("=")[0]:
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found


def entries(values: Any, where: str) -> list[Entry]:
    """The entries of a YAML file: a name for each, under it `recipe` and its changes. Raises
    UserError."""
    if not isinstance(values, dict):
        raise UserError(f"{where}: write a name for each recipe, and under it `recipe: NAME`")
    found = []
    for name, fields in values.items():
        if not isinstance(fields, dict) or not isinstance(fields.get("recipe"), str):
            raise UserError(f"{where}: {name} names no recipe. Write `recipe: NAME` under it")
        changes = {str(k).replace("-", "_"): v for k, v in fields.items() if k != "recipe"}
        found.append(Entry(str(name), fields["recipe"], changes))
    return found
