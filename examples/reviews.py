"""A few sentences with labels, the data of the examples."""

GOOD = [
    "a wonderful film with a great cast",
    "I loved every minute of it",
    "funny, warm and clever",
    "the best thing I have seen this year",
]
BAD = [
    "a dull film with a weak cast",
    "I hated every minute of it",
    "slow, cold and silly",
    "the worst thing I have seen this year",
]
TEXTS = GOOD + BAD
LABELS = [1] * len(GOOD) + [0] * len(BAD)
