"""Skip optimizer steps whose gradient norm is not finite, or wildly off the run's own past."""

from __future__ import annotations

import math
import statistics
from collections import deque

from rlprobe.errors import RlprobeError, UsageError


class UpdatesStoppedError(RlprobeError):
    """Too many updates in a row had to be skipped: something is broken, not just one batch."""


class UpdateGuard:
    """Decides before each optimizer step whether to take it.

    A step is skipped if its gradient norm is not finite, or more than `ratio` times the median of
    the last accepted norms (once `warm_up` of them are known). Skipped norms never enter the
    median. After `stop_after` skips in a row `UpdatesStoppedError` is raised.

        guard = UpdateGuard()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if guard.allows(float(norm)):
            optimizer.step()
        optimizer.zero_grad()

    Skipping on the norm's own history: Chowdhery et al., "PaLM" (2022), section 5.1, skip batches
    around spikes; the robust median is ours.

    When not to use it: with a loss scaler of your own, which skips already; and in the first steps
    of a fresh critic, whose norms are honestly large (raise `warm_up`).

    Raises:
        UsageError: `ratio` not above 1, or a count below 1.
    """

    def __init__(
        self, ratio: float = 20.0, *, warm_up: int = 20, window: int = 200, stop_after: int = 10
    ) -> None:
        if not ratio > 1:
            raise UsageError(f"Couldn't skip above 'ratio' {ratio}: must be above 1")
        for name, count in (("warm_up", warm_up), ("window", window), ("stop_after", stop_after)):
            if count < 1:
                raise UsageError(f"Couldn't use '{name}' {count}: must be at least 1")
        self.ratio, self.warm_up, self.stop_after = ratio, warm_up, stop_after
        self.steps = self.skipped = self.in_a_row = 0
        self._norms: deque[float] = deque(maxlen=max(window, warm_up))

    def allows(self, grad_norm: float) -> bool:
        """Whether to take the step with this gradient norm (before clipping).

        Raises:
            UpdatesStoppedError: too many skips in a row.
        """
        self.steps += 1
        if self._is_fine(grad_norm):
            self._norms.append(grad_norm)
            self.in_a_row = 0
            return True
        self.skipped += 1
        self.in_a_row += 1
        if self.in_a_row >= self.stop_after:
            raise UpdatesStoppedError(
                f"Couldn't go on: {self.in_a_row} updates in a row skipped, last gradient norm "
                f"{grad_norm:g}",
                hint="Restore a checkpoint from before the first of them.",
            )
        return False

    def _is_fine(self, grad_norm: float) -> bool:
        if not math.isfinite(grad_norm):
            return False
        level = self.level
        return level is None or grad_norm <= self.ratio * level

    @property
    def level(self) -> float | None:
        """Median of the accepted norms; None while too few are known, or all are 0."""
        if len(self._norms) < self.warm_up:
            return None
        return statistics.median(self._norms) or None
