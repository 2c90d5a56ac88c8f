"""What a kind of task adds to a run: how examples become rows, which head learns them, what its
answers are worth."""
