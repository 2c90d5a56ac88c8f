"""Whether the numbers of a recipe can work together: one sentence for each way in which they
cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..cores import thread_count
from ..errors import UserError, nearest
from .objectives import OBJECTIVES
from .pretrain import LEARNED as LEARNED
from .pretrain import (
    CorruptionConfig,
    ModelConfig,
    ObjectiveConfig,
    PretrainConfig,
    TrainConfig,
    learns_by_likelihood,
)
from .schema import MAX_TYPO, brief

TRACKERS = ("none", "tensorboard")


def check(config: PretrainConfig) -> None:
    """Raises UserError where the numbers cannot work together."""
    check_model(config.model, corruptor=config.corruption.corruptor)
    check_task(config.corruption, config.objective, config.model)
    check_train(config.train)
    check_stages(config)
    d = config.data
    longest = config.model.max_position_embeddings
    need(
        d.max_seq_length <= longest,
        f"max_seq_length {d.max_seq_length} exceeds max_position_embeddings {longest}",
    )
    need(d.max_seq_length >= 8, f"max_seq_length {d.max_seq_length} is too short; use at least 8")
    check_schedules(config)
    need(d.num_segments in (1, 2), f"num_segments is 1 or 2, not {d.num_segments}")


def cautions(config: PretrainConfig) -> Iterator[str]:
    """What can work and is hardly meant: said at the start of a run."""
    t = config.train
    if t.warmup_steps >= t.max_steps:
        yield (
            f"warmup_steps {t.warmup_steps:,} is not below max_steps {t.max_steps:,}, so the "
            f"learning rate never reaches {t.learning_rate:g}; "
            f"give --warmup-steps {max(1, t.max_steps // 10)} or so"
        )


def need(ok: bool, sentence: str) -> None:
    if not ok:
        raise UserError(sentence)


def check_model(m: ModelConfig, *, corruptor: str) -> None:
    for name in (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "embedding_size",
        "max_position_embeddings",
    ):
        need(getattr(m, name) > 0, f"{name} must be positive, not {getattr(m, name)}")
    need(
        m.init in m.row.inits,
        f"init {m.init} is not known for architecture {m.architecture}: {' or '.join(m.row.inits)}",
    )
    wrong = m.row.check(m, m.options)
    need(wrong is None, str(wrong))
    need(
        m.hidden_size % m.num_attention_heads == 0,
        (
            f"hidden_size {m.hidden_size} is no multiple of num_attention_heads "
            f"{m.num_attention_heads}"
        ),
    )
    need(0 < m.generator_size <= 1, f"generator_size must lie in (0, 1], not {m.generator_size}")
    if corruptor in LEARNED:
        check_generator(m)
    else:
        given = [name for name in GENERATOR_SHAPE if getattr(m, name) is not None]
        need(not given, f"{', '.join(given)}: corruptor {corruptor} has no generator")
    need(
        0 <= m.dropout < 1 and 0 <= m.attention_dropout < 1,
        "dropout and attention_dropout must lie in [0, 1)",
    )
    need(
        0 < m.local_amplitude < math.inf,
        f"local_amplitude must be positive, not {m.local_amplitude}",
    )
    shapes = [{"hidden_size": m.hidden_size, "num_attention_heads": m.num_attention_heads}]
    shapes += [m.generator_numbers()] if corruptor in LEARNED else []
    narrow = min(m.embedding_size, *(s["hidden_size"] // s["num_attention_heads"] for s in shapes))
    need(
        m.init != "local" or narrow >= 4,
        f"init local needs heads and embeddings at least 4 wide, not {narrow}; take init bert",
    )


def check_generator(m: ModelConfig) -> None:
    own = m.generator_numbers()
    for name, number in own.items():
        need(number > 0, f"generator_{name} must be positive, not {number}")
    heads = own["num_attention_heads"]
    width = own["hidden_size"]
    need(
        width % heads == 0,
        (
            f"the generator gets {heads} attention heads over {width}; choose a generator_size, or "
            "generator_* numbers, that divide"
        ),
    )
    odd = [
        f"{name} {own[name]} for {getattr(m, name)}"
        for name in own
        if own[name] != getattr(m, name)
    ]
    need(
        m.tie != "all" or not odd,
        (
            "tie all shares every encoder weight and needs generator_size 1: the generator has "
            f"{', '.join(odd)}"
        ),
    )


GENERATOR_SHAPE = (
    "generator_num_hidden_layers",
    "generator_hidden_size",
    "generator_num_attention_heads",
    "generator_intermediate_size",
)


def check_task(c: CorruptionConfig, o: ObjectiveConfig, m: ModelConfig) -> None:
    need(0 < c.mask_rate < 1, f"mask_rate must lie between 0 and 1, not {c.mask_rate}")
    need(0 <= c.clean_rate < 1, f"clean_rate must lie in [0, 1), not {c.clean_rate}")
    need(
        len(c.mask_mix) == 3 and min(c.mask_mix) >= 0 and abs(sum(c.mask_mix) - 1) < 1e-6,
        f"mask_mix {c.mask_mix} must be three shares that sum to 1",
    )
    row = o.row
    known = " or ".join(sorted(o.row.corruptors))
    need(
        c.corruptor in row.corruptors,
        f"objective {o.objective} needs corruptor {known}, not {c.corruptor}",
    )
    check_drawing(c, m)
    default = CorruptionConfig(corruptor=c.corruptor, mask_rate=c.mask_rate)
    odd = [name for name in row.uncovered if getattr(c, name) != getattr(default, name)]
    need(
        not odd,
        (
            f"objective {o.objective} is exact for plain draws only: leave {', '.join(odd)} at the "
            "default"
        ),
    )
    wrong = row.check(o.options)
    need(wrong is None, str(wrong))
    frozen = c.generator_training == "frozen"
    need(
        not (frozen and row.rewarded),
        (
            f"objective {o.objective} trains its generator; generator_training frozen goes with "
            "the others"
        ),
    )
    check_weights(c, o)


def check_weights(c: CorruptionConfig, o: ObjectiveConfig) -> None:
    losses = set(o.row.losses) | ({"generator"} if learns_by_likelihood(c, o) else set())
    extra = {loss for loss, option in o.row.optional.items() if getattr(c, option)}
    names = set(o.term_weights)
    for row_name, row in OBJECTIVES.items():
        for loss in sorted(names & row.optional.keys() - extra - losses):
            need(
                False,
                (
                    f"a term weight for `{loss}` needs objective {row_name} and a "
                    f"{row.optional[loss]} above 0"
                ),
            )
    need(
        losses <= names <= losses | extra,
        f"term_weights must name {sorted(losses)}, not {sorted(names)}",
    )
    weights = o.term_weights.values()
    need(
        all(0 <= w < math.inf for w in weights) and any(weights),
        f"term_weights must be numbers from 0 on, not all 0: {o.term_weights}",
    )


def check_drawing(c: CorruptionConfig, m: ModelConfig) -> None:
    for name in ("temperature", "temperature_end"):
        value = getattr(c, name)
        need(value is None or 0 < value < math.inf, f"{name} must be positive, not {value}")
    drawn = (c.temperature, c.temperature_end, c.disallow_correct) != (1.0, None, False)
    need(
        c.corruptor in LEARNED or not drawn,
        (
            "temperature, temperature_end and disallow_correct are for learned corruptors, not "
            f"{c.corruptor}"
        ),
    )
    frozen = c.generator_training == "frozen"
    need(
        not frozen or c.corruptor == "generator",
        f"generator_training frozen is for corruptor generator, not {c.corruptor}",
    )
    need(
        not frozen or m.tie in ("none", "gdes"),
        (
            f"a frozen generator needs tie none or gdes: with {m.tie} the discriminator would "
            "change it"
        ),
    )
    need(
        m.tie != "all" or c.corruptor != "two_tower",
        "a two_tower generator has two encoders; tie all is for corruptor generator",
    )


def check_stages(config: PretrainConfig) -> None:
    """Two-stage training: a generator first, then a discriminator against it."""
    t = config.train
    corruptor = config.corruption.corruptor
    need(t.generator_steps >= 0, f"generator_steps cannot be negative: {t.generator_steps}")
    need(
        t.init_generator is None or corruptor == "generator",
        f"init_generator is for corruptor generator, not {corruptor}",
    )
    frozen = config.corruption.generator_training == "frozen"
    need(
        not frozen or bool(t.generator_steps or t.init_generator),
        "a frozen generator needs generator_steps, or an init_generator, to be one",
    )
    alone = corruptor not in LEARNED or (frozen and not t.generator_steps)
    need(
        not alone or t.generator_learning_rate is None,
        "generator_learning_rate: no generator is trained here",
    )
    if not t.generator_steps:
        need(
            t.discriminator_start == "generator",
            (
                f"discriminator_start {t.discriminator_start} is for two stages: it needs "
                "generator_steps"
            ),
        )
        return
    first = frozen or config.objective.row.rewarded
    need(
        first,
        (
            "generator_steps trains the generator first; say --generator-training frozen with it "
            "(recipes two-stage-*), or objective adversarial"
        ),
    )
    need(corruptor == "generator", f"generator_steps is for corruptor generator, not {corruptor}")
    need(
        t.init_generator is None,
        (
            "generator_steps and init_generator exclude each other: both say where the generator "
            "comes from"
        ),
    )
    own = config.model.generator_numbers()
    m = config.model
    odd = [name for name in own if own[name] != getattr(m, name)]
    need(
        t.discriminator_start == "random" or (not odd and t.init_discriminator is None),
        (
            "a discriminator that starts from the generator needs generator_size 1 and no "
            "init_discriminator; or say --discriminator-start random"
        ),
    )


def check_schedules(config: PretrainConfig) -> None:
    """Lengths and batches that change on the way."""
    d = config.data
    t = config.train
    longest = config.model.max_position_embeddings
    for name, schedule in (
        ("seq_length_schedule", d.seq_length_schedule),
        ("batch_size_schedule", t.batch_size_schedule),
    ):
        shares = schedule.values()
        need(
            all(0 < s < 1 for s in shares) and sum(shares) < 1,
            f"the shares of {name} must be positive and sum to less than 1: {schedule}",
        )
    for length in d.seq_length_schedule:
        need(
            8 <= length <= longest,
            (
                f"seq_length_schedule: rows of {length} tokens; at least 8, at most "
                f"max_position_embeddings {longest}"
            ),
        )
    grows = d.seq_length_schedule or t.batch_size_schedule
    for name in ("non_finite", "spike"):
        back = getattr(t, name) == "rollback"
        need(
            not (back and grows),
            (
                f"{name} rollback moves batches forward: it cannot go with a schedule of lengths "
                "or batches"
            ),
        )
    for rows in t.batch_size_schedule:
        need(rows > 0, f"batch_size_schedule: batches must be positive, not {rows}")


def check_train(t: TrainConfig) -> None:
    counts = ("max_steps", "train_batch_size", "logging_steps", "save_steps", "eval_rows")
    for name in (*counts, "learning_rate", "adam_epsilon", "ddp_timeout", "spike_sigmas"):
        need(getattr(t, name) > 0, f"{name} must be positive, not {getattr(t, name)}")
    for name in (
        "warmup_steps",
        "eval_steps",
        "weight_decay",
        "max_grad_norm",
        "max_non_finite",
        "max_spikes",
    ):
        need(getattr(t, name) >= 0, f"{name} cannot be negative: {getattr(t, name)}")
    for name in (
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "save_total_limit",
        "max_minutes",
        "generator_learning_rate",
    ):
        need(
            getattr(t, name) is None or getattr(t, name) > 0,
            f"{name} must be positive, not {getattr(t, name)}",
        )
    for name in ("learning_rate", "generator_learning_rate", "weight_decay", "adam_epsilon"):
        need(getattr(t, name) != math.inf, f"{name} must be a finite number")
    thread_count(t.threads)
    for name in t.report_to:
        need(
            name in TRACKERS,
            f"report_to has no tracker {brief(name)}{nearest(name[:MAX_TYPO], TRACKERS)}",
        )
    for name in ("adam_beta1", "adam_beta2"):
        need(0 <= getattr(t, name) < 1, f"{name} must lie in [0, 1), not {getattr(t, name)}")
    sharded = t.fsdp == "full_shard"
    need(
        not (sharded and t.torch_compile),
        (
            "fsdp full_shard gathers parameters on the way, which torch_compile does not follow: "
            "take one of the two"
        ),
    )
    need(0 <= t.seed < 2**63, f"seed must lie between 0 and 2**63 - 1, not {t.seed}")
