"""What `pretrain` looks at before it prepares a corpus, so that hours of work do not end in a
refusal, and what it was told that does nothing."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.flags import flag_of
from ..config.pretrain import PretrainConfig, with_batch
from ..errors import UserError
from ..export.places import check_place
from ..oldfiles.inside import must_be_utf8, must_not_be_in_a_checkpoint
from ..oldfiles.run_folder import has_checkpoints
from ..progress import say
from ..text.given import is_prepared, prepared
from ..text.sources import HUB, PYDOCS

if TYPE_CHECKING:
    from ..train.folder import Resume  # imports torch


def corpus_for(
    config: PretrainConfig,
    data: str,
    output_dir: Path,
    *,
    resume: Resume,
    given: Collection[str] = (),
) -> Path:
    """The prepared corpus of a run, made first if `data` is text. Raises UserError for what can be
    known before that: about the folders that the run starts from, its own folder, its batch, its
    tracker, and the device. given: the fields that the command line names; those that do nothing
    are said."""
    must_be_utf8(output_dir)
    must_not_be_in_a_checkpoint(output_dir)
    t = config.train
    starts = [os.path.expanduser(s) for s in (t.init_discriminator, t.init_generator) if s]
    # A continued run does not need them any more; a first stage that is continued does not matter
    # here, because the second still has to start.
    new = [] if has_checkpoints(output_dir) else starts
    for start in new:
        check_place(start)
    if not is_prepared(data) and _may_be_text(data):
        from ..train.folder import refuse, refuse_stages  # imports torch
        from ..train.machine import pick_device
        from .batches import split_batch

        (refuse_stages if t.generator_steps else refuse)(output_dir, resume)
        if _processes() == 1:  # more of them take no text
            split_batch(config, 1)
        pick_device(t.device)
        if new:
            from .starting import must_read_rows

            must_read_rows(config)
    for line in in_vain(config, given, output_dir):
        say(line)
    return prepared(data, output_dir, tokenizer=next(iter(starts), None))


def _may_be_text(data: str) -> bool:
    """Whether there may be something to prepare; a mistyped name is reported at once."""
    return os.path.exists(data) or glob.has_magic(data) or data == PYDOCS or data.startswith(HUB)


def _processes() -> int:
    """The number of processes of the run, as torchrun says it."""
    said = os.environ.get("WORLD_SIZE", "1")
    return int(said) if said.isdecimal() else 1


def in_vain(config: PretrainConfig, given: Collection[str], output_dir: Path) -> Iterator[str]:
    """Lines about the numbers on the command line that others overrule, on the first process.
    given: the fields that it names."""
    if os.environ.get("RANK", "0") != "0":
        return
    t = config.train
    if "train_batch_size" in given:
        rows = with_batch(config, processes=_processes()).train.train_batch_size
        if rows != t.train_batch_size:
            yield (
                f"--train-batch-size {t.train_batch_size} does nothing here: "
                "--per-device-train-batch-size and --gradient-accumulation-steps make a batch of "
                f"{rows} rows"
            )
    m = config.model
    if "init_scale" in given and m.row.scales_by_depth:
        yield (
            f"--init-scale {m.init_scale} does nothing here: initial values of {m.architecture} "
            "have the scale of depth"
        )
    if t.init_discriminator or t.init_generator:
        yield from _initial_values(config, given)
        from .starting import overruled  # imports torch

        with suppress(UserError):  # which the run reports
            for name, value, theirs, start in overruled(config, given, output_dir):
                yield f"{flag_of(name)} {value} does nothing here: {start} has {theirs}"


def _initial_values(config: PretrainConfig, given: Collection[str]) -> Iterator[str]:
    """Lines about initial values for weights that all come from folders."""
    m, o, t = config.model, config.objective, config.train
    if t.generator_steps:
        return  # whose generator begins with them
    learned = config.corruption.row.learned
    folders = [
        f"--{name.replace('_', '-')} {folder}"
        for name, folder in (
            ("init_discriminator", t.init_discriminator),
            ("init_generator", t.init_generator),
        )
        if folder
    ]
    all_given = len(folders) == 1 + learned

    def brought(*, shared: bool) -> bool:
        """Whether folders bring all of what each network has; one brings what they share."""
        return all_given or (shared and learned)

    branches = o.row.leaving(o.term_weights, o.options).values()
    whole = {
        "init": all_given and not branches,
        "init_scale": brought(shared=m.tie == "all") and all(one.same for one in branches),
        "init_words": brought(shared=m.tie != "none"),
    }
    what = {"init": "weights", "init_scale": "blocks", "init_words": "word vectors"}
    for name in (n for n in what if n in given and whole[n]):
        of_heads = name == "init"
        does = "is for heads that no folder holds: other" if of_heads else "does nothing here: all"
        theirs = " and ".join(folders)
        yield f"{flag_of(name)} {getattr(m, name)} {does} {what[name]} are those of {theirs}"
