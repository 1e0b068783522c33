"""Every finding, all fields, of every case file and of folders of logs: equal before and after?

    python -m benchmarks.findings_dump OUT [LOGS ...]     one JSON file per input file
    python -m benchmarks.findings_dump --compare A B      names the files that differ; exit 1 if any

A change of structure leaves the dumps equal, byte for byte.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import enum
import json
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rlprobe.config import Config
from rlprobe.errors import RlprobeError
from rlprobe.importers import open_runs
from rlprobe.scan.engine import scan
from rlprobe.store.run import Run
from rlprobe.testing import load_cases, run_of

FOLDER = Path("tests/detectors").absolute()
WORKERS = 2
REPEATED = ("excerpt", "onset_logged", "statement")
SHOWN_LINES = 12  # of a difference


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("places", nargs="+", type=Path)
    chosen = parser.parse_args()
    if chosen.compare:
        return compare(*chosen.places)
    out, *logs = chosen.places
    jobs = [(path, out / "cases" / f"{path.stem}.json") for path in sorted(FOLDER.glob("*.toml"))]
    for folder in logs:
        inputs = (path for path in sorted(folder.rglob("*")) if path.is_file())
        jobs += [(path, out / folder.name / f"{path.relative_to(folder)}.json") for path in inputs]
    with ProcessPoolExecutor(WORKERS) as pool:
        counts = list(pool.map(_dump, *zip(*jobs, strict=True)))
    print(f"{len(jobs):,} files, {sum(counts):,} findings in {out}")
    return 0


def _dump(source: Path, target: Path) -> int:
    warnings.simplefilter("ignore")
    reports = list(_of_cases(source) if source.parent == FOLDER else _of_log(source))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(reports, indent=1, sort_keys=True), encoding="utf-8")
    return sum(len(report.get("findings", ())) for report in reports)


def _of_cases(path: Path) -> Iterator[dict[str, Any]]:
    for case in load_cases(path):
        config = Config(knobs={path.stem.upper(): case.get("knobs", {})})
        yield {"case": case["name"], **_report(run_of(case), config)}


def _of_log(path: Path) -> Iterator[dict[str, Any]]:
    try:
        for run in open_runs(path):
            yield _report(run, Config())
    except RlprobeError as error:
        yield {"error": str(error).replace(str(path), path.name)}


def _report(run: Run, config: Config) -> dict[str, Any]:
    try:
        report = scan(run, config)
    except RlprobeError as error:
        return {"error": type(error).__name__}
    return {
        "verdict": report.verdict,
        "findings": [_plain(finding) for finding in report.findings],
        "incidents": [_plain(incident) for incident in report.incidents],
        "coverage": [_plain(entry) for entry in report.coverage],
        "unmapped": report.unmapped_metrics,
        "notes": report.run.notes,
        "problems": len(report.problems),
    }


def _plain(value: Any) -> Any:
    """A frozen value as JSON, without what only repeats the rest for a report or a story."""
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value):
        names = (item.name for item in dataclasses.fields(value) if item.name not in REPEATED)
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def compare(before: Path, after: Path) -> int:
    """Print the files of two dumps that differ, with the first lines of each difference."""
    names = {
        str(path.relative_to(root)) for root in (before, after) for path in root.rglob("*.json")
    }
    different = [name for name in sorted(names) if _text(before / name) != _text(after / name)]
    for name in different:
        print(f"\n{name}")
        old, new = (_text(root / name).splitlines() for root in (before, after))
        changes = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
        print("\n".join(line[:200] for line in changes[:SHOWN_LINES]))
        if len(changes) > SHOWN_LINES:
            print(f"… {len(changes) - SHOWN_LINES} more lines")
    print(f"{len(names) - len(different)} of {len(names)} files equal")
    return 1 if different else 0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
