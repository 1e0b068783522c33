"""End a looping rollout at once, instead of at the cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlprobe.guards.repetition import MOST_REPEATS, N, RepetitionDetector


def stop_on_repetition(
    n: int = N, max_repeats: int = MOST_REPEATS
) -> Callable[[Sequence[int]], bool]:
    """A callable for engines that ask per request: given all token ids so far, whether to stop.

    Only tokens that are new since the last call are looked at. One callable per request.
    """
    detector = RepetitionDetector(n, max_repeats)
    seen = 0

    def should_stop(token_ids: Sequence[int]) -> bool:
        nonlocal seen
        new = token_ids[seen:]
        seen = len(token_ids)
        return detector.feed_all(new)

    return should_stop


class StopOnRepetition:
    """A `transformers` stopping criterion: each sequence of a batch ends when it loops.

    The prompt is not counted. Pass it as `stopping_criteria=[StopOnRepetition()]` to `generate`;
    make a new one for each call, or call `reset`.

    When not to use it: with beam search, where rows of the batch change places.
    """

    def __init__(self, n: int = N, max_repeats: int = MOST_REPEATS) -> None:
        self._numbers = (n, max_repeats)
        RepetitionDetector(n, max_repeats)  # a bad number is told now, not in the middle of a run
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next call begins a new batch."""
        self._rows: list[RepetitionDetector] = []
        self._seen = 0

    def __call__(self, input_ids: Any, scores: Any = None, **_: Any) -> Any:
        """Which rows loop; a bool tensor of shape (batch,)."""
        length = int(input_ids.shape[1])
        if len(self._rows) != len(input_ids) or length < self._seen:
            self._rows = [RepetitionDetector(*self._numbers) for _ in range(len(input_ids))]
            self._seen = length - 1  # called after each token: what lies before is the prompt
        new = input_ids[:, self._seen :].tolist()
        self._seen = length
        looping = [row.feed_all(tokens) for row, tokens in zip(self._rows, new, strict=True)]
        import torch

        return torch.tensor(looping, dtype=torch.bool, device=input_ids.device)
