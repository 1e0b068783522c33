"""Console output of a training run.

log     the format: what a terminal or a batch system kept
notebook, cut   the outputs of Jupyter notebooks; JSON that was cut off
trainings, launches   which training a row is of; the rows of one training, launch by launch
rows    lines -> rows, one by one as they are known
line    one line -> metrics; pairs: names and numbers in it
steps   steps for rows that tell none: with hindsight, or while the run goes on
ending  how the run ended, as the lines after the last row tell
table, blocks   printed tables; names and numbers under a heading
"""
