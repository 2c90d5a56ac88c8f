"""What a run starts from: values drawn from the seed, word vectors computed from the corpus, or the
weights of Hugging Face folders and models of the Hub, whose shapes and words must fit.

Published tables of words are padded to a round number of rows (DeBERTaV3's to 128,100, others to a
multiple of 64 or 128): the rows beyond the last token are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..architectures import architecture_named
from ..architectures.architecture import ExportedModel, KeyRow, to_ours
from ..build import Built, Vocabulary, build, discriminator_shape
from ..data.cooccurrence import word_vectors
from ..data.phases import phases_of
from ..errors import UserError, failing_as, need
from ..exporting.loading import load_config, loaded, quiet
from ..exporting.places import METADATA
from ..files import sha256, text_hash
from ..hub import at_commit
from ..methods import DISCRIMINATOR, row_of
from ..model.embeddings import DisentangledWords, Shape
from ..progress import say
from ..recipe import SECTION_OF, Model, Recipe, override
from ..rules import POSITIONS, check, extending
from ..text.corpus import TOKENIZER, Corpus
from ..text.tokenizer import VOCABULARY_FILES, load_tokenizer, word_edges

Starts = Mapping[str, str]  # network -> Hugging Face folder or Hub id from which it starts
GENERATOR = "generator"
# The tensors with a row for each word, under our names.
OF_WORDS = ("embeddings.words.weight", "head.bias_V")


# ------------------------------------------------------------------ folders and Hub ids


def starts_of(recipe: Recipe) -> dict[str, str]:
    """The folders and Hub ids that a recipe names, by network."""
    t = recipe.train
    named = {DISCRIMINATOR: t.init_discriminator, GENERATOR: t.init_generator}
    return {name: os.path.expanduser(start) for name, start in named.items() if start}


def content_of(start: str) -> str:
    """What tells whether a start is still the same: `sha256:` and a hash of the files of a folder,
    NAME@COMMIT of a model whose config.json is in the Hub's cache."""
    folder = Path(start)
    if folder.is_dir():
        ends = (".safetensors", ".json", *VOCABULARY_FILES)
        files = sorted(p for p in folder.iterdir() if p.name.endswith(ends))
        known = [(p.name, sha256(p)) for p in files if p.name != METADATA]
        return f"sha256:{text_hash(json.dumps(known))}"
    return at_commit(start)


def is_same(start: str, content: str) -> bool:
    """Whether a start is what `content_of` gave earlier. A folder that is gone is believed: a run
    that goes on does not need it."""
    if Path(start).is_dir():
        return content_of(start) == content
    return content.startswith("sha256:") or content.partition("@")[0] == start


def config_in(start: str, architecture: str) -> Any:
    """The library's configuration of a start, if our encoder of this architecture computes the
    same. Raises UserError otherwise."""
    config, known = load_config(start), row_of("architecture", architecture).model_types
    need(
        config.model_type in known,
        f"{start} is a model of type {config.model_type!r}; a run with architecture={architecture} "
        f"starts from {' or '.join(known)} only",
    )
    own = architecture_named(architecture)
    own.must_compute_the_same(start, config)
    return own.as_read(config)


# ------------------------------------------------------------------ words


def has_words(start: str) -> bool:
    """Whether there is a tokenizer that can be compared with the corpus's."""
    folder = Path(start)
    return not folder.is_dir() or any((folder / name).is_file() for name in VOCABULARY_FILES)


def must_know_the_words(start: str, tokenizer: Path) -> None:
    """Raises UserError if the tokenizer of `start` gives words other ids than the corpus's, or
    cannot be loaded. A folder may have none."""
    from transformers import AutoTokenizer

    if not has_words(start):
        return  # transformers would invent an empty one
    with quiet(), failing_as(f"{start}: its tokenizer cannot be loaded"):
        theirs = AutoTokenizer.from_pretrained(start, trust_remote_code=False).get_vocab()
    ours = load_tokenizer(tokenizer).get_vocab()
    odd = sorted(word for word in theirs.keys() | ours.keys() if theirs.get(word) != ours.get(word))
    if odd:
        raise UserError(
            f"{start} knows other words than the corpus ({len(odd)} differ, {odd[0]!r} is "
            f"{theirs.get(odd[0])} there, {ours.get(odd[0])} here)",
            f"prepare the corpus with tokenizer={start}, or start from another folder",
        )


# ------------------------------------------------------------------ shapes


