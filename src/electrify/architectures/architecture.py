"""The interface of every architecture, a network that a run exports as a Hugging Face folder, and
the tables of parameter names on both sides.

Shape suffixes: B sequences, L length, T = B * L flat tokens, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import need
from ..methods import class_at
from ..model.attention import Direction, SharedContext
from ..model.embeddings import DisentangledWords, Shape, Words
from ..model.encoder import Contexts, Encoder
from ..model.heads import BinaryHead, Head, HeadKind, LinearHead, LMHead, Network, SelectionHead
from ..model.init import init_words
from ..tokens import SpecialIds, Tokens

WordVectors = Callable[[int], Tensor]  # dimensions K -> [V, K]


@dataclass(frozen=True)
class InitialValues:
    """The initial values of the weights."""

    init: str
    local_amplitude: float
    vectors: WordVectors | None = None
    """Computes the initial word vectors, if they do not start at random."""
    scaled: bool = False
    """Whether the outputs of a block start smaller the more blocks there are."""
    cls: int | None = None
    """The id of [CLS]."""

    def fill(self, tables: Iterable[nn.Embedding], *, width: int = 0, scale: float = 1.0) -> None:
        """Puts the computed vectors, if there are any, into word tables. width: dimensions that
        keep their values."""
        if self.vectors is None:
            return
        for table in tables:
            vectors_VK = scale * self.vectors(table.embedding_dim - width)
            init_words(table, vectors_VK, local_width=width)


@dataclass(frozen=True)
class Usage:
    """What a model card says of an exported network."""

    code: str = "model(**inputs).logits"
    """A line that gives the logits. Empty if the library's class gives none."""
    note: str = ""
    """Sentences about what the library's class does not compute."""
    tuning: str = ""
    """What to know before such a folder is fine-tuned with the library alone."""


