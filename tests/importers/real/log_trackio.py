"""Logs two Trackio runs into $TRACKIO_DIR."""

from __future__ import annotations

import math

import trackio

VALUES = [0.1, math.nan, math.inf, -math.inf, 1 / 3]

for name in ("a", "b"):
    trackio.init(project="project", name=name, config={"beta": 0.1, "text": "x"}, embed=False)
    for step, value in enumerate(VALUES):
        trackio.log({"train/loss": value, "train/global_step": 10 * step, "reward": step / 7})
    trackio.finish()
