"""Jupyter notebooks: the outputs of their cells, as a terminal would show them."""

from __future__ import annotations

import re

from rlprobe import schema
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.source import Source

_CELLS = re.compile(rb'"(?:nbformat|cell_type|worksheets)"\s*:')


class Notebook(Importer):
    """Jupyter, Colab and Kaggle notebooks: what the cells printed and showed.

    Read are the outputs alone: printed text, the tables that the Hugging Face Trainer and Unsloth
    draw (`Step | Training Loss | reward | …`), tables of Stable-Baselines3, progress bars, data
    frames, and everything that a console log may hold. The source of the cells and their Markdown
    are not read, nor is the state of widgets. The layout is of no matter: indented or in one line,
    text as one string or as a list of lines, nbformat 3 or 4. A table that is shown again counts
    once. A notebook that was cut off is read up to the cut.

    A cell that failed tells how the training in it ended. Several trainings (an SFT, then a GRPO)
    are several runs: `file.ipynb#1`, `file.ipynb#2`.

    Source: nbformat 3 and 4 (`nbformat.v4.schema.json`), transformers
    `NotebookProgressCallback`.
    """

    name = "notebook"
    description = "Jupyter notebooks (.ipynb)"
    priority = 35
    final = True  # read as text, the source of the cells would be taken for metrics
    step_keys = schema.step_keys().formats["console"]

    def recognises(self, source: Source) -> bool:
        """A JSON object that names cells of a notebook, whatever the file is called."""
        head = source.head.lstrip()
        if not head.startswith(b"{"):
            return False
        return source.suffix == ".ipynb" or _CELLS.search(head) is not None

    def read(self, source: Source) -> list[Reading]:
        """The trainings in the outputs."""
        from rlprobe.importers.console.cells import read  # patterns that no other log needs

        return read(source)