class Architecture(ABC):
    """One kind of encoder. It is built from the parts in model/; its word table is
    `embeddings.words`."""

    shape_type: ClassVar[type[Shape]] = Shape

    def __init__(self, options: Mapping[str, Any]) -> None:
        """options: its own fields of a recipe."""
        self.options = options

    # ---------------------------------------------------------------- the network

    def shape(self, numbers: Mapping[str, Any], *, vocab_size: int) -> Shape:
        """The shape from the numbers of a recipe; numbers that this architecture does not have are
        ignored, and for those that are None it uses its defaults."""
        known = {f.name for f in fields(self.shape_type)} - {"vocab_size"}
        given = {name: n for name, n in numbers.items() if name in known and n is not None}
        return self.shape_type(vocab_size=vocab_size, **given)

    @abstractmethod
    def embeddings(self, shape: Shape, *, dropout: float, words: Words | None = None) -> nn.Module:
        """(Tokens, what is added to the word vectors, if anything is) -> [T, E], from
        `word_vectors`. `words` may be another model's table."""

    def encoder(
        self,
        shape: Shape,
        embeddings: nn.Module,
        *,
        dropout: float,
        attention_dropout: float,
        direction: Direction = "both",
        lower: Encoder | None = None,
        tied: int = 0,
    ) -> Encoder:
        """The encoder on these embeddings, which may be another model's. lower: an encoder of equal
        width, whose lowest `tied` blocks, and what lies below them, this one shares."""
        shared = [] if lower is None else lower.blocks[:tied]
        return Encoder(
            shape,
            embeddings=embeddings,
            project=self.project(shape) if lower is None else lower.project,
            contexts=self.contexts(
                shape, direction=direction, dropout=attention_dropout, lower=lower
            ),
            blocks=[
                *shared,
                *(self.block(shape, n, dropout) for n in range(tied, shape.num_hidden_layers)),
            ],
            norm=self.norm(shape),
            direction=direction,
        )

    def project(self, shape: Shape) -> nn.Linear | None:
        """[T, E] -> [T, D], if the widths differ."""
        return None

    def contexts(
        self, shape: Any, *, direction: Direction, dropout: float, lower: Encoder | None
    ) -> Contexts:
        """What makes the attention context of a batch. lower: as for `encoder`."""
        return SharedContext(direction=direction, dropout=dropout)

    @abstractmethod
    def block(self, shape: Any, n: int, dropout: float) -> nn.Module:
        """([T, D], context) -> [T, D], as the n-th block from below."""

    def norm(self, shape: Shape) -> nn.Module | None:
        """Applied to the last states, if the blocks normalise their inputs."""
        return None

    def shapes_by_rows(self, shape: Shape) -> dict[int, Shape]:
        """Number of tokens in a row -> the shape of an encoder in phases of a run with such rows,
        if it is not `shape`, that of the last phase. No parameter may differ."""
        return {}

    def extended(self, shape: Shape) -> Shape:
        """The shape of a folder as the own options extend it; none is shortened."""
        return shape

    def lm_head(self, shape: Shape, words: Words) -> Head:
        """Hidden states -> a logit for each word."""
        return LMHead(shape, words)

    def masked_lm_head(self, shape: Shape, words: Words) -> Head:
        """The same for a network that reads [MASK] where it predicts."""
        return self.lm_head(shape, words)

    def selection_head(self, shape: Shape, words: Words, candidates: int) -> SelectionHead:
        """Hidden states and this many words for each -> a score for each of these words."""
        return SelectionHead(shape, words, candidates=candidates)

    def binary_head(self, shape: Shape) -> Head:
        """Hidden states -> one logit."""
        return BinaryHead(shape)

    def rtd_head(self, shape: Shape, form: str) -> Head:
        """The head that detects, in one of the forms in the architecture's row."""
        return LinearHead(shape.hidden_size) if form == "linear" else self.binary_head(shape)

    def energy_head(self, shape: Shape) -> Head:
        """Hidden states -> one energy: a linear layer, or what the exported class has for it."""
        return LinearHead(shape.hidden_size)

    @abstractmethod
    def initialise(
        self,
        objective: nn.Module,
        encoders: Sequence[Encoder],
        values: InitialValues,
        rng: torch.Generator,
    ) -> None:
        """Sets the initial values of all parts of `objective`. encoders: its encoders, with the
        discriminator first."""

    # ---------------------------------------------------------------- in Hugging Face's library

    classes: ClassVar[dict[HeadKind, str]]
    """The class that a network is exported as, for each kind of head."""
    own_classes: ClassVar[dict[HeadKind, str]] = {}
    """`module:Class` of our own for those of `classes` that compute less than our network."""
    config_class: ClassVar[str]
    """The library's class of its configuration."""
    input_names: ClassVar[tuple[str, ...]] = ("input_ids", "token_type_ids", "attention_mask")
    """What a tokenizer gives to the exported network."""
    counts_padding: ClassVar[bool] = True
    """Whether the library's classes count padding on the left of a sequence as positions."""
    noted: ClassVar[tuple[str, ...]] = ()
    """Numbers of the shape that a configuration gets beside the arguments of its class."""
    fixed: ClassVar[dict[str, Any]] = {}
    """Values of a configuration that say what our encoder computes, where the library knows
    others."""
    unsaid: ClassVar[dict[str, Any]] = {}
    """What a configuration that does not hold them means, if it is another value."""
    usage: ClassVar[dict[HeadKind, Usage]] = {}
    """What model cards say of an exported network, for the kinds of heads that need it."""

    def for_head(self, head: Head) -> Architecture:
        """The architecture that a network with this head is exported as: this one, unless the head
        has a class of its own, unlike others of its kind."""
        return self

    def for_folder(self, config: Any) -> Architecture:
        """The architecture that a folder with this configuration is read as: this one, unless
        `for_head` knows of others."""
        return self

    def network_class(self, name: str) -> Any:
        """The class that reads a folder with the weights of the key table of this name: the
        library's, or our own where the library has none. None for a name that nobody knows."""
        import transformers

        own = {self.classes[kind]: place for kind, place in self.own_classes.items()}
        return class_at(own[name]) if name in own else getattr(transformers, name, None)

    def starting_class(self, name: str) -> Any:
        """The class that reads such a folder when a run starts from it: `network_class`, or one
        that also finds what is `unread`."""
        return self.network_class(name)

    def hf_config(self, shape: Shape, kind: HeadKind, *, special: SpecialIds, **how: float) -> Any:
        """The library's configuration of an exported network. how: dropout and
        attention_dropout."""
        import transformers

        config_class = getattr(transformers, self.config_class)
        config = config_class(**self.config_values(shape, special, **how))
        for name in self.noted:
            setattr(config, name, getattr(shape, name))
        config.architectures = [self.classes[kind]]
        config.dtype = "float32"
        return config

    @abstractmethod
    def config_values(
        self, shape: Any, special: SpecialIds, dropout: float, attention_dropout: float
    ) -> dict[str, Any]:
        """The arguments of the library's class of configurations."""

    @abstractmethod
    def shape_of(self, config: Any) -> Shape:
        """The shape of a model with this configuration of the library, which has one of the
        `model_types` in the architecture's row."""

    def must_compute_the_same(self, start: str, config: Any) -> None:
        """Raises UserError if a model with this configuration computes something that ours does
        not. start: its name, for the message."""
        odd = self.odd(config)
        need(not odd, f"{start} computes what our encoder does not: {', '.join(odd)}")

    def odd(self, config: Any, **more: Any) -> list[str]:
        """What a configuration says that our encoder does not compute. more: as `fixed`."""
        found = []
        usual = {"is_decoder": False, "tie_word_embeddings": True}
        for name, value in (usual | self.fixed | more).items():
            said = getattr(config, name, None)
            said = self.unsaid.get(name, value) if said is None else said
            found += [f"{name} {said}"] if said != value else []
        return found

    def as_read(self, config: Any) -> Any:
        """The configuration with which the library reads the weights of a folder that a run starts
        from."""
        return config

    def has_head(self, config: Any, kind: HeadKind) -> bool:
        """Whether a folder with this configuration may have our head of this kind. If it does not
        have the head, the head's weights are missing in it, unless classes share their names."""
        return True

    @abstractmethod
    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        """The key table of the class that a network with such a head is exported as. model_type:
        given for a folder to start from."""

    def head_tensors(self, head: Head) -> dict[str, Tensor]:
        """A head's parameters under our names in `table`: the parameters themselves if we have them
        in that form, else computed values."""
        return head.tensors()

    @torch.no_grad()
    def fill_head(self, head: Head, named: Mapping[str, Tensor]) -> list[str]:
        """Sets the parameters of these names, which are those of `head_tensors`. Returns the names
        that the head cannot hold."""
        own = head.tensors()
        for name, t in named.items():
            own[name].copy_(t)
        return []

    def inputs(self, tokens: Tokens) -> dict[str, Tensor]:
        """The arguments [B, L] of the library's model, for a batch with one sequence per row."""
        named = {
            "input_ids": tokens.ids_T,
            "attention_mask": tokens.real_T.long(),
            "token_type_ids": tokens.segment_T,
        }
        return {name: named[name].view(-1, tokens.row_length) for name in self.input_names}

    def binary_logits(self, output: Any) -> Tensor:
        """The logit of a binary head, [B, L], from the output of the library's class."""
        return output.logits


