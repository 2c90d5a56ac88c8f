"""The starting point of a run: shapes and vocabulary of the recipe, initial values, and the weights
of folders to start from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from ..architectures import architecture_named
from ..build import Built, Vocabulary, build, generator_shape, kept_shape
from ..config.check_lengths import POSITIONS, extending, limit, may_extend
from ..config.checks import check
from ..config.flags import flag_of
from ..config.pretrain import PretrainConfig, override, section_of, values_of
from ..config.sections import GENERATOR_SIZES
from ..data.cooccurrence import word_vectors
from ..data.phases import phases_of
from ..errors import UserError, need
from ..export.starting_vocabulary import check_vocabulary
from ..export.starting_weights import folder_shape, load_model
from ..model.embeddings import DisentangledWords
from ..model.shape import Shape
from ..progress import say
from ..text.manifest import TOKENIZER
from ..text.shards import Corpus
from ..text.word_edges import word_edges
from ..train.header import saved_shape

Starts = dict[str, str]  # network -> Hugging Face folder or Hub id from which it starts


def must_read_rows(config: PretrainConfig) -> None:
    """Raises UserError if a new run could not start from its folders, whatever the corpus. This is
    checked before a corpus is prepared."""
    config = from_folders(config, None, None)
    start = config.train.init_generator
    if start:
        kept = config.model.max_position_embeddings
        must_hold_rows(config, generator_from(start, config, None), start, kept=kept)


def from_folders(
    config: PretrainConfig, run: Path | None, vocab_size: int | None
) -> PretrainConfig:
    """The recipe with the kept encoder's shape taken from the folder from which it starts. run:
    None for a new one. vocab_size: that of the corpus, if there is one."""
    start = config.train.init_discriminator
    if not start:
        return config
    saved = saved_shape(run, "discriminator") if run is not None else None
    shape = saved or shape_from(start, config, vocab_size)
    must_hold_rows(config, shape, start, goes_on=run if saved else None)
    known = section_of()
    config = override(
        config, {name: number for name, number in vars(shape).items() if known.get(name) == "model"}
    )
    # Checked again, because the folder has decided the shape. If another folder decides the
    # generator's shape, generator_size is ignored.
    try:
        check(override(config, {"generator_size": 1.0}) if config.train.init_generator else config)
    except UserError as e:
        raise UserError(f"{e} (the shape is that of --init-discriminator {start})") from None
    return config


def shape_from(start: str, config: PretrainConfig, vocab_size: int | None) -> Shape:
    """The shape of the kept encoder in a folder, with what the recipe extends of it. Raises
    UserError."""
    m = config.model
    shape = folder_shape(start, m.architecture, vocab_size=vocab_size)
    (name, longest), reads = limit(config), shape.max_position_embeddings
    if longest < reads:
        raise UserError(
            f"{start}: {name} {longest} is less than the {reads} that it reads already; leave it "
            "out"
        )
    return architecture_named(m.architecture, m.options).extended(shape)


def generator_from(start: str, config: PretrainConfig, vocab_size: int | None) -> Shape:
    """The same of a generator in a folder, which may read longer rows already. A frozen one does
    not learn to read with other numbers than its folder's."""
    m = config.model
    shape = folder_shape(start, m.architecture, vocab_size=vocab_size)
    longer = architecture_named(m.architecture, m.options).extended(shape)
    if config.corruption.generator_training == "frozen":
        return replace(shape, max_position_embeddings=longer.max_position_embeddings)
    return longer


def must_hold_rows(
    config: PretrainConfig, shape: Shape, start: str, *, kept: int = 0, goes_on: Path | None = None
) -> None:
    """Raises UserError if the rows of the run are longer than an encoder reads that comes from a
    folder. kept: the positions of the kept encoder beside it, which are not shortened. goes_on: the
    folder of the run that has decided the shape, if there is one already."""
    longest, positions = max(phases_of(config).row_lengths), shape.max_position_embeddings
    if positions < longest:
        need(
            goes_on is None,
            f"{goes_on} holds another run, whose encoder reads rows of {positions} tokens, and "
            f"those of this one have {longest} (max_seq_length, seq_length_schedule)",
            "choose another --output-dir, or repeat its options to continue it",
        )
        option = extending(config.model, POSITIONS)
        advice = "shorten the rows, or start from another folder"
        if option and may_extend(config):
            advice = f"{flag_of(option)} {max(longest, kept)} reads on without new weights"
        raise UserError(
            f"rows of {longest} tokens (max_seq_length, seq_length_schedule) exceed the "
            f"{positions} positions of {start}; {advice}"
        )


def shapes_of(config: PretrainConfig, run: Path, vocab_size: int) -> tuple[Shape, Shape | None]:
    """The shape of the kept encoder, and that of the learned generator or of a tower: from the
    folder from which it starts, otherwise from the recipe. Both know the same segments."""
    kept = kept_shape(config.model, vocab_size)
    start = config.train.init_generator
    if start:
        saved = saved_shape(run, "generator")
        shape = saved or replace(
            generator_from(start, config, vocab_size), type_vocab_size=kept.type_vocab_size
        )
        reads = kept.max_position_embeddings
        must_hold_rows(config, shape, start, kept=reads, goes_on=run if saved else None)
        eps = shape.layer_norm_eps
        if not 0 < eps < 1:
            raise UserError(
                f"layer_norm_eps must lie between 0 and 1, not {eps} (it is that of "
                f"--init-generator {start})"
            )
        must_share(config, kept, shape, start)
        return kept, shape
    return kept, generator_shape(
        config.model, vocab_size
    ) if config.corruption.row.learned else None


