"""Writes the two files of a new detector: its page with its rule, and its cases.

Both pass the tests of the catalogue as they are written, so that an author changes a working
detector instead of starting from an empty file.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from rlprobe.errors import UsageError

ID = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


def new_detector(detector_id: str, root: Path) -> tuple[Path, Path]:
    """Write `detectors/<id>.py` and `tests/detectors/<id>.toml` below `root`.

    Returns:
        The two paths, in that order.

    Raises:
        UsageError: the id is no id, `root` is no source tree, or a file is there already.
    """
    name = detector_id.upper().replace("-", "_")
    if not ID.fullmatch(name):
        raise UsageError(
            f"Couldn't make a detector of '{detector_id}': not an id",
            hint="Use words and underscores, e.g. KL_BLOWUP.",
        )
    code = root / "detectors" / f"{name.lower()}.py"
    cases = root / "tests" / "detectors" / f"{name.lower()}.toml"
    _check(root, code, cases)
    words = {
        "id": name,
        "class_name": "".join(word.capitalize() for word in name.split("_")),
        "title": name.replace("_", " ").capitalize(),
    }
    code.write_text(Template(CODE).substitute(words), encoding="utf-8")
    cases.write_text(Template(CASES).substitute(words), encoding="utf-8")
    return code, cases


def _check(root: Path, *paths: Path) -> None:
    for path in paths:
        if not path.parent.is_dir():
            raise UsageError(
                f"Couldn't write '{path}': no such folder",
                hint=f"Run it in a source tree of rlprobe ('{root}' is none).",
            )
        if path.exists():
            raise UsageError(f"Couldn't write '{path}': it is there already")


CODE = '''\
"""$id: one line on what goes wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob
from rlprobe.rule import SINCE, Judged, Signal, finding, number


class $class_name(Detector):
    """$title: say in one sentence what is seen.

    What it detects
        The entropy is far above its own past for several rows. Say what your rule sees.

    Why it matters
        Say what it costs: GPU time, a spoilt policy, a wrong conclusion.

    How it is computed
        On a log scale, against the median of the run's past, which stands still while the series is
        outside. Rows above `ratio` times that level are bad; most of five in a row must be. Name
        every knob here.

    What to do
        Say what to try, the most likely cure first.

    When it is wrong
        Name the healthy runs that look like it; each is a case of its own.

    References
        Name the papers and the framework files that it rests on.
    """

    id = "$id"
    severity = Severity.WARNING
    needs = (("entropy",),)
    caused_by = ()  # ids of pathologies that it may follow from

    ratio: float = knob(4, "times the level that are too much", minimum=1.1)

    points = fixed(8, "logged values that are needed")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per episode."""
        entropy = Signal.of(run, "entropy", minimum=self.points, above=0)
        past = entropy.past(log=1e-9, above=math.log(self.ratio))
        for stretch in Judged(entropy, bad=past.times(self.ratio)).persistent():
            level = float(past.level[stretch.start])
            yield finding(
                self,
                stretch,
                f"Entropy rose from {number(level)} to {number(stretch.usual)}{SINCE}.",
                evidence=(stretch.at_onset(level),),
                remedies=("say what to try first",),
            )
'''

CASES = """\
# $id: the format is described in rlprobe/testing/cases.py

[[case]]
name = "jumps and stays"
columns.entropy = { level = 0.5, noise = 0.1, log = true, set = [{ from = 80, value = 6 }] }
fires = [{ severity = "warning", first_bad_step = 80, state = "ongoing" }]

[[case]]
name = "an episode that recovers"
columns.entropy = { level = 0.5, set = [{ from = 50, to = 69, value = 6 }] }
fires = [{ first_bad_step = 50, last_bad_step = 69, state = "recovered" }]

[[case]]
name = "a steady level"
tags = ["look-alike"]
columns.entropy = { level = 0.5, noise = 0.2, log = true, seed = 2 }
quiet = true

[[case]]
name = "single rows"
tags = ["look-alike"]
columns.entropy = { level = 0.5, set = [{ from = 30, every = 20, value = 6 }] }
quiet = true

[[case]]
name = "NaN rows"
columns.entropy = { level = 0.5, set = [{ from = 30, to = 40, value = nan }] }
quiet = true

[[case]]
name = "three rows are too little"
columns.entropy = [0.5, 0.6, 9.0]
inconclusive = true

[[case]]
name = "no entropy logged"
columns.loss = { level = 2 }
not_checked = true
"""