class TwoLabels(Architecture):
    """An architecture whose networks that detect are exported as the library's class for tags, with
    two labels a token."""

    usage: ClassVar = {
        "binary": Usage(
            code="model(**inputs).logits.diff(dim=-1).squeeze(-1)",
            tuning="Their heads have the names of this folder's head. For a number of labels other "
            "than two, pass `num_labels=N, ignore_mismatched_sizes=True`. With two labels the "
            "layer `classifier` starts with this folder's weights, under the labels original and "
            "replaced: `torch.nn.init.normal_(model.classifier.weight, std=0.02)` and "
            "`torch.nn.init.zeros_(model.classifier.bias)` make it new.",
        )
    }

    def hf_config(self, shape: Shape, kind: HeadKind, **how: Any) -> Any:
        config = super().hf_config(shape, kind, **how)
        if kind == "binary":
            config.id2label = dict(LABELS)
            config.label2id = {name: n for n, name in LABELS.items()}
        return config

    def binary_logits(self, output: Any) -> Tensor:
        return output.logits[..., 1] - output.logits[..., 0]


WORDS = "encoder.embeddings.words.weight"


@dataclass(frozen=True)
class ExportedModel(Network):
    """A network, with the architecture that knows its counterpart in the library."""

    architecture: Architecture

    def table(self, *, model_type: str | None = None) -> KeyTable:
        """The key table of the class that it is exported as. model_type: given for a folder to
        start from."""
        return self.architecture.table(self.encoder.shape, self.head.kind, model_type=model_type)

    def must_have_a_class(self, part: str) -> None:
        """Raises UserError if the class of the library has no place for what the network learns.
        This is checked before it is trained."""
        table = self.table()
        odd = {row.ours for row in table.rows} ^ self.parameters().keys()
        need(
            not odd,
            f"{part} could not be exported: {table.name} of {type(self.architecture).__name__} "
            f"has no {type(self.head).__name__} ({min(odd, default='')})",
        )

    def parameters(self) -> dict[str, Tensor]:
        """The parameters under the names of the tables: the parameters themselves if we have them
        in that form, else computed values (a disentangled word table as its sum, a head as the
        layers of the library that compute the same). The word table, which an LM head reads as
        well, is listed once."""
        words, table = self.encoder.embeddings.words, WORDS.removesuffix("weight")
        named: dict[str, Tensor] = dict(self.encoder.named_parameters(prefix="encoder"))
        if isinstance(words, DisentangledWords):
            named = {name: p for name, p in named.items() if not name.startswith(table)}
            named[WORDS] = words.weight.detach()
        head = self.architecture.head_tensors(self.head)
        return named | {f"head.{name}": t for name, t in head.items()}

    def exported(self) -> dict[str, Tensor]:
        """The parameters as the class of the library has them, in a copy."""
        return to_theirs(self.table().rows, self.parameters())

    @torch.no_grad()
    def fill(self, named: Mapping[str, Tensor]) -> list[str]:
        """Sets the parameters of these names, as `parameters` names them, and returns the names
        that the network cannot hold: its head may be of another form."""
        own, words, head = self.parameters(), self.encoder.embeddings.words, dict[str, Tensor]()
        for name, t in named.items():
            if name.startswith("head."):
                head[name.removeprefix("head.")] = t
            elif name == WORDS and isinstance(words, DisentangledWords):
                words.delta_VE.copy_(t - words.base.weight)
            else:
                own[name].copy_(t)
        return [f"head.{name}" for name in self.architecture.fill_head(self.head, head)]


