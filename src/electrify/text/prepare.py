"""`electrify prepare`: documents x tokenizer -> shards. It runs in parallel and in bounded memory,
and gives the same bytes however often it is stopped and continued.

The main process reads, hashes, drops duplicates and hands out tasks of a few MB of text, in the
order of the input; workers (processes of this host or of a Ray cluster) tokenise them, and their
results are written into part files. A part is named by a hash of its documents and of the options,
so a later run reads the input again (cheap), finds the existing parts (the expensive work) and
makes only the others. The last step joins the parts into shards and writes the manifest.

    DATA/unfinished/
        state.json             the options and the inputs (with hashes) of the command: the folder
                               is ours; it goes after the manifest was written
        pydocs.jsonl           the embedded corpus, where it is one of the inputs: parsed once,
                               read twice
        parts/                 finished tasks
    DATA/tokenizer/            made first, as a whole
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import compress
from pathlib import Path
from shlex import quote
from typing import Any
from unicodedata import category, normalize

from ..errors import UserError, must_have, need
from ..files import claim, json_text, read_json, sha256, write, written
from ..progress import Progress, say
from . import corpus, pydocs
from .documents import Pair, Sample, Seen, digest, documents, fraction, is_held_out
from .encode import Task, read_part, start, unknown_in, write_part
from .options import PrepareConfig
from .report import COUNTED, beginnings, look, must_know
from .sources import Source, choose_sources, shown
from .streams import gathered
from .tokenizer import (
    load_tokenizer,
    save_existing,
    save_trained,
    special_ids,
    tokenizer_files,
    vocabulary_size,
)
from .vocabulary import JUDGED, SPECIALS, batches, train
from .workers import Processes, cluster, ordered

LOG = "prepare.log.json"
"""The seconds of each step, and how many parts were there already."""
TASK_CHARACTERS = 1 << 22
TASK_DOCUMENTS = 1 << 15
TOKENIZER_CONTENT = "tokenizer_content"
"""The hash of a tokenizer that was given: many folders are called `tokenizer`."""
ACCENTED = 0.01
"""The share of words with an accent above which accents are kept. In English it is some 0.1 %, in
German 5 %, in French and Polish more."""
NO_MATTER = ("inputs", "output_dir", "workers", "engine", "allow_unk", "preset")
"""Options that do not affect the bytes of the result, or that are not as they were given in another
place."""


def prepare(options: PrepareConfig) -> corpus.Manifest:
    """Writes the prepared corpus to options.output_dir and returns its manifest; a finished folder
    of the same command is verified and left as it is.

    Raises UserError for input, options or an output folder that cannot work. A KeyboardInterrupt
    passes through, and the same command continues later.
    """
    if options.engine == "ray":
        must_have("engine ray", "ray", "ray")
    folder = Path(options.output_dir)
    sources = choose_sources(options)
    texts = beginnings(sources, options) if options.trains_tokenizer else []
    options = keeping_accents(texts, options)
    state = {"options": bytes_deciding(options), "sources": [s.identity() for s in sources]}
    done, begun = folder / corpus.MANIFEST, folder / corpus.STATE
    if begun.is_file():
        must_be_same(folder, read_json(begun), state)
    if done.is_file():
        manifest = corpus.read_manifest(folder)
        must_be_same(folder, vars(manifest), state)
        corpus.verify(folder)
        shutil.rmtree(begun.parent, ignore_errors=True)  # of a command killed at its end
        say(f"{folder} is already prepared by the same command: verified, nothing to do")
        return manifest
    if advice := look(texts, options, {s.format for s in sources}):
        say(advice)
    with claim(folder, corpus.STATE):
        if begun.is_file():
            say(f"continuing in {folder}")
        else:
            with written(begun.parent) as part:
                (part / "parts").mkdir(parents=True)
                (part / begun.name).write_text(json_text(state, indent=1), encoding="utf-8")
        try:
            manifest = Preparation(options, sources, state).run()
        except UserError:
            # A mistake of the user was found before any text was tokenised, so there is nothing to
            # continue, and the next command may have other options.
            if not any(begun.parent.glob("parts/*.part")):
                for path in (folder / corpus.TOKENIZER, begun.parent):
                    shutil.rmtree(path, ignore_errors=True)
            raise
        shutil.rmtree(begun.parent)
        return manifest


def keeping_accents(texts: list[str], options: PrepareConfig) -> PrepareConfig:
    """The options, with accents kept where many words have one and the user did not say whether to
    remove them: in most languages but English they carry a meaning."""
    if not (options.trains_tokenizer and options.lowercase and options.strip_accents is None):
        return options
    words = [word for text in texts for word in text.split()]
    # Umlauts and vowel signs, too: whatever stripping accents changes.
    letters = set[str]().union(*words)
    marked = {c for c in letters if "Mn" in map(category, normalize("NFD", c))}
    share = sum(not marked.isdisjoint(word) for word in words) / max(len(words), 1)
    if share <= ACCENTED:
        return options
    why = f"because {share:.1%} of the words have one"
    say(f"accents are kept, {why}. --strip-accents removes them")
    return replace(options, strip_accents=False)


def bytes_deciding(options: PrepareConfig) -> dict[str, Any]:
    """The options that affect the bytes of the result, without absolute paths."""
    found = {k: v for k, v in asdict(options).items() if k not in NO_MATTER}
    found["strip_accents"] = options.accents_stripped
    # A kind of tokenizer that is trained is not the folder that happens to have its name.
    if not options.trains_tokenizer and Path(options.tokenizer).is_dir():
        found["tokenizer"] = Path(options.tokenizer).resolve().name
        content = hashlib.sha256()
        for path in tokenizer_files(Path(options.tokenizer)):
            content.update(f"{path.name} {sha256(path)}\n".encode())
        found[TOKENIZER_CONTENT] = content.hexdigest()
    return found


def must_be_same(folder: Path, had: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises UserError if a corpus was begun or made with another option or from another text."""
    fact, old, new = f"{folder} holds another corpus", had["options"], now["options"]
    advice = "choose another folder or remove it"
    for name in sorted(old.keys() | new.keys()):
        was, wanted = old.get(name), new.get(name)
        need(was == wanted, f"{fact}: its {name} is {was!r}, now {wanted!r}", advice)
    odd = next((row["name"] for row in now["sources"] if row not in had["sources"]), "them")
    same = had["sources"] == now["sources"]
    need(same, f"{fact}: other inputs, or other contents of {odd}", advice)


