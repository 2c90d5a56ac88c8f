"""Names that people try: the near one is suggested, and those of other libraries are known."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

SHOWN = 12


def table(text: str) -> dict[str, tuple[str, ...]]:
    """Names -> what they may mean, the likeliest first."""
    lines = (line.split(" -> ") for line in text.strip().splitlines())
    return {name: tuple(meant.split()) for names, meant in lines for name in names.split()}


SAME = table("""
lr -> learning_rate
batch_size -> train_batch_size per_device_train_batch_size
epochs num_epochs -> num_train_epochs
normalize -> normalize_embeddings
text_columns -> text_column
resume_from_checkpoint -> resume
init_from base_model pretrained_model -> init_discriminator
model model_name model_name_or_path model_path model_id -> model models init_discriminator
texts examples -> examples train_file data_dir
data -> texts examples train_file data_dir
data_dir -> examples
text sentence sentences -> texts examples
a text1 sentence1 -> first
b text2 sentence2 -> second
candidates hypotheses -> lists
corpus dataset -> data texts train_file examples data_dir
max_length model_max_length -> max_seq_length
steps num_steps total_steps train_steps num_train_steps -> max_steps step
validation_fraction validation_split valid_fraction test_size -> valid_fraction validation_fraction
eval eval_data eval_file eval_dataset -> validation_file
test_file -> validation_file
test test_data test_dataset -> validation_file test_file
train train_data train_dataset -> train_file
output_dir save_dir path -> folder
encoder encoder_path encoder_dir -> discriminator
final_loss train_loss training_loss -> loss
num_tokens n_tokens -> tokens
num_documents n_documents -> documents
to_dataframe to_df -> to_pandas
dim embedding_dim embedding_size width -> hidden_size
word -> token
score -> probability
per_step -> step
per_token -> token
total -> train
""")
"""Names that other libraries have for an option, a result or a figure. In Python they are taken for
the first of these that is there."""
MEANT = SAME | table("""
epochs num_epochs num_train_epochs -> num_train_epochs max_steps
max_steps -> budgets num_train_epochs
train_minutes flops budget -> budgets
steps num_steps train_steps -> max_steps budgets num_train_epochs
config -> recipe
text -> text_column
label -> label_column
check validate verify inspect -> doctor
train Trainer fit -> train_file pretrain finetune
tokenize tokenise build_corpus -> prepare
encode embeddings -> embed
load_model from_pretrained AutoModel -> load
list_recipes models -> recipes
upload push_to_hub -> push
model_dir model_path -> path folder
num_parameters n_parameters params -> parameters
results df dataframe -> to_pandas table
losses -> loss history
best hypotheses -> texts
predict_proba -> predict
""")
"""Names of options, functions and attributes that people try, and those that they may mean."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for a name close to a known one, or that people use for one. Otherwise
    the known names, or the most similar ones of a long list."""
    names = sorted(known)
    if meant := meant_by(name, names, MEANT):
        return f"; did you mean {meant!r}?"
    # Of long names a half in common says little: threshold is not threads.
    cutoff = 0.6 if len(name) < 6 else 0.76
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return f"; did you mean {close[0]!r}?"
    likest = difflib.get_close_matches(name, names, n=SHOWN, cutoff=0.0)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"; known: {', '.join(sorted(likest))}{more}"


def meant_by(name: str, known: Collection[str], names: Mapping[str, Any] = SAME) -> str:
    """The known name that another one stands for; empty if there is none."""
    return next((one for one in names.get(name, ()) if one in known), "")


class Named:
    """Base of results: other names are taken for their attributes, or one of these is suggested."""

    def __getattr__(self, name: str) -> Any:
        if name in dir(type(self)):  # a property has failed: its own error says why
            return object.__getattribute__(self, name)
        known = [one for one in {*dir(type(self)), *vars(self)} if not one.startswith("_")]
        if own := meant_by(name, known):
            return getattr(self, own)
        raise AttributeError(
            f"{type(self).__name__} has no attribute {name!r}{nearest(name, known)}"
        )


class Figures(dict[str, Any]):
    """Results by name, also as attributes, with the same suggestions."""

    def __missing__(self, name: str) -> Any:
        if own := meant_by(name, self):
            return self[own]
        raise KeyError(f"{name}{nearest(name, self)}")

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as e:
            raise AttributeError(e.args[0]) from None