def must_share(config: PretrainConfig, kept: Shape, generator: Shape, start: str) -> None:
    """Raises UserError if the networks are one and the generator's folder has another shape,
    or if they share a word table of another width, or a LayerNorm that was trained with another
    epsilon."""
    free = ["layer_norm_eps"]  # which has its own sentence
    if extending(config.model, POSITIONS):
        free.append(POSITIONS)  # which have no weights there
    odd = [
        f"{name} {theirs} there, {getattr(kept, name)} in the encoder"
        for name, theirs in vars(generator).items()
        if config.model.tie == "all" and name not in free
        if theirs != getattr(kept, name)
    ]
    if odd:
        raise UserError(
            f"--init-generator {start} cannot be one with the encoder (--tie all): "
            f"{'; '.join(odd)}; give the encoder the same, or take another --tie"
        )
    tie, width = config.model.tie, generator.embedding_size
    if tie != "none" and width != kept.embedding_size:
        same = f"give the encoder the same (--embedding-size {width}), or "
        if config.train.init_discriminator or not config.model.row.narrow_embeddings:
            same = ""  # which the folder, or the width of the blocks, decides
        raise UserError(
            f"--init-generator {start} has embedding_size {width} and the encoder "
            f"{kept.embedding_size}, and with tie {tie} they share a word table; {same}take "
            "--tie none"
        )
    eps = generator.layer_norm_eps
    if eps != kept.layer_norm_eps and tie not in ("none", "tokens", "gdes"):
        same = f"give both the same (--layer-norm-eps {eps:g}), or "
        if config.train.init_discriminator:  # which decides the encoder's
            same = ""
        raise UserError(
            f"--init-generator {start} has layer_norm_eps {eps:g} and the encoder "
            f"{kept.layer_norm_eps:g}, and with tie {tie} they share a LayerNorm; {same}take "
            "--tie tokens, none or gdes"
        )


def overruled(
    config: PretrainConfig, given: Collection[str], run: Path
) -> Iterator[tuple[str, Any, Any, str]]:
    """The numbers of networks that somebody gave and that the folders from which a run starts
    overrule: name, value, that of the folder, and its name. given: the fields that somebody
    wrote."""
    found = from_folders(config, run, None)
    before, after = values_of(config), values_of(found)
    start = config.train.init_discriminator
    for name in given if start else ():
        if section_of()[name] == "model" and before[name] not in (None, after[name]):
            yield name, before[name], after[name], f"--init-discriminator {start}"
    start = config.train.init_generator
    own = {"generator_size", *(f"generator_{name}" for name in GENERATOR_SIZES)}.intersection(given)
    if not start or not own:
        return
    shape = saved_shape(run, "generator") or generator_from(start, found, None)
    numbers = found.model.generator_numbers()
    odd = {name: getattr(shape, name) for name in numbers if numbers[name] != getattr(shape, name)}
    for name in sorted(own) if odd else ():
        theirs = ", ".join(f"{name} {number}" for name, number in odd.items())
        yield name, before[name], theirs, f"--init-generator {start}"


def vocabulary_of(corpus: Corpus, config: PretrainConfig) -> Vocabulary:
    """The facts about the corpus and its tokenizer that corruption needs."""
    m = corpus.manifest
    edges = word_edges(corpus.folder / TOKENIZER) if config.corruption.mask_unit == "word" else None
    return Vocabulary(
        m.vocab_size, m.special_ids, edges=edges, counts_V=torch.from_numpy(corpus.unigram())
    )


def starting_point(
    config: PretrainConfig,
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
    vectors = (
        cache(partial(word_vectors, corpus, seed=config.train.seed)) if fresh and main else None
    )
    vocabulary = vocabulary_of(corpus, config)
    built = build(config, vocabulary, generator=generator, vectors=vectors, brought=starts)
    if not fresh:
        return built
    for line in _filled(built, config, corpus, starts):
        if main:
            say(line)
    return built


def _filled(built: Built, config: PretrainConfig, corpus: Corpus, starts: Starts) -> Iterator[str]:
    """Takes the weights of the folders. Yields lines about them."""
    words = built.kept.encoder.embeddings.words
    # With this folder alone, the generator begins with its words, too: to the bit if the table
    # below is empty when they are read.
    alone = isinstance(words, DisentangledWords) and set(starts) == {"discriminator"}
    if alone:
        torch.nn.init.zeros_(words.base.weight)
    # A disentangled table is a difference from the generator's table, which must be loaded first.
    order = (
        ("generator", "discriminator")
        if config.model.tie == "gdes"
        else ("discriminator", "generator")
    )
    for name in (n for n in order if n in starts):
        start = starts[name]
        check_vocabulary(start, tokenizer=corpus.folder / TOKENIZER)
        given = built.kept if name == "generator" and "discriminator" in starts else None
        learns = name == "discriminator" or config.corruption.generator_training != "frozen"
        yield from load_model(built.exports[name], start, what=name, given=given, learns=learns)
    if alone:
        words.level()
    if starts:
        for name in sorted(built.exports.keys() - {*order}):
            yield (
                f"{name}: no folder is given for it; what it does not share starts with new values"
            )


def kept_names(built: Built) -> set[str]:
    """The names of the parameters that belong to the kept encoder and its heads. All other
    parameters belong only to the generator and use its learning rate; among them is the table under
    a disentangled one, which the encoder reads and does not train."""
    kept = {id(p) for part in (built.kept.encoder, built.kept.head) for p in part.parameters()}
    words = built.kept.encoder.embeddings.words
    if isinstance(words, DisentangledWords):
        kept.discard(id(words.base.weight))
    others = {id(p) for part in built.objective.generator_parts() for p in part.parameters()} - kept
    return {
        n for n, p in built.objective.named_parameters(remove_duplicate=True) if id(p) not in others
    }