class Preparation:
    """The work of one command, in the order of its methods."""

    def __init__(
        self, options: PrepareConfig, sources: list[Source], state: dict[str, Any]
    ) -> None:
        self.options = options
        self.sources = sources
        self.folder = Path(options.output_dir)
        self.counts: Counter[str] = Counter()
        self.parts: list[Path] = []
        self.reused = 0
        self._state = state

    def run(self) -> corpus.Manifest:
        seconds: dict[str, float] = {}
        manifest: Any = None
        for step in (self.collect, self.tokenizer, self.encode, self.join):
            began = time.perf_counter()
            manifest = step()
            seconds[step.__name__] = time.perf_counter() - began
        seconds["total"] = sum(seconds.values())
        parts = {"parts": len(self.parts), "parts_reused": self.reused}
        log = {"seconds": seconds, **parts, "engine": self.options.engine}
        write(self.folder / LOG, json.dumps(log, indent=1) + "\n")
        return manifest

    def collect(self) -> None:
        """Writes the embedded corpus into a file that is read in its place."""
        path = self.folder / corpus.UNFINISHED / "pydocs.jsonl"
        for source in self.sources:
            if source.format == "pydocs":
                if not path.is_file():
                    pydocs.write(path, key=self.options.text_column, workers=self.options.workers)
                source.format, source.path = "table", path

    # -------------------------------------------------------------- reading

    def reading(self, title: str) -> Progress:
        total = sum(s.size for s in self.sources) / 1e6
        return Progress(total or None, title=title, unit="MB")

    def documents(self, counts: Counter[str], bar: Progress) -> Iterator[Pair]:
        """The documents of the sources, duplicates included, up to max_documents. (Those that will
        be dropped do not count.)"""
        seen: set[bytes] = set()
        left = self.options.max_documents
        how: dict[str, Any] = {"counts": counts, "advance": lambda n: bar.advance(n / 1e6)}
        for source in self.sources:
            for text in documents(source, self.options, **how):
                number = digest(text.encode())
                yield number, text
                if left is not None:  # what comes behind the last of them is not read
                    left -= number not in seen
                    if not left:
                        return
                    if self.options.deduplicate:
                        seen.add(number)

    def must_have_text(self, found: bool) -> None:
        """Raises UserError if nothing was found outside of the validation split."""
        fact = f"the corpus is empty: no text in {shown(self.sources)} is for training"
        need(found, fact, "give more text, or a lower valid_fraction with another output_dir")

    # -------------------------------------------------------------- the tokenizer

    def tokenizer(self) -> None:
        """Puts the tokenizer into its folder, unless an earlier run of the same command did. Raises
        UserError if there is nothing to train on."""
        options, folder = self.options, self.folder / corpus.TOKENIZER
        if folder.is_dir():
            return
        if not options.trains_tokenizer:
            save_existing(options.tokenizer, folder)
            return
        texts = self.sample()
        size, kind = sum(map(len, texts)) / 1e6, options.tokenizer
        say(f"training a {kind} vocabulary on {size:,.1f} MB of text in {len(texts)} documents")
        tokenizer = train(texts, options)
        # Before the rest is tokenised; they are in random order.
        some = next(batches(text[:JUDGED] for text in texts))
        unknown = unknown_in(tokenizer.to_str(), some, unk=SPECIALS.index("[UNK]"))
        must_know(unknown, options, where="a sample of the text")
        if (found := tokenizer.get_vocab_size()) < options.vocab_size:
            say(f"the vocabulary has {found} pieces, not {options.vocab_size}: there are no more")
        save_trained(tokenizer, folder, options)

    def sample(self) -> list[str]:
        """At most tokenizer_sample_mb of text outside the validation split: the documents with the
        smallest numbers, in their order. A document that the corpus would drop because it occurred
        before counts as one."""
        kept = Sample(self.options.tokenizer_sample_mb * 1_000_000)
        with self.reading("reading for the vocabulary") as bar:
            # The counts for the report come from the encoding pass.
            for number, text in self.documents(Counter(), bar):
                if not is_held_out(number, self.options.valid_fraction):
                    kept.add(fraction(number, stream=1), text)
        texts = kept.texts()
        self.must_have_text(bool(texts))
        return texts

    # -------------------------------------------------------------- parts and shards

    def encode(self) -> None:
        """Makes the parts that do not exist."""
        file = self.folder / corpus.TOKENIZER / "tokenizer.json"
        tokenizer = load_tokenizer(file.parent)
        self._special, self._vocab_size = special_ids(tokenizer), vocabulary_size(tokenizer)
        dtype = corpus.token_dtype(self._vocab_size).str
        # What affects the bytes of a part, its counts included, besides its documents.
        salt = json.dumps([sha256(file), dtype, self.options.valid_fraction]).encode()
        given = file.read_text(encoding="utf-8"), self._special.unk, dtype
        pool_of = cluster if self.options.engine == "ray" else Processes
        with (
            self.reading("tokenising") as bar,
            pool_of(self.options.workers, start, *given) as pool,
        ):
            for path, part in ordered(pool, self._tasks(bar, salt)):
                write_part(path, part)

    def _tasks(self, bar: Progress, salt: bytes) -> Iterator[Task]:
        """The tasks whose part does not exist yet."""
        pairs = self.documents(self.counts, bar)
        seen = Seen()
        for block in gathered(pairs, lambda pair: len(pair[1]), TASK_CHARACTERS, TASK_DOCUMENTS):
            if self.options.deduplicate:
                new = seen.add([h for h, _ in block])
                self.counts["duplicates"] += len(block) - sum(new)
                block = [*compress(block, new)]
            if not block:
                continue
            name = hashlib.sha256(salt + b"".join(h for h, _ in block)).hexdigest()
            self.parts.append(self.folder / corpus.UNFINISHED / "parts" / f"{name}.part")
            if read_part(self.parts[-1]) is None:
                valid = [is_held_out(h, self.options.valid_fraction) for h, _ in block]
                yield self.parts[-1], [text for _, text in block], valid
            else:
                self.reused += 1

    def join(self) -> corpus.Manifest:
        """Writes the parts into shards, then the counts of ids, and the manifest last: it is what
        makes a folder a prepared corpus."""
        shard_mb = self.options.shard_mb
        files = corpus.write_shards(self.folder, self._parts(), self._vocab_size, shard_mb=shard_mb)
        self.must_have_text(bool(files["splits"]["train"]))
        must_know(self.counts, self.options, where=shown(self.sources))
        lost, of = self.counts["without_tokens"], self.counts["documents"]
        fact = f"{lost:,} of {of:,} documents in {shown(self.sources)} give no token"
        need(2 * lost <= of, fact, "choose a tokenizer that knows their characters")
        tokenizer = {p.name: sha256(p) for p in sorted((self.folder / corpus.TOKENIZER).iterdir())}
        manifest = corpus.Manifest(
            **files,
            **self._state,
            special_ids=self._special,
            tokenizer_sha256=tokenizer["tokenizer.json"],
            tokenizer_files=tokenizer,
            counts={name: self.counts[name] for name in COUNTED},
        )
        corpus.write_manifest(self.folder, manifest)
        return manifest

    def _parts(self) -> Iterator[dict[corpus.Split, corpus.Documents]]:
        with Progress(len(self.parts), title="joining", unit="parts") as bar:
            for path in self.parts:
                found = read_part(path)
                assert found is not None, f"{path} was changed"
                self.counts.update(found[0])
                yield found[1]
                bar.advance()


