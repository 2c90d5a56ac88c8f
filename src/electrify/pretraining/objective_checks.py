"""What an objective or a corruptor of one's own must have right, looked at before a folder is
claimed: every part of it is counted, and its losses are those that the recipe weighs."""

from __future__ import annotations

from ..build import at_step, compose, constructors_drawing
from ..config.pretrain import PretrainConfig
from ..config.rows import is_ours
from ..data.loader import Loader
from ..draws import draws_for
from ..errors import UserError
from ..flops.complete import must_count_all
from ..flops.count import outline
from ..model.shape import Shape
from .starting import vocabulary_of


def must_be_whole(config: PretrainConfig, loader: Loader, generator: Shape | None) -> None:
    """Raises UserError. generator: see `build`."""
    size = loader.corpus.manifest.vocab_size
    must_count_all(outline(config, vocab_size=size, generator=generator).objective, "hardware")
    if not (is_ours(config.objective.row.cls) and is_ours(config.corruption.row.cls)):
        must_count_its_losses(config, loader, generator)


def must_count_its_losses(config: PretrainConfig, loader: Loader, generator: Shape | None) -> None:
    """Raises UserError if the plan of a few rows does not count the losses that are weighed. Only
    the plan knows them, so the networks are made once more; they are dropped again."""
    o, seed = config.objective, config.train.seed
    vocabulary = vocabulary_of(loader.corpus, config)
    with constructors_drawing(seed):
        built = at_step(compose(config, vocabulary, generator=generator), config, 0)
    rows = o.row.group_rows(o.term_weights, o.options) if o.row.group_rows else 1
    tokens = loader.batch(0, num_rows=rows)
    draws = draws_for(seed=seed, step=0, num_rows=rows, row_length=tokens.row_length)
    counted = built.objective.plan(tokens, draws).counts
    if counted.keys() == o.term_weights.keys():
        return
    names = f"{', '.join(sorted(counted))}, and those that are weighed "
    names += ", ".join(sorted(o.term_weights))
    missing = o.term_weights.keys() - counted.keys()
    if not is_ours(config.corruption.row.cls) and "generator" in missing:
        raise UserError(
            f"corruptor {config.corruption.corruptor}: the losses that are counted with it are "
            f"{names}",
            "make its class count that of its masked language model as `generator`",
        )
    raise UserError(
        f"objective {o.objective}: the losses that its class counts are {names}",
        "make `losses` of its row, or term_weights, and `counts` of its class agree",
    )
