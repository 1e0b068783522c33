"""Console output of a training run.

log       the format: what a terminal or a batch system kept
output    lines of output, wherever they come from -> the runs in them; listener: who takes them
notebook, cells, cut the outputs of Jupyter notebooks, as lines; JSON that was cut off
prefixes  what stands before a line
terminal, wrapped    lines that a terminal broke, put together: all of a log, or as they come
seams, tears, boxes  whether a line goes on in the next
rows      lines -> rows, one by one as they are known
given, alike         rows as they are given, once each, at their step; rows that say the same
rank_rows rows that several ranks print into one log; episodes: several of one step
evaluated lines about the evaluation of one task
repeats   lines that are like others: sifted, known by their shape, taken as columns
line      one line -> metrics; pairs: names and numbers in it; bars: progress bars in it
places    where a name may stand beside its number
scalars   scalars with their steps, printed one by one
table, labels        tables with a header; one line of a panel, a box, or under a heading
blocks, held         lines that stand together; what is kept in case nothing better comes
regular, lists       unknown names that come at every step; printed lists of rewards
account   what looks like metrics and was not understood
messages, heard      what frameworks say beside metrics; where it was said
asides    numbers in messages, for the rows around them
trainings, launches  which training a row is of; the rows of one training, launch by launch
signs     lines that tell something of a training
steps     steps for rows that tell none: with hindsight, or while the run goes on
ending    how the run ended, as the lines after the last row tell
silent    what output without metrics tells all the same
"""
