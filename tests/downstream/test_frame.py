from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    XLNetConfig,
    XLNetLMHeadModel,
)

from electrify.downstream.encoder import learning_rates, load
from electrify.downstream.examples import Example
from electrify.downstream.heads import Finetuned, TextHead, grade_class
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneSettings
from electrify.downstream.problems.texts import Texts
from electrify.downstream.read.own import read_own
from electrify.downstream.special_frames import frames_of
from electrify.downstream.tasks import TaskData

CPU = torch.device("cpu")
HEADS = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}


def byte_level(folder: Path, *, single: str, pair: str, **names: str) -> int:
    """A byte-level tokenizer without merges: RoBERTa's, XLNet's and GPT-2's frames around it."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<cls>", "<sep>"]
    vocabulary = {
        word: k for k, word in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokens = [(word, vocabulary[word]) for word in special]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=tokens
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", **names).save_pretrained(
        folder
    )
    return len(vocabulary)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory, zoo: Path) -> Path:
    """Encoders of other shapes than BERT's, with random weights; three have BERT's tokenizer."""
    root = tmp_path_factory.mktemp("others")
    sizes = dict.fromkeys(
        ("albert", "deberta", "modernbert"), len(load(str(zoo / "bert"), device=CPU).tokenizer)
    )
    for name in sizes:
        shutil.copytree(
            zoo / "bert", root / name, ignore=shutil.ignore_patterns("*.safetensors", "config.json")
        )
    last = {
        "single": "$A <sep> <cls>:2",
        "pair": "$A <sep> $B:1 <sep>:1 <cls>:2",
        "sep_token": "<sep>",
        "cls_token": "<cls>",
        "unk_token": "<unk>",
    }
    sizes["xlnet"] = byte_level(root / "xlnet", **last)
    sizes["gpt2"] = byte_level(root / "gpt2", single="$A", pair="$A $B", unk_token="<unk>")
    sizes["opt"] = byte_level(
        root / "opt", single="<s> $A", pair="<s> $A <s> $B", unk_token="<unk>", cls_token="<s>"
    )
    opt = {
        "word_embed_proj_dim": 16,
        "ffn_dim": 32,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "pad_token_id": 1,
    }
    made = {
        "opt": (
            OPTForCausalLM,
            OPTConfig(vocab_size=sizes["opt"], max_position_embeddings=64, **opt),
        ),
        "albert": (
            AlbertForMaskedLM,
            AlbertConfig(vocab_size=sizes["albert"], embedding_size=8, **HEADS),
        ),
        "deberta": (
            DebertaV2ForMaskedLM,
            DebertaV2Config(
                vocab_size=sizes["deberta"],
                relative_attention=True,
                pos_att_type=["p2c", "c2p"],
                position_biased_input=False,
                **HEADS,
            ),
        ),
        "modernbert": (
            ModernBertForMaskedLM,
            ModernBertConfig(
                vocab_size=sizes["modernbert"],
                pad_token_id=0,
                cls_token_id=2,
                sep_token_id=3,
                **HEADS,
            ),
        ),
        "xlnet": (
            XLNetLMHeadModel,
            XLNetConfig(vocab_size=sizes["xlnet"], d_model=16, n_layer=2, n_head=2, d_inner=32),
        ),
        "gpt2": (
            GPT2LMHeadModel,
            GPT2Config(vocab_size=sizes["gpt2"], n_embd=16, n_layer=2, n_head=2, n_positions=64),
        ),
    }
    for name, (model, config) in made.items():
        torch.manual_seed(1)
        model(config).save_pretrained(root / name)
    return root


NAMES = ("albert", "deberta", "modernbert", "xlnet", "gpt2", "opt")


@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_learns_a_class(others: Path, reviews: tuple[str, str], name: str):
    task = read_own(*reviews)
    settings = FinetuneSettings(
        learning_rate=1e-2,
        layerwise_lr_decay=1.0,
        num_train_epochs=12,
        per_device_train_batch_size=8,
        bf16="false",
        dropout=0.0,
    )
    found = finetune_one(str(others / name), task, seed=0, settings=settings)
    assert found.scores["accuracy"] > 0.9, found.curve


@pytest.mark.parametrize("name", NAMES)
def test_neither_padding_nor_the_batch_changes_what_a_text_is_worth(others: Path, name: str):
    loaded = load(str(others / name), device=CPU)
    assert (loaded.last, loaded.segments) == (
        name in ("xlnet", "gpt2", "opt"),
        name in ("albert", "xlnet"),
    )
    task = read_like(["good", "bad film and the plot was very bad"])
    problem = Texts(task, loaded, max_seq_length=32, device=CPU)
    net = problem.model(dropout=0.0, std=0.5).eval()
    rows = problem.held_out(task.validation).data
    with torch.no_grad():
        together = net.answers(rows.batch(torch.tensor([0, 1])))["logits"]
        alone = torch.cat([net.answers(rows.batch(torch.tensor([k])))["logits"] for k in (0, 1)])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together[0], together[1], atol=1e-3)


def read_like(texts: list[str]) -> TaskData:
    examples = tuple(Example(text, None, k % 2) for k, text in enumerate(texts))
    return TaskData("t", "classification", ("a", "b"), ("accuracy",), 1, examples, examples)


@pytest.mark.parametrize(
    ("name", "depth"),
    [("albert", 1), ("deberta", 2), ("modernbert", 2), ("xlnet", 2), ("gpt2", 2), ("opt", 2)],
)
def test_the_rate_of_every_parameter_is_a_power_of_the_decay(others: Path, name: str, depth: int):
    """head 0, top layer 1, ..., embeddings one below the lowest layer; every parameter has one
    rate, and all of these occur."""
    encoder = load(str(others / name), device=CPU).encoder
    net = Finetuned(encoder, TextHead(16, 2, dropout=0.0, std=0.02, last=False, grade=grade_class))
    named = dict(net.named_parameters())
    rates = learning_rates(named, peak=1.0, decay=0.5)
    assert rates.keys() == named.keys()
    assert set(rates.values()) == {0.5**k for k in range(depth + 2)}
    table = encoder.get_input_embeddings().weight
    assert next(rates[key] for key, parameter in named.items() if parameter is table) == 0.5 ** (
        depth + 1
    )


def test_frames_by_hand(others: Path, zoo: Path):
    bert, pair = frames_of(load(str(zoo / "bert"), device=CPU).tokenizer)
    assert bert.around([7, 8]) == ([2, 7, 8, 3], [0, 0, 0, 0], [1])
    assert pair.around([7], [8, 9]) == ([2, 7, 3, 8, 9, 3], [0, 0, 0, 1, 1, 1], [1, 3])
    xlnet, pair = frames_of(load(str(others / "xlnet"), device=CPU).tokenizer)
    assert xlnet.around([7, 8]) == ([7, 8, 5, 4], [0, 0, 0, 2], [0])
    assert pair.around([7], [8, 9]) == ([7, 5, 8, 9, 5, 4], [0, 0, 1, 1, 1, 2], [0, 2])
    gpt2, pair = frames_of(load(str(others / "gpt2"), device=CPU).tokenizer)
    assert (gpt2.room, pair.around([7], [8, 9])[0]) == (0, [7, 8, 9])


@pytest.mark.parametrize("name", NAMES)
def test_a_frame_puts_around_a_text_what_its_tokenizer_does(others: Path, name: str):
    tokenizer = load(str(others / name), device=CPU).tokenizer
    single, pair = frames_of(tokenizer)
    parts = [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("good film", "the plot")
    ]
    whole = tokenizer("good film", return_token_type_ids=True)
    assert single.around(parts[0])[:2] == (whole["input_ids"], whole["token_type_ids"])
    whole = tokenizer("good film", "the plot", return_token_type_ids=True)
    assert pair.around(*parts)[:2] == (whole["input_ids"], whole["token_type_ids"])
