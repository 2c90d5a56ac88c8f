"""The sections of a pre-training recipe that say what is trained, on what: plain numbers, each with
its help as a docstring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from .architectures import ARCHITECTURES, ArchitectureRow, architecture_help, architectures
from .corruptors import CORRUPTORS, CorruptorRow, corruptor_help, corruptors
from .given import Checked
from .objectives import OBJECTIVES, Objective, objective_help, objectives
from .own import take_options
from .schema import OneOf

# Numbers that a generator may have of its own, as `generator_num_hidden_layers` and so on.
GENERATOR_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """The encoder that is kept, and how the generator is derived from it."""

    HEADINGS: ClassVar = {
        "num_hidden_layers": "the encoder",
        "generator_size": "the generator: its shape",
    }
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
    layer_norm_eps: float | None = None
    """Added to the variance in every LayerNorm; by default the architecture's own value (electra
    1e-12, modernbert 1e-5, deberta 1e-7). A network that starts from a folder has the folder's."""
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
    generator_dropout: float | None = None
    """Dropout and attention dropout of the generator (0: it samples from what it
    believes, as in COCO-LM); by default those of the encoder. Not with embeddings or blocks that
    both share."""
    tie: Literal["embeddings", "none", "tokens", "all", "lower", "gdes"] = "embeddings"
    """What generator and discriminator share: the embedding layer, nothing, the token table, every
    encoder weight (needs generator_size 1), the embedding layer and the lowest blocks (lower; needs
    equal widths), or gdes: the discriminator's token table is the generator's, without gradient,
    plus a difference of its own."""
    tie_layers: int | None = None
    """With tie lower: how many of the lowest blocks are shared."""
    dropout: float
    """Dropout of embeddings and sub-layer outputs."""
    attention_dropout: float
    """Dropout of attention weights."""
    init: Literal["bert", "published", "local"]
    """Initial values: bert = truncated normal .02; published = as the architecture's public code
    has them (of electra: the same, but Glorot uniform in the projection of the embeddings and in
    layers with one output); local = heads that look at neighbours from the first step (leaves the
    unigram plateau sooner)."""
    local_amplitude: float = 3.0
    """With init local: how sharply a head looks at its neighbour at the start (its logit is 4 times
    this)."""
    init_scale: Literal["none", "depth"] = "none"
    """depth = the outputs of attention and feed-forward layers start smaller, by a factor of one
    over the root of twice the number of blocks."""
    init_rtd_bias: Literal["zero", "replaced"] = "zero"
    """Where the bias of the head that detects starts: replaced = at the log-odds of the share of
    tokens that is chosen, so that the first updates need not learn how rare replaced tokens are."""
    init_words: Literal["random", "cooccurrence"] = "random"
    """Initial word embeddings: random = as init draws them; cooccurrence = computed from which
    words occur together in DATA (half a minute)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        take_options(self)

    @property
    def row(self) -> ArchitectureRow:
        return ARCHITECTURES[self.architecture]

    @property
    def extends(self) -> list[str]:
        """The given options that extend the encoder of a folder from which a run starts."""
        return [name for name in self.row.extends if getattr(self.options, name) is not None]

    def generator_numbers(self) -> dict[str, int]:
        """The generator's sizes: those given, else width, heads and feed-forward width times
        `generator_size`, with the same depth (2003.10555 section 3.2). Its embeddings have the
        encoder's width or, in an architecture without narrow embeddings, that of its blocks."""
        numbers: dict[str, int] = {}
        for name in GENERATOR_SIZES:
            whole = getattr(self, name)
            given = getattr(self, f"generator_{name}")
            part = max(1, round(whole * self.generator_size))
            derived = whole if name == "num_hidden_layers" else part
            numbers[name] = derived if given is None else given
        if not self.row.narrow_embeddings:
            numbers["embedding_size"] = numbers["hidden_size"]
        return numbers


@dataclass(frozen=True, kw_only=True)
class CorruptionConfig(Checked):
    """Which tokens are changed, and by which corruptor."""

    HEADINGS: ClassVar = {
        "corruptor": "corruption: what is changed, and by whom",
        "temperature": "the generator: how it draws",
    }
    CHOICE: ClassVar = "corruptor"
    ROWS: ClassVar = staticmethod(corruptors)
    corruptor: Annotated[str, OneOf(corruptors, corruptor_help)]
    """Who changes the text."""
    options: Any = None
    """The corruptor's own options: the dataclass of its row."""
    mask_rate: float
    """Share of the tokens of each sequence that is chosen."""
    mask_rate_end: float | None = None
    """mask_rate at the end of the run, reached linearly; by default it stays constant, and in a
    first stage (generator_steps) it always does. Validation masks at the rate of that moment, so
    its losses at different moments cannot be compared."""
    mask_mix: tuple[float, ...] = (0.85, 0.15, 0.0)
    """Shares of the chosen tokens shown to the masked language model as [MASK], unchanged, random
    (corruptors mask, generator and mixture)."""
    mask_unit: Literal["token", "word", "span"] = "token"
    """Unit of masking: single tokens, whole words with all their pieces, or spans of 1 to
    span_length tokens."""
    span_length: int = 3
    """With mask_unit span: the longest span, in tokens; all lengths are equally frequent."""
    mask_choice: Literal["uniform", "rare"] = "uniform"
    """How tokens are chosen: all with equal probability, or in proportion to minus the logarithm of
    their frequency in the corpus."""
    clean_rate: float = 0.0
    """Share of the sequences left uncorrupted; with a term weight for `sentence` a head on [CLS]
    learns to tell which."""
    temperature: float = 1.0
    """The generator's logits are divided by this before sampling."""
    temperature_end: float | None = None
    """Temperature at the end of the run; by default it stays constant."""
    temperature_schedule: Literal["linear", "exponential"] = "linear"
    """How the temperature moves to temperature_end: linearly, or exponentially (as in Fast-ELECTRA:
    the difference to it is multiplied by exp(-u / temperature_decay), u being the share of the run
    that is done)."""
    temperature_decay: float = 0.1
    """With temperature_schedule exponential: the share of the run in which the difference falls to
    1/e."""
    disallow_correct: bool = False
    """Whether the generator's draws exclude the original token."""
    generator_training: Literal["joint", "frozen"] = "joint"
    """joint = the generator is trained together with the discriminator; frozen = it is not trained
    further (--init-generator, or generator_steps)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        take_options(self)

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
        take_options(self)

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
    """Shorter rows first: 64=.9 takes rows of 64 tokens for nine tenths of the updates,
    max_seq_length for the rest; none takes a recipe's schedule away."""
    num_segments: int = 1
    """1: [CLS] a [SEP]; 2: [CLS] a [SEP] b [SEP], but one sequence in ten is single; so the segment
    embeddings, where the encoder has them, are trained."""
