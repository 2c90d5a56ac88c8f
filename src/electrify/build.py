"""Recipe -> objective: widths, sharing, initial values, one `match`. The only place that knows all layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from .config.pretrain import CorruptionConfig, ModelConfig, PretrainConfig
from .corruption.choosing import Chooser, rarity
from .corruption.frequency import Frequency
from .corruption.generator import Generator, Sampling
from .corruption.masking import MaskMix
from .corruption.two_tower import TwoTower
from .model.attention import Look
from .model.encoder import DisentangledWords, Embeddings, Encoder, Shape, Words
from .model.heads import BinaryHead, LinearHead, LMHead, MaskedLM
from .model.init import init_bert, init_local_blocks, init_local_embeddings, init_local_head, init_published, init_words, subspace_width
from .objectives.adversarial import Adversarial
from .objectives.all_tokens import AllTokensMLM
from .objectives.electra import Electra
from .objectives.electric import Electric
from .objectives.mlm import MLM
from .tokens import SpecialIds, WordEdges

WordVectors = Callable[[int], Tensor]  # dimensions K -> [V, K]
Corruptor = MaskMix | Generator | Frequency | TwoTower
Head = LMHead | BinaryHead | LinearHead


@dataclass(frozen=True)
class Vocabulary:
    """What corruption must know of the tokens. `edges` and `counts_V` may be missing where nothing is trained (an export, a count of FLOPs)."""

    size: int
    special: SpecialIds
    edges: WordEdges | None = None
    """How tokens join into words."""
    counts_V: Tensor | None = None
    """[V] how often each occurs in the corpus."""


@dataclass(frozen=True)
class Half:
    """One network that can be exported: an encoder and its head."""

    encoder: Encoder
    head: Head


@dataclass(frozen=True)
class Built:
    """An objective ready to train, and the networks in it by the name of their export folder."""

    objective: nn.Module
    halves: dict[str, Half]


def kept_shape(model: ModelConfig, vocab_size: int) -> Shape:
    return Shape(
        vocab_size=vocab_size,
        embedding_size=model.embedding_size,
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        intermediate_size=model.intermediate_size,
        max_position_embeddings=model.max_position_embeddings,
    )


def generator_shape(model: ModelConfig, vocab_size: int) -> Shape:
    """The generator's, or that of a tower. Embeddings keep the discriminator's width."""
    return replace(kept_shape(model, vocab_size), **model.generator_numbers())


def build(config: PretrainConfig, vocabulary: Vocabulary, *, generator: Shape | None = None, vectors: WordVectors | None = None) -> Built:
    """The recipe's objective with its initial values, on the CPU in float32. The seed, and `vectors`, decide every value.

    `generator` overrides the derived shape of the generator (a folder that it starts from decides it). `vectors(K)` gives [V, K], where the words
    start if the recipe says `init_words: cooccurrence`; without it they keep what was drawn (enough for weights that are overwritten).
    """
    built = compose(config, vocabulary, generator=generator)
    initialise(built, config, vectors)
    return built


def compose(config: PretrainConfig, vocabulary: Vocabulary, *, generator: Shape | None = None) -> Built:
    """`build` without initial values: also on the meta device."""
    shape = kept_shape(config.model, vocabulary.size)
    kept, corruptor = parts(config, vocabulary, generator or generator_shape(config.model, vocabulary.size))
    words = kept.embeddings.words
    match config.objective.objective, corruptor:
        case "mlm", MaskMix() | Generator() | Frequency():
            head = LMHead(shape, words)
            objective = MLM(corruptor, MaskedLM(kept, head))
        case "rtd", Generator() | Frequency() | TwoTower():
            head = BinaryHead(shape)
            sentence = LinearHead(shape.hidden_size) if "sentence" in config.objective.term_weights else None
            fake = config.objective.correct_as_replaced
            objective = Electra(corruptor, kept, head, loss_on=config.objective.loss_on, correct_as_replaced=fake, sentence_head=sentence)
        case "all_tokens", Generator() | Frequency():
            head = LMHead(shape, words)
            gate = LinearHead(shape.hidden_size) if config.objective.copy_gate else None
            objective = AllTokensMLM(corruptor, kept, head, gate)
        case "adversarial", Generator():
            head = BinaryHead(shape)
            objective = Adversarial(corruptor, kept, head, LinearHead(corruptor.lm.encoder.shape.hidden_size))
        case "electric", TwoTower() | Frequency():
            head = LinearHead(shape.hidden_size)
            objective = Electric(corruptor, kept, head)
        case name, _:
            raise AssertionError(f"{name} with {type(corruptor).__name__}: config/checks.py lets through what build does not know")
    halves = {"discriminator": Half(kept, head)}
    if isinstance(corruptor, Generator):
        assert isinstance(corruptor.lm.head, LMHead)
        halves["generator"] = Half(corruptor.lm.encoder, corruptor.lm.head)
    return Built(objective, halves)


def parts(config: PretrainConfig, vocabulary: Vocabulary, g_shape: Shape) -> tuple[Encoder, Corruptor]:
    """The kept encoder and what corrupts its text, sharing what `tie` says: sharing is passing the same object."""
    m, c = config.model, config.corruption
    shape = kept_shape(m, vocabulary.size)

    def encoder(shape: Shape, embeddings: Embeddings, look: Look = "both") -> Encoder:
        return Encoder(shape, embeddings, dropout=m.dropout, attention_dropout=m.attention_dropout, look=look)

    def embeddings(shape: Shape, words: Words | None = None) -> Embeddings:
        return Embeddings(shape, dropout=m.dropout, words=words)

    chooser = choosing(c, vocabulary)
    sampling = Sampling(c.temperature, c.temperature_end, c.disallow_correct)
    mask = MaskMix(chooser, vocabulary.special, vocabulary.size, mix=c.mask_mix)
    if c.corruptor not in ("generator", "two_tower"):
        kept = encoder(shape, embeddings(shape))
        return kept, mask if c.corruptor == "mask" else frequency(c, chooser, vocabulary)
    kept_embeddings, g_embeddings = shared(m, shape, g_shape, embeddings)
    kept = encoder(shape, kept_embeddings)
    if c.corruptor == "two_tower":
        head = LMHead(replace(g_shape, hidden_size=2 * g_shape.hidden_size), table(g_embeddings))
        left, right = encoder(g_shape, g_embeddings, "left"), encoder(g_shape, g_embeddings, "right")
        return kept, TwoTower(chooser, left, right, head, sampling=sampling)
    g_encoder = kept if m.tie == "all" else encoder(g_shape, g_embeddings)
    lm = MaskedLM(g_encoder, LMHead(g_shape, table(g_embeddings)))
    trains = c.generator_training == "joint"
    if not trains:
        lm.requires_grad_(False)
    return kept, Generator(mask, lm, sampling=sampling, trains=trains)


def shared(m: ModelConfig, shape: Shape, g_shape: Shape, embeddings: Callable[..., Embeddings]) -> tuple[Embeddings, Embeddings]:
    """Embedding layers of the kept encoder and of the generator."""
    match m.tie:
        case "all" | "embeddings":
            both = embeddings(shape)
            return both, both
        case "tokens":
            own = embeddings(shape)
            return own, embeddings(g_shape, own.words)
        case "none":
            return embeddings(shape), embeddings(g_shape)
        case "gdes":
            own = embeddings(g_shape)
            return embeddings(shape, DisentangledWords(table(own))), own


def choosing(c: CorruptionConfig, vocabulary: Vocabulary) -> Chooser:
    weight_V = None
    if c.mask_choice == "rare":
        weight_V = rarity(torch.ones(vocabulary.size) if vocabulary.counts_V is None else vocabulary.counts_V)
    edges = vocabulary.edges if c.mask_unit == "word" else None
    return Chooser(vocabulary.special, vocabulary.size, rate=c.mask_rate, clean_rate=c.clean_rate, edges=edges, weight_V=weight_V)


def frequency(c: CorruptionConfig, chooser: Chooser, vocabulary: Vocabulary) -> Frequency:
    counts_V = vocabulary.counts_V if c.corruptor == "unigram" else None
    counts_V = torch.ones(vocabulary.size) if counts_V is None else counts_V
    return Frequency(chooser, vocabulary.special, vocabulary.size, counts_V=counts_V)


def table(embeddings: Embeddings) -> nn.Embedding:
    """The word table that holds values of its own, below a disentangled one."""
    return embeddings.words.base if isinstance(embeddings.words, DisentangledWords) else embeddings.words


def initialise(built: Built, config: PretrainConfig, vectors: WordVectors | None) -> None:
    rng = torch.Generator().manual_seed(config.train.seed)
    init_bert(built.objective, rng)
    if config.model.init == "published":
        init_published(built.objective, rng)
    encoders = [part for part in built.objective.modules() if isinstance(part, Encoder)]
    encoders.sort(key=lambda e: e is not built.halves["discriminator"].encoder)  # the kept one first
    tables = {id(table(e.embeddings)): e for e in reversed(encoders)}  # a word table that is shared is scaled and filled once
    width = subspace_width(*(e.shape for e in encoders)) if config.model.init == "local" else 0
    if config.model.init == "local":
        for encoder in encoders:
            init_local_embeddings(encoder.embeddings, table(encoder.embeddings), width, scale_words=tables[id(table(encoder.embeddings))] is encoder)
            init_local_blocks(encoder, width, rng, amplitude=config.model.local_amplitude)
        for head in built.objective.modules():
            if isinstance(head, BinaryHead):
                init_local_head(head, rng)
    if config.model.init_words == "cooccurrence" and vectors:
        for encoder in tables.values():
            words = table(encoder.embeddings)
            init_words(words, vectors(words.embedding_dim - width), local_width=width)
