"""Files of others: opened only where they are regular, inside their folder, of a size that fits, and as our schema says."""
