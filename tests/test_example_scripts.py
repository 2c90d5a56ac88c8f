"""The examples run on a tiny encoder; those whose library is not installed are skipped."""

import sys
from pathlib import Path

import pytest

import electrify

EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # those of other libraries
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("encoder")
    run = electrify.pretrain(
        str(EXAMPLES.parent / "README.md"),
        output_dir=folder / "run",
        recipe="electra-tiny",
        max_steps=3,
        train_batch_size=16,
    )
    return str(run.discriminator)


@pytest.fixture(autouse=True)
def imported_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def example(name: str, needs: str):
    pytest.importorskip(needs)
    sys.modules.pop(name, None)
    return __import__(name).main


def test_trainer(encoder: str):
    losses = example("trainer", "accelerate")(encoder)
    assert losses[-1] < losses[0]


def test_lora(encoder: str):
    losses = example("peft_lora", "peft")(encoder)
    assert losses[-1] < losses[0]


def test_sentence_pairs(encoder: str):
    """Texts of a pair are closer than others."""
    trained = example("sentence_pairs", "sentence_transformers")(encoder)
    from reviews import BAD, GOOD

    same = trained.similarity(trained.encode(GOOD[:2]), trained.encode(GOOD[2:])).diagonal()
    other = trained.similarity(trained.encode(GOOD[:2]), trained.encode(BAD[:2])).diagonal()
    assert same.mean() > other.mean()


def test_few_shot(encoder: str):
    assert len(set(example("few_shot", "setfit")(encoder))) == 2


def test_spacy(encoder: str):
    main = example("spacy_detect", "spacy")
    assert main(encoder, "a wonderful film", 0.0) == ["a", "wonderful", "film"]
