"""`prepare` end to end: what is in the folder, that it is the same however it came about, options
that cannot be meant, and refusals."""

import gzip
import hashlib
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast
from vocabularies import some_texts

from electrify.errors import UserError
from electrify.text import prepare
from electrify.text.corpus import (
    UNFINISHED,
    Corpus,
    Manifest,
    ShardWriter,
    read_manifest,
    verify,
)
from electrify.text.documents import digest, fraction
from electrify.text.options import PrepareConfig
from electrify.text.report import report
from electrify.text.sources import choose_sources
from electrify.text.tokenizer import load_tokenizer
from small import run as command

SMALL: dict[str, Any] = {"vocab_size": 400, "workers": 1, "valid_fraction": 0.1}


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "TASK_CHARACTERS", 20_000)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    texts = some_texts(400)
    (folder / "a.txt").write_text("\n\n".join(texts[:250]), encoding="utf-8")
    with gzip.open(folder / "b.jsonl.gz", "wt", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in [*texts[250:], *texts[:50], ""])
    return folder


def run(corpus: Path | str, output: Path, **changes: Any) -> Manifest:
    return prepare.prepare(
        PrepareConfig(inputs=(str(corpus),), output_dir=str(output), **(SMALL | changes))
    )


def contents(folder: Path) -> dict[str, str]:
    """Hashes of all files but the log, which holds seconds."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != prepare.LOG)
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_folder_holds_what_was_read(corpus: Path, tmp_path: Path) -> None:
    manifest = run(corpus, tmp_path / "data")
    verify(tmp_path / "data")
    texts = some_texts(400)
    tokenizer = load_tokenizer(tmp_path / "data" / "tokenizer")
    for split in ("train", "valid"):
        data = Corpus(tmp_path / "data", split)
        expected = [
            t for t in texts if (fraction(digest(t.encode()), stream=0) < 0.1) == (split == "valid")
        ]
        found = [
            ids[a:b].tolist()
            for ids, at in zip(data.tokens, data.documents, strict=True)
            for a, b in pairwise(at)
        ]
        assert found == [tokenizer(t, add_special_tokens=False)["input_ids"] for t in expected]
        if split == "train":
            assert np.array_equal(
                data.unigram(), np.bincount(data.tokens[0], minlength=manifest.vocab_size)
            )
    counts = manifest.counts
    assert (counts["documents"], counts["duplicates"], counts["blank"]) == (400, 50, 1)
    assert counts["words"] == sum(len(t.split()) for t in texts)
    assert counts["bytes"] == sum(len(t.encode()) for t in texts)
    assert [s["name"] for s in manifest.sources] == ["corpus/a.txt", "corpus/b.jsonl.gz"]
    assert not (tmp_path / "data" / UNFINISHED).exists()
    assert str(tmp_path) not in (tmp_path / "data" / "manifest.json").read_text(encoding="utf-8")
    assert re.search(r"duplicates dropped +50", report(manifest))


def test_workers_and_a_second_run_change_no_byte(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "one")
    run(corpus, tmp_path / "three", workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


def test_shards_have_a_limit_and_whole_documents(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "train", dtype=np.dtype("<u2"), shard_bytes=20)
    lengths = [3, 4, 3, 0, 12, 1, 9, 2]  # ten tokens fit; twelve get a shard of their own
    for piece in (lengths[:3], lengths[3:]):
        writer.add(np.array(piece), np.concatenate([np.full(n, n) for n in piece]))
    shards = writer.close()
    assert [(s.documents, s.tokens) for s in shards] == [(4, 10), (1, 12), (2, 10), (1, 2)]
    assert np.load(tmp_path / shards[0].documents_file).tolist() == [0, 3, 7, 10, 10]
    assert np.fromfile(tmp_path / shards[2].tokens_file, "<u2").tolist() == [1] + [9] * 9


def test_finished_folder_is_not_made_again(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    manifest, before = run(corpus, out), contents(out)
    assert run(corpus, out, workers=2) == manifest
    assert contents(out) == before
    with pytest.raises(UserError, match="holds another corpus: its vocab_size is 400, now 300"):
        run(corpus, out, vocab_size=300)
    with (corpus / "a.txt").open("a") as f:
        f.write("\n\nmore")
    with pytest.raises(UserError, match=r"other contents of corpus/a\.txt"):
        run(corpus, out)


def test_a_corpus_in_the_home_folder(small_data: Path, tmp_path: Path, monkeypatch) -> None:
    """`pretrain("~/data")` in Python."""
    monkeypatch.setenv("HOME", str(small_data.parent))
    assert prepare.prepared(f"~/{small_data.name}", tmp_path / "run") == small_data


def test_changed_input_and_options_of_an_unfinished_run(corpus, tmp_path, monkeypatch):
    def stop(*args: Any, **kwargs: Any) -> Manifest:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare.Preparation, "join", stop)
        with pytest.raises(KeyboardInterrupt):
            run(corpus, tmp_path / "data")
    parts = sorted((tmp_path / "data" / UNFINISHED).glob("parts/*.part"))
    with pytest.raises(UserError, match="holds another corpus: its lowercase is True, now False"):
        run(corpus, tmp_path / "data", lowercase=False)
    parts[0].write_bytes(parts[0].read_bytes()[:-1])  # what the disk lost is made again
    run(corpus, tmp_path / "data")
    log = json.loads((tmp_path / "data" / prepare.LOG).read_text())
    assert log["parts_reused"] == len(parts) - 1
    run(corpus, tmp_path / "unbroken")
    assert contents(tmp_path / "data") == contents(tmp_path / "unbroken")


def test_a_preset_on_the_command_line(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("".join(f"O=S(Br)C{'O' * n}\n" for n in range(200)))
    out = tmp_path / "out"
    words = ["prepare", str(source), "--output-dir", str(out), "--preset", "smiles"]
    assert command(*words, "--vocab-size", "99", "--workers", "1") == 0
    manifest = read_manifest(out)
    assert manifest.options["lowercase"] is False
    assert manifest.options["vocab_size"] == 99
    assert manifest.counts["documents"] == 200
    assert manifest.counts["unk_tokens"] == 0


def test_a_tokenizer_that_knows_no_character_of_the_text(tmp_path: Path) -> None:
    """Without [UNK] it drops them, and nothing would be left to train on."""
    pieces = ["a", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    bare = Tokenizer(BPE({piece: k for k, piece in enumerate(pieces)}, []))
    bare.add_special_tokens(pieces[1:])
    ends = [("[CLS]", 1), ("[SEP]", 2)]
    frame = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
    bare.post_processor = TemplateProcessing(**frame, special_tokens=ends)
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=bare, mask_token="[MASK]", **names)
    fast.save_pretrained(tmp_path / "given")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join([*(f"xyz {k}" for k in range(20)), "a a"]))
    with pytest.raises(UserError, match=r"20 of 21 documents .* give no token"):
        run(texts, tmp_path / "out", tokenizer=str(tmp_path / "given"), valid_fraction=0.0)


def test_documents_that_come_again_are_not_one_more(tmp_path: Path) -> None:
    """With --max-documents, unless duplicates are kept."""
    lines = ["the same line"] * 20 + [f"word{k}" for k in range(20)]
    (tmp_path / "a.txt").write_text("\n".join(lines))

    def taken(**changes: Any) -> list[str]:
        given = {"inputs": (str(tmp_path / "a.txt"),), "output_dir": "unused"}
        options = PrepareConfig(**given, document_boundary="line", **changes)
        work = prepare.Preparation(options, choose_sources(options), {})
        with work.reading("reading") as bar:
            return [text for _, text in work.documents(Counter(), bar)]

    assert taken(max_documents=12) == lines[:31]
    assert taken(max_documents=12, deduplicate=False) == lines[:12]
    assert taken() == lines
