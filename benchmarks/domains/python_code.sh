#!/usr/bin/env bash
# Names of functions in four commands. bash python_code.sh DATA OUT (DATA: as python_code.py makes it)
set -euo pipefail
data=$1 out=$2
electrify prepare "$data/corpus" --preset code --output-dir "$out/corpus"
electrify pretrain "$out/corpus" --recipe electra-tiny --max-seq-length 256 \
    --train-minutes "${MINUTES:-30}" --output-dir "$out/run"
electrify finetune "$out/run/discriminator" --train-file "$data/train.jsonl" \
    --validation-file "$data/heldout.jsonl" --max-seq-length 256 --seeds "${SEEDS:-5}" \
    --baselines --random-baseline --save-model --output-dir "$out/scores"
electrify predict "$out/scores" "$data/heldout.jsonl" --probabilities \
    --output-file "$out/predictions.jsonl"
