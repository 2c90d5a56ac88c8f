"""A tokenizer's files are put in place one by one: nobody else's is touched, and a killed writer's
leftovers go."""

from __future__ import annotations

from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.oldfiles.tokenizer_folder import publish_tokenizer
from electrify.oldfiles.whole import temporary
from small import listing


def test_files_of_the_list_only(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    for name in ("tokenizer.json", "vocab.txt", "chat_template.jinja"):
        (source / name).write_text(name)
    (target / "mine.txt").write_text("mine")
    temporary(target).write_text("of a writer that was killed")
    hashes = publish_tokenizer(source, target)
    assert set(hashes) == {"tokenizer.json", "vocab.txt"}
    assert set(listing(target)) == {"mine.txt", "tokenizer.json", "vocab.txt"}
    (source / "vocab.txt").write_text("another")
    with pytest.raises(UserError, match=r"vocab\.txt is neither of this tokenizer"):
        publish_tokenizer(source, target)
    publish_tokenizer(source, target, ours=hashes.values())
    assert (target / "vocab.txt").read_text() == "another"


def test_links_are_not_followed(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    (source / "vocab.txt").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"vocab\.txt is a link that leads out of its folder"):
        publish_tokenizer(source, target)
    (source / "vocab.txt").unlink()
    (source / "vocab.txt").write_text("words")
    target.symlink_to(tmp_path)
    with pytest.raises(UserError, match="b is neither of this tokenizer"):
        publish_tokenizer(source, target)
