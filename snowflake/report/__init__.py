"""One page over many trained policies: curves, comparisons, tables, each beside the commands that made it."""
