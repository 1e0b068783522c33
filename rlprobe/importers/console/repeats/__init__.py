"""Lines of console output that repeat: what is known of one is known of all that are like it.

skeletons what is left of a line without its numbers
sieve     the lines of a log, block by block, and which of them can matter
shapes    lines that differ only in their numbers; meaning: what a line means by itself
columns   the numbers of lines of one skeleton, as columns
stretches rows of one form that follow each other; late: what is printed behind them; panels: rows
          that are panels
"""
