"""Evaluations that are printed task by task: `Evaluating: arc (10-shot)... accuracy: 0.57`."""

from __future__ import annotations

import re

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import metrics_of, pairs_in, words_beside

Row = dict[str, float]

_TASK = re.compile(
    r"\W*Evaluat(?:ing|ed|ion)(?:\s?:)?\s+(?:(?:results?\s+)?(?:on|of|for)\s+)?"
    r"(?P<task>[A-Za-z][\w./-]{0,80}[\w/]|[A-Za-z])(?=[\s:,(]|\.{2,})",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\([^()]{0,80}\)")
_LONGEST = 300
_MOST_WORDS = 2  # beside names and numbers; what has more is a sentence


def evaluated(text: str) -> Row:
    """The numbers of one task, named by it: `eval/arc/accuracy`; {} if a line tells of none.

    Source: nanochat scripts/base_eval.py.
    """
    match = _TASK.match(text) if len(text) <= _LONGEST else None
    if match is None:
        return {}
    result = _ASIDE.sub(" ", text[match.end() :])
    pairs = [pair for pair in pairs_in(result) if not console_line.counter_in(pair)]
    if words_beside(result, pairs) > _MOST_WORDS or any(pair.blank for pair in pairs):
        return {}
    task = match["task"].rstrip(".")
    return {
        f"eval/{task}/{console_line.shortened(name)}": value
        for name, value in metrics_of(pairs).items()
    }
