"""The sections of a pre-training recipe: plain numbers, each with its help as a docstring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from .architectures import ARCHITECTURES, ArchitectureRow, architecture_help, architectures
from .corruptors import CORRUPTORS, CorruptorRow, corruptor_help, corruptors
from .given import Checked
from .objectives import OBJECTIVES, Objective, objective_help, objectives
from .schema import OneOf


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """The encoder that is kept, and how the generator is derived from it."""

    HEADINGS: ClassVar = {"num_hidden_layers": "the encoder", "generator_size": "the generator"}
    HEADINGS |= {"dropout": "the encoder", "init": "where the weights start"}
    HEADINGS |= {"architecture": "the encoder"}
    CHOICE: ClassVar = "architecture"
    ROWS: ClassVar = staticmethod(architectures)
    architecture: Annotated[str, OneOf(architectures, architecture_help)] = "electra"
    """What kind of encoder."""
    options: Any = None
    """The architecture's own numbers: the dataclass of its row."""
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
    """Width, heads and feed-forward width of the generator (or of each tower of two_tower) as a
    share of the encoder's; the depth is the same."""
    generator_num_hidden_layers: int | None = None
    """Blocks of the generator; by default num_hidden_layers."""
    generator_hidden_size: int | None = None
    """Width of the generator; by default derived from generator_size."""
    generator_num_attention_heads: int | None = None
    """Attention heads of the generator; by default derived from generator_size."""
    generator_intermediate_size: int | None = None
    """Width of the generator's feed-forward layers; by default derived from generator_size."""
    tie: Literal["embeddings", "none", "tokens", "all", "gdes"] = "embeddings"
    """What generator and discriminator share: the embedding layer, nothing, the token table, every
    encoder weight (needs generator_size 1), or gdes: the discriminator's token table is the
    generator's, without gradient, plus a difference of its own."""
    dropout: float
    """Dropout of embeddings and sub-layer outputs."""
    attention_dropout: float
    """Dropout of attention weights."""
    init: Literal["bert", "published", "local"]
    """Initial values: bert = truncated normal .02; published = the same, but Glorot uniform where
    ELECTRA's public code has it (the projection of the embeddings, layers with one output); local =
    heads that look at neighbours from the first step (leaves the unigram plateau sooner)."""
    local_amplitude: float = 3.0
    """With init local: how sharply a head looks at its neighbour at the start (its logit is 4 times
    this)."""
    init_words: Literal["random", "cooccurrence"] = "random"
    """Initial word embeddings: random = as init draws them; cooccurrence = computed from which
    words occur together in DATA (half a minute)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.options is None:
            object.__setattr__(self, "options", ARCHITECTURES[self.architecture].options())

    @property
    def row(self) -> ArchitectureRow:
        return ARCHITECTURES[self.architecture]

    def generator_numbers(self) -> dict[str, int]:
        """The generator's sizes: those given, else width, heads and feed-forward width times
        `generator_size`, with the same depth (2003.10555 section 3.2)."""

        def part(n: int) -> int:
            return max(1, round(n * self.generator_size))

        derived = {
            "num_hidden_layers": self.num_hidden_layers,
            "hidden_size": part(self.hidden_size),
            "num_attention_heads": part(self.num_attention_heads),
            "intermediate_size": part(self.intermediate_size),
        }
        given = {name: getattr(self, f"generator_{name}") for name in derived}
        return {
            name: number if given[name] is None else given[name] for name, number in derived.items()
        }


@dataclass(frozen=True, kw_only=True)
class CorruptionConfig(Checked):
    """Which tokens are changed, and by which corruptor."""

    HEADINGS: ClassVar = {
        "corruptor": "corruption: what is changed, and by whom",
        "temperature": "the generator",
    }
    CHOICE: ClassVar = "corruptor"
    ROWS: ClassVar = staticmethod(corruptors)
    corruptor: Annotated[str, OneOf(corruptors, corruptor_help)]
    """Who changes the text."""
    options: Any = None
    """The corruptor's own options: the dataclass of its row."""
    mask_rate: float
    """Share of the tokens of each sequence that is chosen."""
    mask_mix: tuple[float, ...] = (0.85, 0.15, 0.0)
    """Shares of the chosen tokens shown to the masked language model as [MASK], unchanged, random
    (corruptors mask and generator)."""
    mask_unit: Literal["token", "word"] = "token"
    """Unit of masking: single tokens, or whole words with all their pieces."""
    mask_choice: Literal["uniform", "rare"] = "uniform"
    """How tokens are chosen: all with equal probability, or in proportion to minus the logarithm of
    their frequency in the corpus."""
    clean_rate: float = 0.0
    """Share of the sequences left uncorrupted; with a term weight for `sentence` a head on [CLS]
    learns to tell which."""
    temperature: float = 1.0
    """The generator's logits are divided by this before sampling."""
    temperature_end: float | None = None
    """Temperature at the end of the run, reached linearly; by default it stays constant."""
    disallow_correct: bool = False
    """Whether the generator's draws exclude the original token."""
    generator_training: Literal["joint", "frozen"] = "joint"
    """joint = the generator is trained together with the discriminator; frozen = it is not trained
    further (--init-generator, or generator_steps)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.options is None:
            object.__setattr__(self, "options", CORRUPTORS[self.corruptor].options())

    @property
    def row(self) -> CorruptorRow:
        return CORRUPTORS[self.corruptor]


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig(Checked):
    """What the encoder learns from the corrupted text."""

    HEADINGS: ClassVar = {"objective": "the objective: what is asked about the changed text"}
    CHOICE: ClassVar = "objective"
    ROWS: ClassVar = staticmethod(objectives)
    objective: Annotated[str, OneOf(objectives, objective_help)]
    """What is asked."""
    options: Any = None
    """The objective's own options: the dataclass of its row."""
    term_weights: dict[str, float] = field(default_factory=dict)
    """Weight of each loss term, e.g. generator=1,rtd=50; by default those of the objective."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.options is None:
            object.__setattr__(self, "options", OBJECTIVES[self.objective].options())

    @property
    def row(self) -> Objective:
        return OBJECTIVES[self.objective]


@dataclass(frozen=True, kw_only=True)
class DataConfig(Checked):
    """How documents become rows."""

    HEADINGS: ClassVar = {"max_seq_length": "length of the run, its batches and rows"}
    max_seq_length: int
    """Tokens per row, and the length of the longest sequence, [CLS] and [SEP] included."""
    seq_length_schedule: dict[int, float] = field(default_factory=dict)
    """Shorter rows first: 128=.9 takes rows of 128 tokens for nine tenths of the updates,
    max_seq_length for the rest."""
    num_segments: int = 1
    """1: [CLS] a [SEP]; 2: [CLS] a [SEP] b [SEP], but one sequence in ten is single; so the segment
    embeddings are trained."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """The run."""

    HEADINGS: ClassVar = {
        "max_steps": "length of the run, its batches and rows",
        "learning_rate": "learning rate and optimiser",
        "seed": "device, precision and processes",
        "logging_steps": "log, validation and checkpoints",
        "non_finite": "what happens to bad updates",
        "ddp_timeout": "device, precision and processes",
        "init_discriminator": "where the weights start",
        "generator_steps": "two stages: the generator first",
    }
    max_steps: int
    """Optimiser updates of the whole run; the schedule ends there."""
    train_batch_size: int
    """Rows in one update over all processes; this decides the result."""
    batch_size_schedule: dict[int, float] = field(default_factory=dict)
    """Smaller batches first: 32=.1,64=.1 takes 32 rows for a tenth of the updates, 64 for the next,
    train_batch_size for the rest."""
    per_device_train_batch_size: int | None = None
    """Rows in one forward pass of one process; by default all its rows. Together with
    --gradient-accumulation-steps it sets train_batch_size."""
    gradient_accumulation_steps: int | None = None
    """Forward passes per update; by default derived from train_batch_size,
    per_device_train_batch_size and the number of processes."""
    learning_rate: float
    """Peak learning rate."""
    generator_learning_rate: float | None = None
    """Peak learning rate of the parameters that only the generator has; by default learning_rate.
    """
    lr_scheduler_type: Literal["electra", "linear", "cosine", "wsd", "constant"] = "electra"
    """electra = the paper's (linear decay that already runs during warm-up); the others decay after
    warm-up; wsd holds, then decays over the last fifth."""
    warmup_steps: int
    """Updates until the peak learning rate."""
    optim: Literal["electra_adam", "adamw"] = "electra_adam"
    """electra_adam = Adam without bias correction and with decoupled weight decay, as published;
    adamw = torch's."""
    weight_decay: float = 0.01
    """Decoupled weight decay; not on biases and LayerNorm."""
    adam_beta1: float = 0.9
    """Decay of Adam's first moment."""
    adam_beta2: float = 0.999
    """Decay of Adam's second moment."""
    adam_epsilon: float = 1e-6
    """Epsilon, added to the root of Adam's second moment."""
    max_grad_norm: float = 1.0
    """Gradients of all parameters together are clipped to this norm; 0 switches it off."""
    seed: int = 0
    """Random seed of initial values, order of the data, masks, samples and dropout."""
    bf16: bool | None = None
    """Autocast to bfloat16; parameters and optimiser stay float32. none: if the device multiplies
    bfloat16 in hardware (a run that goes on computes as it began)."""
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type in which processes exchange gradients; bfloat16 halves the traffic and rounds each
    process's sum."""
    fsdp: Literal["no_shard", "full_shard"] = "no_shard"
    """no_shard = every process holds the whole model; full_shard = only its share of parameters,
    gradients and optimiser state, for models that do not fit on one device: the same numbers for
    more traffic. With one process both are the same."""
    torch_compile: bool = False
    """Compile the objective. For GPUs: on a CPU the first step takes half a minute, and the others
    are not faster."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: str = "auto"
    """Threads that compute on a CPU: a number, or auto: OMP_NUM_THREADS if it is set, else the
    number that a continued run had, else a measurement of one second."""
    logging_steps: int = 50
    """Updates between two lines of metrics.jsonl."""
    eval_steps: int = 1000
    """Updates between two validations; 0 validates at the end only."""
    eval_rows: int = 512
    """Rows of the valid split used in a validation, always the same ones."""
    save_steps: int = 1000
    """Updates between two checkpoints; there is always one at the end."""
    save_total_limit: int | None = 2
    """Number of newest checkpoints to keep."""
    max_minutes: float | None = None
    """Wall time after which the run saves and stops; the same command goes on for as long again."""
    report_to: tuple[str, ...] = ("tensorboard",)
    """Trackers beside metrics.jsonl: tensorboard, or none."""
    non_finite: Literal["stop", "skip", "rollback"] = "stop"
    """If the loss or gradient of an update is not finite, on which all processes agree before any
    parameter changes: stop without saving; skip this update; or rollback to the newest checkpoint
    and go on with the batches after this one."""
    max_non_finite: int = 10
    """With skip and rollback: number of updates that may be refused for this reason before the run
    stops.
    """
    spike: Literal["warn", "skip", "rollback"] = "warn"
    """If the loss of an update is spike_sigmas standard deviations above those of up to 128 updates
    before it: warn and train on it, as published; skip this update; or rollback as above."""
    spike_sigmas: float = 6.0
    """How far above the earlier losses a spike is, in their standard deviations."""
    max_spikes: int = 10
    """With skip and rollback: number of spikes that may be refused before the run stops.
    """
    ddp_timeout: float = 1800.0
    """Seconds that a process waits for the others, at the start and in every collective operation,
    before it gives up."""
    init_discriminator: str | None = None
    """Hugging Face folder or Hub id from which the kept encoder starts; it also decides the
    encoder's shape."""
    init_generator: str | None = None
    """Hugging Face folder or Hub id from which the generator starts; it also decides the
    generator's shape.
    """
    generator_steps: int = 0
    """Two stages: number of updates of the generator alone, as a run of its own in
    RUN/generator-stage, before the max_steps (after which it is frozen, or trained
    adversarially)."""
    discriminator_start: Literal["generator", "random"] = "generator"
    """With generator_steps: whether the discriminator starts from the generator's weights (needs
    equal shapes) or from random values."""
