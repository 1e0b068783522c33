"""End a looping rollout at once, instead of at the cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlprobe.guards._repetition import MOST_REPEATS, N, RepetitionDetector


def stop_on_repetition(
    n: int = N, max_repeats: int = MOST_REPEATS
) -> Callable[[Sequence[int]], bool]:
    """A callable for engines that ask per request: given all token ids so far, whether to stop.

    Only tokens that are new since the last call are looked at. One callable per request. With an
    engine that streams, end the request when it says so (vLLM's asynchronous engine):

        should_stop = stop_on_repetition()
        async for output in engine.generate(prompt, sampling_params, request_id):
            if should_stop(output.outputs[0].token_ids):
                await engine.abort(request_id)
                break

    With an engine that takes a function over logits per request, leave it nothing but the end:

        def end_when_looping(end_id):
            should_stop = stop_on_repetition()

            def process(token_ids, logits):
                if should_stop(token_ids):
                    logits.fill_(float("-inf"))
                    logits[end_id] = 0.0
                return logits

            return process

    When not to use it: where answers honestly repeat (tables, code); and for tokens that come in
    chunks that replace each other: all ids so far are expected, prompt left out.

    Raises:
        UsageError: a number below 1.
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
    make a new one for each call, or call `reset`. A row that was stopped is filled up with padding
    by `generate` and has no end token: mask it, or put one there, before training on it.

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
