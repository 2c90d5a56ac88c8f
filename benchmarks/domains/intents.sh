#!/usr/bin/env bash
# Intents of sentences in four commands. bash intents.sh DATA OUT (DATA: as intents.py makes it)
set -euo pipefail
data=$1 out=$2
electrify prepare "$data/corpus.txt" --output-dir "$out/corpus"
electrify pretrain "$out/corpus" --recipe electra-tiny --train-minutes "${MINUTES:-30}" \
    --output-dir "$out/run"
electrify finetune "$out/run/discriminator" --train-file "$data/train.jsonl" \
    --validation-file "$data/heldout.jsonl" --seeds "${SEEDS:-5}" --baselines --random-baseline \
    --save-model --output-dir "$out/scores"
electrify predict "$out/scores" "$data/heldout.jsonl" --probabilities \
    --output-file "$out/predictions.jsonl"
