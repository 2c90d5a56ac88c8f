"""Recipe -> objective: widths, sharing, initial values. The only place that knows all layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .architectures import architecture_named
from .architectures.architecture import Architecture, ExportedModel, InitialValues, WordVectors
from .corruption.choosing import Chooser, rarity
from .corruption.corruptor import Corruptor, GeneratorParts, Source
from .corruption.sampling import Sampling
from .data.phases import phases_of
from .methods import DISCRIMINATOR, made, other_exports
from .model.embeddings import DisentangledWords, Shape, Words, own_table
from .model.encoder import Encoder, encoders_of, for_rows
from .model.heads import Network
from .objectives.objective import Objective, Parts
from .recipe import Corruption, Model, Recipe
from .tokens import SpecialIds, WordEdges


@dataclass(frozen=True)
class Vocabulary:
    """The facts about the vocabulary that corruption needs. `edges` and `counts_V` may be missing
    if nothing is trained (an export, a count of FLOPs)."""

    size: int
    special: SpecialIds
    edges: WordEdges | None = None
    """How tokens join into words."""
    counts_V: Tensor | None = None
    """[V] how often each occurs in the corpus."""


@dataclass(frozen=True)
class Built:
    """An objective ready to train, and the networks in it by the name of their export folder."""

    objective: Objective
    exports: dict[str, ExportedModel]

    @property
    def discriminator(self) -> ExportedModel:
        """The network that is the purpose of the run."""
        return self.exports[DISCRIMINATOR]

    def discriminator_names(self) -> set[str]:
        """The names of the parameters that belong to the discriminator and its heads. All other
        parameters belong only to the generator and use its learning rate; among them is the table
        under a disentangled one, which the encoder reads and does not train."""
        encoder, head = self.discriminator.encoder, self.discriminator.head
        own = {id(p) for part in (encoder, head) for p in part.parameters()}
        if isinstance(encoder.embeddings.words, DisentangledWords):
            own.discard(id(encoder.embeddings.words.base.weight))
        parts = self.objective.generator_parts()
        others = {id(p) for part in parts for p in part.parameters()} - own
        return {n for n, p in self.objective.named_parameters() if id(p) not in others}


def discriminator_shape(model: Model, vocab_size: int) -> Shape:
    numbers = vars(model) | model.architecture_options
    return architecture_named(model.architecture).shape(numbers, vocab_size=vocab_size)


def generator_shape(model: Model, vocab_size: int) -> Shape:
    """The shape of the generator, or of a tower. Embeddings keep the discriminator's width."""
    return replace(discriminator_shape(model, vocab_size), **model.generator_numbers())


def build(
    recipe: Recipe,
    vocabulary: Vocabulary,
    *,
    generator: Shape | None = None,
    vectors: WordVectors | None = None,
) -> Built:
    """The recipe's objective with its initial values, on the CPU in float32. The seed, and
    `vectors`, decide every value.

    `generator` overrides the derived shape of the generator (a folder that it starts from decides
    it). `vectors(K)` gives [V, K], where the words start if the recipe says `init_words:
    cooccurrence`; without it they keep what was drawn (enough for weights that are overwritten).
    """
    # What constructors draw is a function of the seed, too: parts that no architecture initialises
    # keep it. The numbers are not those that an architecture draws with this seed.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(~recipe.train.seed)
        built = compose(recipe, vocabulary, generator=generator)
    encoders = sorted(
        encoders_of(built.objective), key=lambda e: e is not built.discriminator.encoder
    )
    m = recipe.model
    values = InitialValues(
        m.init,
        m.local_amplitude,
        vectors if m.init_words == "cooccurrence" else None,
        scaled=m.init_scale == "depth",
        cls=vocabulary.special.cls,
    )
    first, last = (phases_of(recipe).all[at].row_length for at in (0, -1))
    for_rows(encoders, first)
    built.discriminator.architecture.initialise(
        built.objective, encoders, values, torch.Generator().manual_seed(recipe.train.seed)
    )
    for_rows(encoders, last)
    if m.init_rtd_bias == "replaced":
        built.discriminator.head.start_at(first_share(recipe))
    return built


def first_share(recipe: Recipe) -> float:
    """The share of the tokens that are chosen where the discriminator's head is first asked."""
    c, o = recipe.corruption, recipe.objective
    end = c.mask_rate if c.mask_rate_end is None else c.mask_rate_end
    rate = c.mask_rate + (end - c.mask_rate) * o.mlm_share
    return rate * (1 - c.clean_rate)


def at_step(built: Built, recipe: Recipe, step: int) -> Built:
    """The same networks in the phase of the last of `step` updates."""
    phase = phases_of(recipe).at(max(0, step - 1))
    for_rows(encoders_of(built.objective), phase.row_length)
    return built


