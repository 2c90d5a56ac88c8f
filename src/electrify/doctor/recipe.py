"""Finds traps in a recipe: numbers that can work together (config/checks.py) but are known not to
work well."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

from ..config.checks import check
from ..config.networks import is_untaught
from ..config.pretrain import ModelConfig, PretrainConfig, override
from ..data.phases import phases_of
from ..errors import UserError
from ..model.shape import Shape
from ..train.monitor import GRACE_TOKENS, LOCAL_GRACE_TOKENS, MAX_EPOCHS
from .files import amount
from .findings import Finding, note, ok, warning

# (width, learning rate, rows of a batch, their tokens): 2003.10555 table 6; narrower encoders use a
# higher rate, in proportion to the width.
PUBLISHED = ((256, 5e-4, 128, 128), (768, 2e-4, 256, 512), (1024, 2e-4, 2048, 512))
# How many times the published rate, scaled by the batch, a rate may be; searches find rates two or
# three times higher.
FAR = 4.0
SLOW = 30.0
# Shares of the encoder's width. 2003.10555 figure 3: quality falls below 1/4 and above 1/2.
SMALLEST_GENERATOR = 1 / 8
USUAL_MASK_RATES = (0.1, 0.4)  # BERT's .15, the large ELECTRA's .25, and .4 of 2202.08005
WITH_GENERATOR = 0.3  # a generator that fills in more than this writes texts of its own
MOST_WARMUP = 0.25


def recipe_traps(
    config: PretrainConfig, *, tokens: int | None, shape: Shape | None = None
) -> Iterator[Finding]:
    """tokens: number of tokens of the corpus, None if unknown. shape: that of a run's generator,
    which a folder may have decided."""
    yield from learning_rate(config)
    yield from warmup(config)
    yield from length_of_run(config, tokens)
    yield from generator(config, shape)
    yield from mask_rate(config)
    yield from tying(config, shape)


def published_rate(width: int, rows: int, length: int) -> tuple[float, float]:
    """The published learning rate for a width, scaled to a batch: by the square root, and in
    proportion (the smaller and the larger of the two). A row that is longer than the published ones
    counts for as many of them as it has tokens for."""
    at, rate, batch, usual = min(PUBLISHED, key=lambda p: abs(math.log(p[0] / width)))
    rate *= max(1.0, at / width)
    ratio = rows * max(1.0, length / usual) / batch
    return rate * min(ratio, math.sqrt(ratio)), rate * max(ratio, math.sqrt(ratio))


def learning_rate(config: PretrainConfig) -> Iterator[Finding]:
    t = config.train
    m = config.model
    length = config.data.max_seq_length
    least, most = published_rate(m.hidden_size, t.train_batch_size, length)
    fact = f"learning rate {t.learning_rate:g} at {t.train_batch_size:,} rows"
    scaled = f"the published one for this width, scaled to this batch, is {least:.1e} to {most:.1e}"
    if t.learning_rate > FAR * most:
        yield warning(
            "learning-rate-high",
            f"{fact}; {scaled}",
            (
                "Usually the loss then falls, and the model knows nothing in the end: lower the "
                "rate or raise the batch."
            ),
        )
    elif t.learning_rate < least / SLOW:
        yield warning(
            "learning-rate-low",
            f"{fact}; {scaled}",
            "Most of the run's computation will move little: raise the rate.",
        )
    else:
        yield ok(
            "learning-rate",
            f"{fact}, warm-up of {t.warmup_steps:,} of {t.max_steps:,} steps, seed {t.seed}",
        )


def warmup(config: PretrainConfig) -> Iterator[Finding]:
    t = config.train
    share = t.warmup_steps / t.max_steps
    if share >= 1:
        fact = f"the warm-up takes {t.warmup_steps:,} steps and the whole run has {t.max_steps:,}"
        yield warning(
            "warmup",
            fact,
            (
                f"The learning rate never reaches {t.learning_rate:g}: --warmup-steps "
                f"{max(1, t.max_steps // 10)} or so."
            ),
        )
    elif share > MOST_WARMUP:
        fact = (
            f"the warm-up takes {share:.0%} of the run ({t.warmup_steps:,} of {t.max_steps:,} "
            "steps)"
        )
        yield note(
            "warmup",
            fact,
            (
                "Shipped recipes warm up for 1 to 2 %: a shortened run wants a shorter "
                f"--warmup-steps, too ({max(1, t.max_steps // 10)})."
            ),
        )


def length_of_run(config: PretrainConfig, tokens: int | None) -> Iterator[Finding]:
    steps = config.train.max_steps
    slots = phases_of(config).slots(steps)
    grace = LOCAL_GRACE_TOKENS if config.model.init == "local" else GRACE_TOKENS
    if slots < grace:
        fact = f"the run is {steps:,} steps of {slots / steps:,.0f} tokens, {amount(slots)} in all"
        yield warning(
            "few-steps",
            fact,
            (
                f"With init {config.model.init} models begin to use the context after "
                f"{amount(grace)} tokens or so: enough to try the path only."
            ),
        )
    if tokens and slots / tokens > MAX_EPOCHS:
        fact = (
            f"{steps:,} steps see the corpus of {amount(tokens)} tokens {slots / tokens:,.0f} times"
        )
        yield warning(
            "epochs",
            fact,
            (
                f"Beyond {MAX_EPOCHS} times more steps gain next to nothing: use more text, or "
                f"--max-steps {int(steps * MAX_EPOCHS * tokens / slots)}."
            ),
        )
    elif tokens:
        yield ok(
            "epochs",
            f"{steps:,} steps see the corpus of {amount(tokens)} tokens {slots / tokens:.2g} times",
        )


def generator(config: PretrainConfig, shape: Shape | None) -> Iterator[Finding]:
    if not config.corruption.row.learned:
        return
    own = config.model.generator_numbers()
    if shape is not None:
        own = {name: getattr(shape, name) for name in own}
    t = config.train
    share = own["hidden_size"] / config.model.hidden_size
    fact = (
        f"the generator is {own['hidden_size']} wide, {share:.2g} of the encoder's "
        f"{config.model.hidden_size}"
    )
    # For two stages and shared encoders, equal size is part of the method; a given generator has a
    # fixed size; a shallower one is small though it is as wide.
    shallower = own["num_hidden_layers"] < config.model.num_hidden_layers
    given = (
        t.generator_steps or t.init_generator is not None or config.model.tie in ("all", "lower")
    )
    meant = given or shallower
    narrow = config.model.row.narrow_embeddings and config.corruption.row.has_generator
    cure = "Try --generator-size 0.25."
    if not narrow:  # it must be as wide as the encoder, so it can only have fewer blocks
        cure = "Give it fewer blocks with --generator-num-hidden-layers."
    if share >= 1 and not meant:
        advice = (
            "So strong a generator leaves the discriminator little to find; published: 1/4 (small, "
            f"large), 1/3 (base). {cure}"
        )
        yield warning("generator-size", fact, advice)
    elif share < SMALLEST_GENERATOR:
        yield warning(
            "generator-size",
            fact,
            (
                "So weak a generator makes mistakes that are too easy to see: published sizes are "
                "1/4 to 1/3."
            ),
        )
    else:
        yield ok("generator-size", fact)


def mask_rate(config: PretrainConfig) -> Iterator[Finding]:
    c = config.corruption
    least, most = USUAL_MASK_RATES
    most = WITH_GENERATOR if c.row.learned else most
    rates = {"": c.mask_rate, " at the end": c.mask_rate_end or c.mask_rate}
    odd = next((when for when, rate in rates.items() if not least <= rate <= most), None)
    if odd is not None:
        kind = "with a generator" if c.row.learned else "without a generator"
        yield warning(
            "mask-rate",
            f"{rates[odd]:.0%} of the tokens are chosen{odd}, which is unusual {kind}",
            (
                "Published: 15 % (small, base), 25 % (large encoders with a generator of 1/4); "
                "masked language models up to 40 %."
            ),
        )


def tying(config: PretrainConfig, shape: Shape | None) -> Iterator[Finding]:
    c = config.corruption
    m = config.model
    learns = c.row.learned and c.generator_training != "frozen" and not is_untaught(config)
    narrow = shape is not None and shape.embedding_size != m.embedding_size
    tie = possible_tie(config)
    if not learns or m.tie != "none" or narrow or tie is None:
        return
    default = ModelConfig.__dataclass_fields__["tie"].default
    yield note(
        "untied",
        (
            f"generator and discriminator share nothing (tie {m.tie}); the recipes share their "
            f"{default}"
        ),
        (
            "In the paper sharing is worth .7 points of GLUE: the generator's softmax trains every "
            f"word's embedding at each step, --tie {tie}."
        ),
    )


def possible_tie(config: PretrainConfig) -> str | None:
    """A way of sharing words that this recipe could take."""
    for tie in ("embeddings", "tokens"):
        with suppress(UserError):
            check(override(config, {"tie": tie}))
            return tie
    return None
