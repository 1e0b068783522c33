"""What of a log was not understood, in every format and for every verb that reads one."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from rlprobe import schema
from rlprobe.cli import main
from rlprobe.findings import Coverage, RunSummary, ScanReport
from rlprobe.importers.assemble import assemble
from rlprobe.importers.importer import Reading
from rlprobe.importers.joining import joined
from rlprobe.importers.rows import RowTable
from rlprobe.report import account
from rlprobe.report.reporter import Layout, reporter
from rlprobe.scan.engine import scan
from rlprobe.store import from_run
from rlprobe.store.frame import frame_of
from rlprobe.store.recording import Recording
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Unread

LINES = Unread("line", 430, 477, ((200, "average reward score: 0.43"), (210, "x: 1")))
SENTENCE = (
    "Read 47 rows; 430 lines that look like metrics were not understood, e.g. line 200: "
    '"average reward score: 0.43".'
)
UNKNOWN = ("actor/entropy_loss2", "tflops", *(f"layers.{number}.odd" for number in range(9)))


def report(*unread: Unread, names: tuple[str, ...] = UNKNOWN) -> ScanReport:
    summary = RunSummary("x", "console", None, None, 1, 47, 47, (), 0, unread=unread)
    coverage = (Coverage("KL_BLOWUP", "clean"),)
    return ScanReport("x.log", summary, "pass", (), (), coverage, unmapped_metrics=names)


def render(what: ScanReport, name: str = "text", **layout: bool) -> str:
    return reporter(name, Layout(**layout)).render([what])


@pytest.mark.parametrize(
    ("unread", "sentence"),
    [
        ((), ""),
        ((Unread("line", 0, 477),), ""),
        ((LINES,), SENTENCE),
        (
            (Unread("line", 1, 9), Unread("cell", 2, 90, ((4, "12,5,1"),))),
            "Read 47 rows; 1 line and 2 cells that look like metrics were not understood, "
            'e.g. cell 4: "12,5,1".',
        ),
        (
            (Unread("row", 1, 9, ((0, "a 1"),)),),
            'Read 47 rows; 1 row that looks like metrics was not understood, e.g. "a 1".',
        ),
    ],
)
def test_the_sentence(unread: tuple[Unread, ...], sentence: str) -> None:
    assert account.unread(47, unread) == sentence


def test_a_quoted_line_is_visible_and_cut() -> None:
    text = "  loss\x1b[2J 0.5 \u202e" + "y" * 9_000
    said = account.unread(1, [Unread("line", 1, 1, ((1, text),))])
    assert r"loss\x1b[2J 0.5 \u202ey" in said
    assert len(said) < 170


def test_text_says_it_in_a_report_that_passes() -> None:
    text = " ".join(render(report(LINES)).split())
    assert SENTENCE in text
    assert (
        "Names that no check knows: actor/entropy_loss2 (near: entropy_loss), layers.0.odd, "
        "layers.1.odd, layers.2.odd, layers.3.odd, layers.4.odd and 5 more." in text
    )
    assert render(report(LINES), quiet=True).count("\n") == 1


def test_nothing_is_said_where_all_was_understood() -> None:
    text = render(report(Unread("line", 0, 477), names=()))
    assert "understood" not in text
    assert "Names" not in text


def test_markdown_says_it() -> None:
    text = render(report(LINES), "markdown")
    assert "e.g. line 200: `average reward score: 0.43`." in text
    assert "`actor/entropy_loss2` (near: entropy_loss)" in text


def test_json_holds_all_of_it() -> None:
    document = json.loads(render(report(LINES), "json"))
    jsonschema.Draft202012Validator(schema.report_schema()).validate(document)
    (unread,) = document["run"]["unread"]
    assert (unread["thing"], unread["count"], unread["of"]) == ("line", 430, 477)
    text = "average reward score: 0.43"
    assert unread["examples"][0] == {"number": 200, "text": text, "file": ""}
    several = Unread("line", 1, 9, ((7, text),), ("rank1.log",))
    document = json.loads(render(report(several), "json"))
    assert document["run"]["unread"][0]["examples"][0]["file"] == "rank1.log"
    assert account.unread(8, [several]).endswith(f'e.g. line 7 of rank1.log: "{text}".')
    assert document["unmapped_metrics"] == list(UNKNOWN)
    assert document["nearest_metrics"] == {"actor/entropy_loss2": "entropy_loss"}
    assert document["reason"] == ""


def reading(count: int, first: int) -> Reading:
    rows = RowTable()
    for step in range(first, first + 40):
        rows.add(step, {"loss": 1.0 + 0.01 * (step % 7), "odd": 1.0})
    return Reading(rows, unread=[Unread("line", count, 50, ((count, f"odd {count}"),))])


def test_files_of_one_run_add_up() -> None:
    first = assemble(Path("a.log"), "console", [reading(5, 1), reading(9, 41)])
    assert first.info.unread == (Unread("line", 14, 100, ((5, "odd 5"), (9, "odd 9"))),)
    second = assemble(Path("b.log"), "console", [reading(1, 81)])
    (unread,) = joined([first, second]).info.unread
    assert (unread.count, unread.of) == (15, 150)
    assert unread.files == ("a.log", "a.log", "b.log")


def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TableRun, Path]:
    steps = np.arange(1, 48)
    loss = np.asarray(1.0 + 0.01 * (steps % 7), dtype=np.float64)
    columns = {name: (loss, np.ones(47, dtype=np.bool_)) for name in ("loss", "odd", "percentage")}
    info = RunInfo("x.log", "x", "console", unread=(LINES,), unmapped=("odd",))
    run = TableRun(info, frame_of(steps, columns))
    monkeypatch.setattr("rlprobe.cli.importing.open_runs", lambda *_: [run])
    return run, tmp_path / "run"


def test_import_says_it_and_the_recording_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, target = imported(tmp_path, monkeypatch)
    assert main(["import", "x.log", "--run", str(target)]) == 0
    assert SENTENCE in capsys.readouterr().out
    assert Recording(target).info.unread == (LINES,)
    direct, through = scan(run), scan(Recording(target))
    assert (direct.verdict, direct.reason) == (through.verdict, through.reason)
    assert through.verdict == "not_judged"
    assert through.unmapped_metrics == ("odd",), "a counter measures nothing"
    assert main(["gate", str(target)]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert SENTENCE in out
    assert "430 of 477 lines that look like metrics were not understood" in out
    assert "GATE NOT JUDGED" in out


@pytest.mark.parametrize("torn", [7, [{}], [{"thing": "line", "count": "x"}], "text", [[]]])
def test_a_torn_account_in_a_manifest_is_none(tmp_path: Path, torn: object) -> None:
    columns = {"loss": (np.ones(3), np.ones(3, dtype=np.bool_))}
    run = TableRun(RunInfo("x", "x", "console"), frame_of(np.arange(3), columns))
    from_run.write(run, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "unread": torn}))
    assert Recording(tmp_path / "run").info.unread == ()
