"""What is wrong with a folder, and what to do about it: prepared corpora, runs and models, verified
to the last byte and checked for common traps."""
