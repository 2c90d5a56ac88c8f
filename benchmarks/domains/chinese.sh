#!/usr/bin/env bash
# Two tasks in Chinese in six commands. bash chinese.sh DATA OUT (DATA: as chinese.py makes it)
set -euo pipefail
data=$1 out=$2
electrify prepare "$data/corpus.txt" --tokenizer unigram --vocab-size 8192 \
    --output-dir "$out/corpus"
electrify pretrain "$out/corpus" --recipe corrective-tiny --mlm-share .4 --max-seq-length 256 \
    --train-minutes "${MINUTES:-30}" --output-dir "$out/run"
electrify finetune "$out/run/discriminator" --train-file "$data/tags-train.conll" \
    --validation-file "$data/tags-heldout.conll" --seeds "${SEEDS:-5}" --baselines \
    --random-baseline --save-model --output-dir "$out/tags"
electrify predict "$out/tags" "$data/tags-heldout.conll" --output-file "$out/tags.tsv"
electrify finetune "$out/run/discriminator" --train-file "$data/sentiment-train.csv" \
    --validation-file "$data/sentiment-heldout.csv" --max-seq-length 256 --seeds "${SEEDS:-5}" \
    --baselines --random-baseline --save-model --output-dir "$out/sentiment"
electrify predict "$out/sentiment" "$data/sentiment-heldout.csv" \
    --probabilities --output-file "$out/sentiment.csv"