# ------------------------------------------------------------------ names of parameters
#
# Ours <-> those of a class of Hugging Face's library: one table for each class, read in both
# directions, so import and export cannot disagree. That a table names every key of both sides
# exactly once is tested for each class (tests/parity). Of ours, `must_have_a_class` says it before
# a run trains; of theirs, the check of an export does.


@dataclass(frozen=True)
class KeyRow:
    """One parameter of ours, and those of theirs that it concatenates along the rows (three for the
    fused queries, keys and values)."""

    ours: str
    theirs: tuple[str, ...]
    labels: bool = False
    """Whether theirs gives two labels in place of our logit. The first one's logit is 0, so the
    softmax of the two is the sigmoid of ours, exactly."""


@dataclass(frozen=True)
class KeyTable:
    """The table of one class of the library. It does not name the copies that the library ties to
    another parameter."""

    name: str
    """The class."""
    encoder: tuple[KeyRow, ...]
    head: tuple[KeyRow, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    """Weights that a folder may have beside these and our network has not, each with what it is."""

    @property
    def rows(self) -> tuple[KeyRow, ...]:
        return self.encoder + self.head


def rows_of_layers(
    names: Mapping[str, str],
    *,
    parts: Collection[str] = ("weight", "bias"),
    labels: bool = False,
) -> tuple[KeyRow, ...]:
    """The rows of layers, by our name of each and theirs."""
    return tuple(
        KeyRow(f"{ours}.{part}", (f"{theirs}.{part}",), labels)
        for ours, theirs in names.items()
        for part in parts
    )


def rows_of_weights(names: Mapping[str, str]) -> tuple[KeyRow, ...]:
    """The rows of layers without biases, and of tables."""
    return rows_of_layers(names, parts=("weight",))


def rows_of_lm_head(dense: str, norm: str, bias: str) -> tuple[KeyRow, ...]:
    """The rows of a language model's head, by their names of its parts. Its output layer is the
    word table."""
    return (
        *rows_of_layers({"head.dense": dense, "head.norm": norm}),
        KeyRow("head.bias_V", (bias,)),
    )


def rows_of_blocks(shape: Shape, prefix: str, *, attention: str = "{}") -> tuple[KeyRow, ...]:
    """The rows of post-norm blocks, under the names that BERT's classes gave them. attention: how
    `query`, `key` and `value` are named."""
    rows: list[KeyRow] = []
    for n in range(shape.num_hidden_layers):
        theirs, ours = f"{prefix}.encoder.layer.{n}", f"encoder.blocks.{n}"
        for part in ("weight", "bias"):
            names = (attention.format(which) for which in ("query", "key", "value"))
            qkv = tuple(f"{theirs}.attention.self.{name}.{part}" for name in names)
            rows.append(KeyRow(f"{ours}.qkv.{part}", qkv))
        rest = {
            f"{ours}.out": f"{theirs}.attention.output.dense",
            f"{ours}.norm1": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.up": f"{theirs}.intermediate.dense",
            f"{ours}.down": f"{theirs}.output.dense",
            f"{ours}.norm2": f"{theirs}.output.LayerNorm",
        }
        rows += rows_of_layers(rest)
    return tuple(rows)


def to_theirs(rows: Collection[KeyRow], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under their names, each a contiguous copy."""
    out: dict[str, Tensor] = {}
    for row in rows:
        t = ours[row.ours].detach()
        if row.labels:
            t = torch.cat([torch.zeros_like(t), t])
        cut = t.reshape(len(row.theirs), -1, *t.shape[1:])
        for name, part in zip(row.theirs, cut, strict=True):
            out[name] = part.clone(memory_format=torch.contiguous_format)
    return out


def to_ours(rows: Collection[KeyRow], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their parameters under our names."""
    out: dict[str, Tensor] = {}
    for row in rows:
        t = torch.cat([theirs[name].detach() for name in row.theirs])
        out[row.ours] = t[1:] - t[:1] if row.labels else t
    return out


LABELS = {0: "original", 1: "replaced"}


def labelled(config: Any) -> bool:
    """Whether a configuration of the library names these labels."""
    return {int(n): name for n, name in (config.id2label or {}).items()} == LABELS
