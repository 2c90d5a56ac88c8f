#!/usr/bin/env bash
# Solubility from SMILES in four commands. bash molecules.sh DATA OUT (DATA: as molecules.py makes it)
set -euo pipefail
data=$1 out=$2
electrify prepare "$data/corpus.txt" --preset smiles --output-dir "$out/corpus"
electrify pretrain "$out/corpus" --recipe electra-tiny --max-seq-length 128 \
    --train-minutes "${MINUTES:-30}" --output-dir "$out/run"
electrify finetune "$out/run/discriminator" --train-file "$data/train.csv" \
    --validation-file "$data/heldout.csv" --seeds "${SEEDS:-5}" --baselines --random-baseline \
    --save-model --output-dir "$out/scores"
electrify predict "$out/scores" "$data/heldout.csv" --probabilities \
    --output-file "$out/predictions.csv"
