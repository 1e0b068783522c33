"""Foreign logs -> runs. One file per format; picked by content, then by name.

source             a file to be read, bounded and decompressed
importer           what an importer is, and what it hands over
rows               rows of {key: value} -> columns of numbers
assemble           what was read -> one run, under canonical names
hf_trainer_state   Hugging Face `trainer_state.json` and bare `log_history` lists
jsonl              one JSON object per line
console_line       one line of console output -> metrics
open               a path -> runs: recordings and every known format
"""

from rlprobe.importers.open import open_runs

__all__ = ["open_runs"]
