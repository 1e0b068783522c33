"""What `rlprobe doctor` says, for programs."""

from __future__ import annotations

import dataclasses

from rlprobe import schema
from rlprobe.doctor.examination import Examination
from rlprobe.report.json import dumps, plain


def render(examination: Examination) -> str:
    """One object: the verdict, its sentences by kind, and what each Python said."""
    content = {
        "format_version": schema.REPORT_VERSION,
        "recorded": examination.is_recorded,
        **dataclasses.asdict(examination),
    }
    return dumps(plain(content))
