"""Word error rates of n-best lists that several encoders rerank, where no recogniser is at hand.

The lists are made from sentences of a text. A hypothesis has some words replaced by words that are
spelled alike (at most two edits of letters), as a recogniser confuses words that sound alike. Its
first-pass score is minus the edits of letters, with noise, so that the right sentence is often not
the first. Half of the lists tune weight and length bonus, the other half is reported:

    python benchmarks/nbest.py held-out.txt bert-0/discriminator electra-0/discriminator --data data

With --data also the share of pairs from the held-out part of that corpus of which a model prefers
the sentence without a replaced word.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean, stdev

from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import extract

import electrify
from electrify.scoring.word_substitution import substitution_pairs

SENTENCE = re.compile(r"[A-Z][a-z]*(?:,? [a-z]+){5,19}\.")
EDITS = 2
COMMON = 5
"""Occurrences of a word that may stand for another one."""
MISSING = 0.3
"""Share of the lists that lack the right sentence."""


def confusions(words: Counter[str], wanted: set[str]) -> dict[str, list[str]]:
    """Words that are spelled like each of the wanted ones."""
    known = [word for word, count in words.items() if count >= COMMON and len(word) > 2]
    found = {}
    for word in wanted:
        close = extract(word, known, scorer=Levenshtein.distance, score_cutoff=EDITS, limit=30)
        found[word] = [other for other, _, _ in close if other != word]
    return found


def lists_of(text: str, *, count: int, hypotheses: int, noise: float, seed: int) -> list[dict]:
    rng = random.Random(seed)
    sentences = sorted({found.rstrip(".").lower() for found in SENTENCE.findall(text)})
    chosen = [re.sub(",", "", s).split() for s in rng.sample(sentences, min(count, len(sentences)))]
    words = Counter(re.findall(r"[a-z]+", text.lower()))
    alike = confusions(words, {word for sentence in chosen for word in sentence})
    lists = []
    for sentence in chosen:
        places = [k for k, word in enumerate(sentence) if alike[word]]
        texts = {" ".join(sentence): 0}
        for _ in range(10 * hypotheses):
            if len(texts) == hypotheses or not places:
                break
            other = list(sentence)
            for k in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 3)))):
                other[k] = rng.choice(alike[sentence[k]])
            joined = " ".join(other)
            texts[joined] = Levenshtein.distance(joined, " ".join(sentence))
        if len(texts) > 1 and rng.random() < MISSING:
            del texts[" ".join(sentence)]
        scored = sorted(
            ((-edits + rng.gauss(0, noise), t) for t, edits in texts.items()), reverse=True
        )
        lists.append(
            {
                "hypotheses": [text for _, text in scored],
                "scores": [score for score, _ in scored],
                "reference": " ".join(sentence),
            }
        )
    return lists


def preferred(model: str, data: Path) -> float:
    """The percentage of pairs of which a model gives the right sentence the higher score."""
    pairs = substitution_pairs(data).pairs
    found = electrify.score(model, [text for pair in pairs for text in (pair.good, pair.bad)])
    return 100 * fmean(good > bad for good, bad in zip(found[::2], found[1::2], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("models", nargs="+", help="folders; NAME-SEED is the run of a recipe")
    parser.add_argument("--lists", type=int, default=600)
    parser.add_argument("--hypotheses", type=int, default=20)
    parser.add_argument("--noise", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="prepared corpus of the word-substitution pairs")
    parser.add_argument("--out", type=Path, help="JSON lines, one a model")
    given = parser.parse_args()
    text = given.text.read_text(encoding="utf-8")
    lists = lists_of(
        text, count=given.lists, hypotheses=given.hypotheses, noise=given.noise, seed=given.seed
    )
    half = len(lists) // 2
    rates, substitutions = defaultdict(list), defaultdict(list)
    for model in given.models:
        found = electrify.rerank(model, lists[half:], tune_lists=lists[:half])
        recipe = re.sub(r"-\d+$", "", Path(model).parent.name or model)
        rates[recipe].append(found.rates)
        line = {
            "model": model,
            "recipe": recipe,
            "weight": found.weight,
            "bonus": found.length_bonus,
        }
        line |= {name: rate.percent for name, rate in found.rates.items()}
        if given.data:
            line["pairs"] = preferred(model, given.data)
            substitutions[recipe].append(line["pairs"])
        print(json.dumps(line))
        if given.out:
            with given.out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
    print(f"{len(lists) - half} lists of up to {given.hypotheses} hypotheses; WER in percent")
    for recipe, several in rates.items():
        after = [one["after"].percent for one in several]
        spread = f" (std {stdev(after):.2f}, {len(after)} seeds)" if len(after) > 1 else ""
        before, oracle = (
            fmean(one[name].percent for one in several) for name in ("before", "oracle")
        )
        print(f"{recipe}: {before:.2f} -> {fmean(after):.2f}{spread}, oracle {oracle:.2f}")
    for recipe, several in substitutions.items():
        each = ", ".join(f"{share:.1f}" for share in several)
        print(f"{recipe}: {fmean(several):.1f} of 100 pairs ({each})")


if __name__ == "__main__":
    main()