def shape_in(start: str, model: Model, vocab_size: int) -> Shape:
    """The shape of the encoder in a folder, for a corpus of `vocab_size`. Raises UserError."""
    own = architecture_named(model.architecture, model.options)
    shape = own.shape_of(config_in(start, model.architecture))
    need(
        vocab_size == shape.vocab_size or (vocab_size < shape.vocab_size and has_words(start)),
        f"{start} has a vocabulary of {shape.vocab_size}, the corpus one of {vocab_size}",
        f"prepare the corpus with tokenizer={start}, or start from another folder",
    )
    return replace(shape, vocab_size=vocab_size)


def with_shapes(
    recipe: Recipe, saved: Mapping[str, Any], *, vocab_size: int
) -> tuple[Recipe, Shape | None]:
    """The recipe with the numbers of the folder from which the discriminator starts, and the shape
    of a generator that starts from a folder. Both know the same segments.

    saved: the shapes in run.json of a run that goes on, whose folders may be gone. vocab_size: that
    of the corpus. Raises UserError for folders that do not fit.
    """
    own = architecture_named(recipe.model.architecture, recipe.model.options)
    known = {name: own.shape_type(**numbers) for name, numbers in saved.items()}
    starts = starts_of(recipe)
    if start := starts.get(DISCRIMINATOR):
        shape = known.get(DISCRIMINATOR)
        shape = shape or own.extended(shape_in(start, recipe.model, vocab_size))
        must_hold_rows(recipe, shape, start)
        numbers = {n: v for n, v in vars(shape).items() if SECTION_OF.get(n) == "model"}
        recipe = override(recipe, numbers)
        # If another folder decides the generator's shape, generator_size is ignored.
        check(override(recipe, {"generator_size": 1.0}) if GENERATOR in starts else recipe)
    start = starts.get(GENERATOR)
    if start is None:
        return recipe, None
    shape, encoder = known.get(GENERATOR), discriminator_shape(recipe.model, vocab_size)
    if shape is None:
        given = shape_in(start, recipe.model, vocab_size)
        shape = own.extended(given)
        if recipe.corruption.generator_training == "frozen":
            # It does not learn to read with other numbers than its folder's.
            shape = replace(given, max_position_embeddings=shape.max_position_embeddings)
        same = ("vocab_size", "type_vocab_size")
        shape = replace(shape, **{name: getattr(encoder, name) for name in same})
    must_hold_rows(recipe, shape, start)
    need(
        recipe.model.tie == "none" or shape.embedding_size == encoder.embedding_size,
        f"{start} has embeddings of {shape.embedding_size}, the encoder of "
        f"{encoder.embedding_size}",
        "with init_generator choose tie=none, or equal ones",
    )
    need(
        recipe.model.tie != "all" or shape == encoder,
        f"tie=all shares all of the encoder, and {start} has another shape",
    )
    return recipe, shape


def must_hold_rows(recipe: Recipe, shape: Shape, start: str) -> None:
    """Raises UserError if the rows of the run are longer than the encoder of a folder reads."""
    longest, positions = max(phases_of(recipe).row_lengths), shape.max_position_embeddings
    advice = "shorten the rows, or start from another folder"
    if option := extending(recipe.model, POSITIONS):
        advice += f". {option}={longest} reads on without new weights"
    need(
        positions >= longest,
        f"rows of {longest} tokens (max_seq_length, seq_length_schedule) exceed the {positions} "
        f"positions of {start}",
        advice,
    )


# ------------------------------------------------------------------ weights


def starting_point(
    recipe: Recipe,
    generator: Shape | None,
    corpus: Corpus,
    starts: Starts,
    *,
    fresh: bool,
    main: bool,
) -> Built:
    """The objective with its initial values: first those drawn from the seed, then those computed
    from the corpus, then those of the folders that it starts from.

    fresh: False if a checkpoint will overwrite them. main: whether this is the rank that reads the
    corpus for the initial word vectors, which the others receive before the first step, and that
    says what the folders lack.
    """
    vectors = cache(partial(word_vectors, corpus, seed=recipe.train.seed))
    edges = word_edges(corpus.folder / TOKENIZER) if recipe.corruption.mask_unit == "word" else None
    counts_V, m = torch.from_numpy(corpus.unigram()), corpus.manifest
    built = build(
        recipe,
        Vocabulary(m.vocab_size, m.special_ids, edges=edges, counts_V=counts_V),
        generator=generator,
        vectors=vectors if fresh and main else None,
    )
    for line in fill_from(built, recipe, starts) if fresh else ():
        if main:
            say(line)
    return built


