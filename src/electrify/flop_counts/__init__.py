"""What a recipe costs in floating-point operations (FLOPs), by two conventions. A multiply-add
counts as two.

`hardware` counts only matrix products, by which the rate of processors is measured. Looking up an
embedding is free, a head runs on its exact share of the tokens, attention is over the whole row (a
packed row computes L x L) or over a window of it, the backward pass is twice the forward pass.
Anything that is computed twice to save memory (the logits of All-Tokens MLM and of Electric's cloze
model) counts twice.
`paper` counts as the public FLOPs script of ELECTRA does (2003.10555, Table 1): the backward pass
equals the forward pass, tables are read by one-hot products, an output softmax is computed at
.15625 of the positions whatever the mask rate, and bias, dropout, softmax, norm and activation
count a little.

Symbols: L row length, V vocabulary, E embedding width, D hidden width, F feed-forward width, H
heads, A = heads x head width. Nothing is allocated: networks are built on torch's meta device.
"""
