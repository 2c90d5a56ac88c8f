"""A model that is served: what it can do, and its answers as plain values of JSON. And the queue of
requests.

Shape suffixes: V vocabulary.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from ..api import load
from ..errors import UserError, need
from ..finetuning.tasks import saved
from ..process import thread_count
from ..scoring.pll import load_scorer
from ..text.tokenizer import tokenised

KINDS = ("detect", "score", "predict", "embed")
ALTERNATIVES = "alternatives"
BESIDE = ("generator", "corrector")
"""Folders of a run with a masked language model, next to the discriminator."""
MOST_ALTERNATIVES = 5
MOST_READ = 512
"""Tokens around a word from which its alternatives are computed."""
MARKS = ("▁", "Ġ")
"""What the first piece of a word begins with, for tokenizers that mark it."""
CONTINUING = "##"
"""What the other pieces of a word begin with, in WordPiece."""


class Served:
    """A model that stays loaded. threads: as of `electrify serve`. Raises UserError if it can do
    nothing."""

    def __init__(self, name: str, threads: str = "auto") -> None:
        self.name = name
        self.encoder = load(name)
        # auto would measure during a request, and another number load the model anew.
        number = thread_count(threads) or torch.get_num_threads()
        self._how = {"detect": {"threads": str(number)}}
        self.kinds: list[str] = []
        """What it can do."""
        self.alternatives: Alternatives | None = None
        """The masked language model next to it, or the model itself if it is one."""
        for kind in KINDS:  # each loads what it needs, without a text
            try:
                getattr(self.encoder, kind)([], **self._how.get(kind, {}))
                self.kinds.append(kind)
            except UserError:
                if kind == KINDS[-1] and not self.kinds:
                    raise
        self.tags = "predict" in self.kinds and saved(self.encoder.model).kind == "tagging"
        """Whether it predicts tags, and takes lists of words."""
        folder = Path(self.encoder.model)
        beside = [place for name in BESIDE if (place := folder.parent / name).is_dir()]
        for place in beside if "detect" in self.kinds else [folder]:
            try:
                self.alternatives = Alternatives(str(place))
                self.kinds.append(ALTERNATIVES)
                break
            except UserError:
                continue  # another head, such as that of energies or of a task

    def answers(self, kind: str, items: list[Any]) -> list[Any]:
        """An answer for each item: a text, for predict (text, pair or None), for alternatives
        (text, start, end). Raises UserError."""
        match kind:
            case "detect":
                found = self.encoder.detect(items, **self._how["detect"])
                return [one.plain() for one in found]
            case "score":
                return self.encoder.score(items)
            case "embed":
                return self.encoder.embed(items).tolist()
            case "predict":
                texts, pairs = map(list, zip(*items, strict=True))
                fit = all(isinstance(text, list) == self.tags for text in texts)
                kinds = "lists of words" if self.tags else "plain texts"
                need(fit, f"{self.name} reads {kinds}")
                found = self.encoder.predict(texts, pairs=None if None in pairs else pairs)
                found = [replace(p, text=None) for p in found]  # the client has it
                return [{k: v for k, v in asdict(p).items() if v is not None} for p in found]
        assert self.alternatives is not None  # the server asks a model for what it can do
        return [self.alternatives(*item) for item in items]


class Alternatives:
    """A masked language model that names words in the place of another. Raises UserError if the
    folder holds none."""

    def __init__(self, model: str) -> None:
        scorer = load_scorer(model)
        need(scorer.kind == "mlm", f"{model} has no language-model head")
        self.network, self.tokenizer = scorer.model, scorer.tokenizer
        self.longest = min(scorer.positions, MOST_READ)

    @torch.inference_mode()
    def __call__(self, text: str, start: int, end: int) -> list[dict[str, Any]]:
        """The most probable words in the place of text[start:end], of those that are one entry of
        the vocabulary. Raises UserError if there is no word."""
        found = tokenised(self.tokenizer, text)
        ids, offsets = found["input_ids"], found["offset_mapping"]
        inside = [k for k, (a, b) in enumerate(offsets) if a < end and b > start]
        need(bool(inside), f"there is no word between {start} and {end}")
        before, after = ids[: inside[0]], ids[inside[-1] + 1 :]
        room = self.longest - 3
        right = min(len(after), max(room // 2, room - len(before)))
        before = before[max(0, len(before) + right - room) :]
        t = self.tokenizer
        row = [t.cls_token_id, *before, t.mask_token_id, *after[:right], t.sep_token_id]
        logits_V = self.network(input_ids=torch.tensor([row])).logits[0, len(before) + 1].float()
        p_V, order_V = logits_V.softmax(-1).sort(descending=True)
        marked = self._name(ids[inside[0]]).startswith(MARKS)
        words = (
            {"word": word, "probability": p}
            for token, p in zip(order_V.tolist(), p_V.tolist(), strict=True)
            if token not in t.all_special_ids
            and not self._name(token).startswith(CONTINUING)
            and self._name(token).startswith(MARKS) == marked
            and (word := t.decode([token]).strip())
        )
        return list(islice(words, MOST_ALTERNATIVES))

    def _name(self, token: int) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(token))


# ------------------------------------------------------------------ the queue
#
# One thread computes for all requests. Waiting requests of the same kind and model are joined.


@dataclass(frozen=True, eq=False)
class Job:
    """What a request asks for. Jobs with the same key may be computed together."""

    key: Hashable
    items: list[Any]
    characters: int
    answer: Future[list[Any]] = field(default_factory=Future)


@dataclass
class Batches:
    """A queue and the thread that computes it, as soon as that is started."""

    work: Callable[[Any, list[Any]], list[Any]]
    """From a key and items to an answer for each item, in the thread."""
    max_items: int
    """Items that are computed together, unless a single job has more."""
    max_characters: int
    """Characters that are computed together, likewise."""
    waiting: deque[Job] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, name="electrify-models", daemon=True)

    def submit(self, job: Job) -> Future[list[Any]]:
        with self._changed:
            self.waiting.append(job)
            self._changed.notify()
        return job.answer

    def _run(self) -> None:
        while True:
            # A request that was given up is not computed.
            jobs = [job for job in self._take() if job.answer.set_running_or_notify_cancel()]
            self._compute(jobs)

    def _take(self) -> list[Job]:
        """The first job and those that can be joined with it."""
        with self._changed:
            self._changed.wait_for(lambda: self.waiting)
            taken = [self.waiting.popleft()]
            items, characters = len(taken[0].items), taken[0].characters
            for job in [job for job in self.waiting if job.key == taken[0].key]:
                items += len(job.items)
                characters += job.characters
                if items > self.max_items or characters > self.max_characters:
                    break
                taken.append(job)
                self.waiting.remove(job)
            return taken

    def _compute(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        try:
            found = self.work(jobs[0].key, [item for job in jobs for item in job.items])
        # It belongs to a request, and the thread goes on. Rust's panics are no Exceptions.
        except BaseException as e:  # noqa: BLE001
            if len(jobs) == 1:
                jobs[0].answer.set_exception(e)
                return
            for job in jobs:  # one of them is at fault, and the others have answers
                self._compute([job])
        else:
            answers = iter(found)
            for job in jobs:
                job.answer.set_result([next(answers) for _ in job.items])
