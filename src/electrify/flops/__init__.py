"""What a recipe costs: floating-point operations (FLOPs), a multiply-add being two, by two
conventions.

`hardware` counts what a processor is measured by: matrix products only. Looking up an embedding is
free, a head runs on its exact share of the tokens, attention is over the whole row (a packed row
computes L x L), the backward pass is twice the forward pass. What is computed a second time to save
memory (the logits of All-Tokens MLM and of Electric's cloze model) counts a second time. `paper`
counts as the public FLOPs script of ELECTRA does (2003.10555, Table 1): the backward pass equals
the forward pass, tables are read by one-hot products, an output softmax stands at .15625 of the
positions whatever the mask rate, and bias, dropout, softmax, norm and activation count a little.

Symbols: L row length, V vocabulary, E embedding width, D hidden width, F feed-forward width, H
heads, A = heads x head width. Nothing is allocated: networks are built on torch's meta device.
"""
