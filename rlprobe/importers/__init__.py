"""Foreign logs -> runs. One file per format; picked by content, then by name.

source             a file to be read, bounded, decompressed and decoded
importer           what an importer is, and what it hands over
numbers, steps     numbers as frameworks spell them; which key is the step
rows               rows of {key: value} -> columns of numbers
attempts           relaunches in one log, and rows of one step made one
assemble           what was read -> one run, under canonical names
directory          which files of a directory are logs, and of which run
open               a path -> runs: recordings and every known format

hf_trainer_state   Hugging Face `trainer_state.json`
jsonl, json_blocks one JSON object per line; many lines at once
json_document      JSON documents: lists of rows, metrics with values by step
csv_table          CSV, TSV and their relatives
console            console output: console_rows puts it together from console_line (one line),
                   console_pairs (names and numbers), console_table, console_steps (progress bars)
                   and console_blocks (names under a heading)
tensorboard, wandb_file, trackio, mlflow_store, metrics_parquet, completions
                   stores and binary files of trackers
"""

from rlprobe.importers.open import open_runs

__all__ = ["open_runs"]
