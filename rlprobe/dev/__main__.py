"""`python -m rlprobe.dev docs [--check]` and `python -m rlprobe.dev new-detector ID`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlprobe.errors import RlprobeError
from rlprobe.exit_codes import UNREADABLE


def main(arguments: list[str] | None = None) -> int:
    """Run one authors' command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m rlprobe.dev", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="the repository")
    verbs = parser.add_subparsers(dest="verb", required=True)
    docs = verbs.add_parser("docs", help="write the generated pages of docs/")
    docs.add_argument("--check", action="store_true", help="write nothing; fail on drift")
    scaffold = verbs.add_parser("new-detector", help="write a new detector and its case file")
    scaffold.add_argument("id", help="upper-case id, e.g. MY_PATHOLOGY")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.verb == "docs":
            return _docs(chosen.root, check=chosen.check)
        return _new_detector(chosen.id, chosen.root)
    except RlprobeError as error:
        print(f"rlprobe.dev: {error}", file=sys.stderr)
        return UNREADABLE


def _docs(root: Path, *, check: bool) -> int:
    from rlprobe.dev.docs import drifted, pages, write

    texts = pages()
    if not check:
        write(root / "docs", texts)
        print(f"wrote {len(texts)} pages to {root / 'docs'}")
        return 0
    stale = drifted(root / "docs", texts)
    for name in stale:
        print(f"docs/{name} is not what the code says; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


def _new_detector(detector_id: str, root: Path) -> int:
    from rlprobe.dev.scaffold import new_detector

    for path in new_detector(detector_id, root):
        print(f"wrote {path}")
    print("Next: fill in the page, the rule and the cases; then `make docs test`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
