"""What each kind of task adds to a run: how examples become rows, which head learns them, and how
its answers are scored."""