def compose(recipe: Recipe, vocabulary: Vocabulary, *, generator: Shape | None = None) -> Built:
    """`build` without initial values: also on the meta device."""
    m = recipe.model
    architecture = architecture_named(m.architecture, m.options)
    g_shape = generator or generator_shape(recipe.model, vocabulary.size)
    discriminator, corruptor = encoder_and_corruptor(recipe, architecture, vocabulary, g_shape)
    o = recipe.objective
    dropout = dropout_of(recipe.model, DISCRIMINATOR)
    shows_mask = recipe.corruption.row.shows_mask
    parts = Parts(corruptor, discriminator, architecture, o.term_weights, shows_mask, dropout)
    objective = made(o.row, parts, o.options)
    # A frozen generator goes on reading as it was trained to.
    frozen = recipe.corruption.generator_training == "frozen"
    left_alone = encoders_of(corruptor) if frozen and isinstance(corruptor, nn.Module) else []
    for encoder in (e for e in encoders_of(objective) if e not in left_alone):
        encoder.shapes_by_rows = architecture.shapes_by_rows(encoder.shape)
    possible = objective.networks()
    left = {DISCRIMINATOR: Network(objective.encoder, objective.head)}
    left |= {name: possible[name] for name in other_exports(recipe)}
    exports = {
        name: ExportedModel(network.encoder, network.head, architecture.for_head(network.head))
        for name, network in left.items()
    }
    for name, model in exports.items():
        model.must_have_a_class(name)
    return Built(objective, exports)


def encoder_and_corruptor(
    recipe: Recipe, architecture: Architecture, vocabulary: Vocabulary, g_shape: Shape
) -> tuple[Encoder, Corruptor]:
    """The discriminator and the corruptor of its text, which share what `tie` says by holding the
    same object."""
    m = recipe.model
    c = recipe.corruption
    shape = discriminator_shape(m, vocabulary.size)
    g_dropout = m.dropout if m.generator_dropout is None else m.generator_dropout

    def embeddings(shape: Shape, words: Words | None = None, *, own: bool = True) -> nn.Module:
        """own: that of the discriminator."""
        return architecture.embeddings(shape, dropout=m.dropout if own else g_dropout, words=words)

    if c.row.learned:
        own, g_embeddings = shared(m, shape, g_shape, embeddings)
    else:
        own, g_embeddings = embeddings(shape), None
    discriminator = architecture.encoder(shape, own, **dropout_of(m, DISCRIMINATOR))
    parts = None
    if g_embeddings is not None:
        tied = {"all": shape.num_hidden_layers, "lower": m.tie_layers or 0}.get(m.tie, 0)
        dropout = dropout_of(m, "generator")
        parts = GeneratorParts(architecture, g_shape, g_embeddings, dropout, discriminator, tied)
    source = Source(
        chooser=choosing(c, vocabulary),
        special=vocabulary.special,
        vocab_size=vocabulary.size,
        counts_V=vocabulary.counts_V,
        mask_mix=c.mask_mix,
        sampling=Sampling(
            c.temperature,
            c.temperature_end,
            c.disallow_correct,
            c.temperature_schedule,
            c.temperature_decay,
        ),
        trains=c.generator_training == "joint",
        parts=parts,
    )
    return discriminator, made(c.row, source, c.options)


def dropout_of(m: Model, part: str) -> dict[str, Any]:
    """The dropout of an exported network."""
    own = {"dropout": m.dropout, "attention_dropout": m.attention_dropout}
    apart = m.generator_dropout
    return own if apart is None or part != "generator" else dict.fromkeys(own, apart)


def shared(
    m: Model, shape: Shape, g_shape: Shape, embeddings: Callable[..., Any]
) -> tuple[Any, Any]:
    """Embedding layers of the discriminator and of the generator."""
    match m.tie:
        case "all" | "lower" | "embeddings":
            both = embeddings(shape)
            return both, both
        case "tokens":
            own = embeddings(shape)
            return own, embeddings(g_shape, own.words, own=False)
        case "none":
            return embeddings(shape), embeddings(g_shape, own=False)
        case "gdes":
            g_own = embeddings(g_shape, own=False)
            return embeddings(shape, DisentangledWords(own_table(g_own.words))), g_own


def choosing(c: Corruption, vocabulary: Vocabulary) -> Chooser:
    weight_V = None
    if c.mask_choice == "rare":
        weight_V = rarity(
            torch.ones(vocabulary.size) if vocabulary.counts_V is None else vocabulary.counts_V
        )
    edges = vocabulary.edges if c.mask_unit == "word" else None
    return Chooser(
        vocabulary.special,
        vocabulary.size,
        rate=c.mask_rate,
        rate_end=c.mask_rate_end,
        clean_rate=c.clean_rate,
        edges=edges,
        span_length=c.span_length if c.mask_unit == "span" else 1,
        weight_V=weight_V,
    )
