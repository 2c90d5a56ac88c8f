"""The initial values of a run as an encoder: random weights, and word vectors computed from the
corpus where the recipe says `init_words: cooccurrence`.

Next to a pre-trained encoder and random weights, this row shows how much of a score the word
vectors alone give.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..build import dropout_of
from ..errors import UserError
from ..exporting.folder import read_run, special_ids, write_model
from ..exporting.places import INITIAL
from ..tables import DISCRIMINATOR
from ..text.corpus import TOKENIZER, Corpus
from ..text.tokenizer import copy_tokenizer
from ..train import CONFIG
from ..train.start import starting_point, starts_of, with_shapes


@contextmanager
def initial_model(model: str, corpus: str | None) -> Iterator[str]:
    """`initial:RUN/discriminator` as a folder that lasts as long as the block. corpus: that of the
    run, for the word vectors. Raises UserError if it is another one."""
    folder = Path(model.removeprefix(INITIAL))
    config, facts = read_run(folder.parent)
    data = Corpus(Path(corpus or ""), "train")
    if data.manifest.fingerprint != facts["data"]:
        raise UserError(f"--corpus {corpus} is not the corpus of the run {folder.parent}")
    starts = starts_of(config)
    config, generator = with_shapes(config, facts["shapes"], vocab_size=data.manifest.vocab_size)
    built = starting_point(config, generator, data, starts, fresh=True, main=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        dropout = dropout_of(config.model, DISCRIMINATOR)
        write_model(place, built.discriminator, special=special_ids(facts), **dropout)
        copy_tokenizer(data.folder / TOKENIZER, place)
        yield str(place)


def has_initial_words(model: str) -> bool:
    """Whether a model is the export of a run that began with word vectors of its corpus."""
    run = Path(model).parent
    return (run / CONFIG).is_file() and read_run(run)[0].model.init_words == "cooccurrence"