# ------------------------------------------------------------------ DATA that may be text


def data_folder_of(run: Path) -> Path:
    """RUN-data, beside the run that a text is prepared for."""
    run = run if run.name not in ("", "..") else run.resolve()
    return run.with_name(run.name + "-data")


def prepared(data: str, run: Path, *, tokenizer: str | None = None) -> Path:
    """The prepared folder: `data` itself, or RUN-data made from the corpus `data` with the defaults
    of `electrify prepare`. tokenizer: the one to use instead of training one: a folder, or a Hub
    id. Raises UserError."""
    data = os.path.expanduser(data)
    if corpus.is_prepared(data):
        return Path(data)
    unfinished, fact = corpus.is_unfinished(Path(data)), f"{data} is a corpus never finished"
    need(not unfinished, fact, "repeat its `electrify prepare`, which continues")
    advice = f"run `electrify prepare {quote(data)} --output-dir DATA` before several processes do"
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    need(alone, f"{data} is not a prepared corpus", f"{advice} train on it")
    folder = data_folder_of(run)
    begun = run.exists() and corpus.is_prepared(str(folder))
    if tokenizer and begun and not os.path.isdir(tokenizer):
        return folder  # a run that is continued needs neither that folder nor the Hub any more
    words = f" with the tokenizer of {tokenizer}" if tokenizer else ""
    say(f"{data:.255} is not a prepared corpus: preparing it into {folder}{words}")
    how: dict[str, Any] = {"tokenizer": tokenizer} if tokenizer else {}
    prepare(PrepareConfig(inputs=(data,), output_dir=str(folder), **how))
    return folder