def fill_from(built: Built, recipe: Recipe, starts: Starts) -> Iterator[str]:
    """Takes the weights of the folders. Yields lines about them. Of what two networks share, the
    discriminator's folder decides, so it comes last. A disentangled table is a difference from the
    generator's, which must be there before."""
    words = built.discriminator.encoder.embeddings.words
    # With this folder alone, the generator begins with its words, too: to the bit if the table
    # below is empty when they are read.
    alone = isinstance(words, DisentangledWords) and set(starts) == {DISCRIMINATOR}
    if alone:
        torch.nn.init.zeros_(words.base.weight)
    for name in (n for n in (GENERATOR, DISCRIMINATOR) if n in starts):
        learns = name == DISCRIMINATOR or recipe.corruption.generator_training != "frozen"
        own, kind = built.exports[name], recipe.model.architecture
        for line in load_model(own, starts[name], kind, learns=learns):
            yield f"{name}: {starts[name]}: {line}"
    if len(starts) == 2 and recipe.model.tie not in ("none", "gdes"):
        yield f"of the weights that both share, {starts[DISCRIMINATOR]} decides"
    if alone:
        words.level()
    for name in sorted(built.exports.keys() - starts.keys()) if starts else ():
        line = f"{name}: no folder is given for it; what it does not share starts anew"
        beside = Path(starts.get(DISCRIMINATOR, "")).absolute().with_name(GENERATOR)
        if name == GENERATOR and beside.is_dir():
            line += f". init_generator={beside} would continue it"
        yield line


def load_model(
    own: ExportedModel, start: str, architecture: str, *, learns: bool = True
) -> list[str]:
    """Fills a network of a run with the weights of a folder or Hub id (safetensors only). Returns
    lines that say what was missing or left out.

    A head that the folder lacks keeps its initial values. learns: False for a generator that stays
    as the folder leaves it, head and all. Raises UserError if the folder does not fit; then nothing
    has been changed.
    """
    config = config_in(start, architecture)
    table = own.table(model_type=config.model_type)
    model, info = loaded(own.architecture.starting_class(table.name), start, config)
    missing, extra = set(info["missing_keys"]), sorted(info["unexpected_keys"])
    if not own.architecture.has_head(config, own.head.kind):
        missing |= set(_names(table.head))
    odd = _names(row for row in table.encoder if missing.intersection(row.theirs))
    need(
        not odd,
        f"{start} lacks {len(odd)} weights of the encoder ({', '.join(odd[:1])}, ...): it is "
        "damaged or of another architecture",
    )
    unread = table.unread.items()
    lines = [f"left out {name}, {what}" for name, what in unread if name not in missing]
    lacks = _names(row for row in table.head if missing.intersection(row.theirs))
    if lacks == _names(table.head):
        lines.append("it has no weights of the head, which keeps its initial values")
    elif lacks:
        lines.append(f"it lacks {', '.join(lacks)}; they keep their initial values")
    need(
        learns or not lines,
        f"{start}: {'; '.join(lines)}. A frozen generator learns none",
        "take the generator/ folder of a run, or another masked language model",
    )
    rows = [row for row in table.rows if not missing.intersection(row.theirs)]
    new = to_ours(rows, model.state_dict())
    _fit_rows(new, own)
    mine = own.parameters()
    for name, t in new.items():
        need(
            mine[name].shape == t.shape,
            f"{start}: {name} is {tuple(t.shape)} there, {tuple(mine[name].shape)} here",
            "if it is shared with the other network, choose tie=none",
        )
    if own.fill(new):
        lines.append("a head of another objective or form; ours keeps its initial values")
    if extra:
        shown = f"{', '.join(extra[:4])}{', ...' * (len(extra) > 4)}"
        lines.append(f"ignored {len(extra)} weights without a place here ({shown})")
    return lines or ["every weight found and used"]


def _names(rows: Iterable[KeyRow]) -> list[str]:
    """The library's names of the weights in these rows."""
    return sorted(name for row in rows for name in row.theirs)


def _fit_rows(new: dict[str, Tensor], own: ExportedModel) -> None:
    """Cuts the padding off tables of words, and gives the table of segments as many rows as ours
    has. A segment that the folder lacks starts as its last, so that it computes the same for every
    text that it could read."""
    shape = own.encoder.shape
    for name, table in new.items():
        if name.endswith(OF_WORDS):
            new[name] = table[: shape.vocab_size]
        elif name.endswith("embeddings.segments.weight"):
            new[name] = table[torch.arange(shape.type_vocab_size).clamp(max=len(table) - 1)]
