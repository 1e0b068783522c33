"""What a reader did not expect costs its line or its file, and is said; the others go on."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rlprobe.cli import main
from rlprobe.errors import InputError
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.documents.jsonl import JSONLines
from rlprobe.importers.faults import FAULT, ReaderFaultError, contained
from rlprobe.importers.recorders.first_rlprobe import FirstRlprobe
from rlprobe.importers.source import Source
from rlprobe.importers.trackers import mlflow_files
from tests.importers import hostile, test_notebook
from tests.importers import test_recorders as recorders
from tests.importers import test_stores as stores
from tests.importers.reading import is_nan, log, only, points, read

ROWS = "".join(json.dumps({"step": n, "loss": 1 / (n + 1)}) + "\n" for n in range(5))
UNKNOWN = '{"step": 1, "wer": 1}\n{"step": 2, "wer": 1}\n'  # what no other format reads
PRINTED = "".join(f"step {n} | loss {1 / (n + 1):.4f} | grad_norm 0.5\n" for n in range(1, 6))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of JSON Lines that fails on files named `bad…`."""
    real = JSONLines.read

    def failing(self: JSONLines, source: Source) -> object:
        if source.name.startswith("bad"):
            raise IndexError("list index out of range")
        return real(self, source)

    monkeypatch.setattr(JSONLines, "read", failing)


@pytest.mark.usefixtures("broken")
def test_a_readers_fault_is_said_and_another_format_tried(tmp_path: Path) -> None:
    run = read(tmp_path, "bad.jsonl", PRINTED + ROWS)
    assert run.info.source == "console"
    assert run.steps.step.tolist()[:5] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("broken")
def test_a_readers_fault_costs_one_file_of_a_directory(tmp_path: Path) -> None:
    log(tmp_path, "a/good.jsonl", ROWS)
    log(tmp_path, "b/bad.jsonl", UNKNOWN)
    run = only(tmp_path)
    assert len(run.steps) == 5
    (problem,) = run.problems
    assert "IndexError (list index out of range)" in problem.message
    assert FAULT in problem.message


@pytest.mark.usefixtures("broken")
def test_a_readers_fault_is_an_error_about_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = log(tmp_path, "bad.jsonl", UNKNOWN)
    good = log(tmp_path, "good.jsonl", ROWS)
    assert main(["scan", str(bad), str(good)]) == 2
    out, err = capsys.readouterr()
    assert "good.jsonl" in out
    assert f"Couldn't read '{bad}' as jsonl: IndexError" in err
    assert "Traceback" not in err


def test_a_disk_that_fails_is_no_fault_of_ours(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Input/output error") as error, contained(tmp_path, "x"):
        raise OSError(5, "Input/output error")
    assert not isinstance(error.value, ReaderFaultError)


def test_a_line_that_breaks_the_reader_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Reader.feed

    def failing(self: Reader, segment: str, number: int = 0) -> object:
        if "loss 0.3333" in segment:
            raise ValueError("what is this")
        return real(self, segment, number)

    monkeypatch.setattr(Reader, "feed", failing)
    monkeypatch.setattr("rlprobe.importers.console.repeats.meaning.Meanings.of", lambda *_: None)
    run = read(tmp_path, "train.log", PRINTED)
    assert run.steps.step.tolist() == [1, 3, 4, 5]
    assert any("line 2: ValueError (what is this)" in note for note in run.info.notes)
    (unread,) = run.info.unread
    assert (unread.count, unread.examples[0][0]) == (1, 2)


def test_a_scan_that_fails_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlprobe.cli import scanning
    from rlprobe.scan import engine

    real = engine.scan

    def failing(run: object, config: object) -> object:
        if "bad" in run.info.path:  # type: ignore[attr-defined]
            raise ZeroDivisionError("division by zero")
        return real(run, config)  # type: ignore[arg-type]

    monkeypatch.setattr(scanning, "scan", failing)
    paths = [str(log(tmp_path, name, ROWS)) for name in ("bad.jsonl", "good.jsonl")]
    assert main(["scan", *paths]) == 2
    out, err = capsys.readouterr()
    assert "good.jsonl" in out
    assert "ZeroDivisionError (division by zero)" in err


# --- what was not expected, and is now ------------------------------------------------------------


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_a_printed_reward_that_is_not_finite_is_what_is_looked_for(
    bad: str, tmp_path: Path
) -> None:
    line = "time: 7.1s     rewards: tensor([0.0, {}, 0.5])\n"
    text = line.format("1.0") * 30 + line.format(bad)
    run = read(tmp_path, "train.log", text)
    mean, std = points(run, "reward_mean"), points(run, "reward_std")
    assert mean[0][1] == 0.5
    assert is_nan(std[-1][1])
    assert is_nan(mean[-1][1]) if bad == "nan" else mean[-1][1] == float(bad)
    assert len(points(run, "zero_variance_group_fraction")) == 30
    assert main(["scan", str(tmp_path / "train.log")]) == 1


DEEPSPEED = (
    "[2026-01-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped=0, "
    "lr=[{}, 9e-06], mom=[(0.9, 0.95)]\n"
)


@pytest.mark.parametrize(
    "torn", [("210", "9.65e-[Rank 1] 06"), ("2" * 400, "1e-6"), ("9" * 5000, "1e-6")]
)
def test_a_torn_number_costs_its_line(torn: tuple[str, str], tmp_path: Path) -> None:
    text = "".join(DEEPSPEED.format(10 * n, "1e-06") for n in range(1, 20))
    run = read(tmp_path, "train.log", text + DEEPSPEED.format(*torn))
    assert run.steps.step.tolist() == [10 * n for n in range(1, 20)]
    (unread,) = run.info.unread
    assert unread.count == 1


@pytest.mark.parametrize(
    "line",
    [
        "| time/total_timesteps | 9223372036854775807 |",
        "step 99999999999999999999 | loss 0.5",
        "Epoch: [99999999999]  [999999999999999/999999999999999]  loss: 0.5",
        " 99%|#| 999999999999999999999/999999999999999999999 [00:01<00:02, 1.0it/s, loss=0.5]",
        "{'loss': 0.5, 'step': 1e300}",
    ],
)
def test_steps_beyond_counting_are_none(line: str, tmp_path: Path) -> None:
    run = read(tmp_path, "train.log", PRINTED + line + "\n")
    assert run.steps.step.tolist()[:5] == [1, 2, 3, 4, 5]
    assert all(0 <= step < 2**53 for step in run.steps.step.tolist())


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.log"])
@pytest.mark.parametrize("bad", ["9223372036854775808", "1e300", "NaN"])
def test_a_step_that_is_none_costs_its_row(name: str, bad: str, tmp_path: Path) -> None:
    steps = [bad if n % 3 == 0 else n for n in range(60)]
    rows = [f'{{"step": {step}, "loss": 0.5}}' for step in steps]
    text = {
        "a.jsonl": "\n".join(rows),
        "a.json": f"[{','.join(rows)}]",
        "a.csv": "step,loss\n" + "\n".join(f"{step},0.5" for step in steps),
        "a.log": "\n".join(f"step {step} | loss 0.5 | reward 0.25" for step in steps),
    }
    run = read(tmp_path, name, text[name] + "\n")
    assert run.steps.step.tolist() == [n for n in range(60) if n % 3]
    if (name, bad) != ("a.log", "NaN"):  # a line without a number behind `step` is another text
        assert [item.count for item in run.info.unread] == [20]


def test_a_line_of_digits_does_not_take_long(tmp_path: Path) -> None:
    text = PRINTED + "loss: 5" + "9" * 20_000 + "be3a2\n" + "experiment 7" + "1" * 20_000 + "x\n"
    assert len(read(tmp_path, "train.log", text * 3).steps) > 0


def test_a_small_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    real = Source.open

    def counting(self: Source) -> object:
        opened.append(self.path)
        return real(self)

    monkeypatch.setattr(Source, "open", counting)
    read(tmp_path, "train.log", PRINTED)
    assert len(opened) == 1


def test_numbers_of_mlflow_that_are_none(tmp_path: Path) -> None:
    run = stores.mlflow_files(tmp_path / "mlruns")
    meta = run / "meta.yaml"
    meta.write_text(meta.read_text().replace("end_time: 6000", f"end_time: {'9' * 400}"))
    metric = run / "metrics" / "train" / "loss"
    metric.write_text(metric.read_text() + f"5000 0.25 {'9' * 30}\n")
    assert [step for step, _ in points(only(tmp_path), "loss")][:2] == [1, 2]
    assert mlflow_files._point(b"1 0.5 " + b"9" * 30) is None


def test_rows_of_the_first_rlprobe_of_any_type(tmp_path: Path) -> None:
    folder = recorders.recording(tmp_path / "run")
    recorders.table(
        folder / "samples" / "shard-00000.parquet",
        {
            "step": [2],
            "sample_id": ["s"],
            "prompt_text": [1.5],
            "completion_text": [7],
            "reward_total": ["high"],
            "rank": ["first"],
            "reward_component.format": ["1.0"],
        },
    )
    (rollout,) = only(tmp_path).rollouts(2)
    assert (rollout.prompt, rollout.completion, rollout.reward, rollout.rank) == (None,) * 3 + (0,)
    recorders.table(
        folder / "steps.parquet", {"step": [1.0, 1e300, 2.5, float("nan")], "loss": [0.5] * 4}
    )
    (reading,) = FirstRlprobe().read_folder(folder)
    assert reading.rows.steps().tolist() == [1]
    assert any("3 rows left out" in problem.message for problem in reading.problems)


def test_a_damaged_column_of_parquet_costs_itself(tmp_path: Path) -> None:
    columns = {"step": list(range(2000)), "loss": [0.5] * 2000, "reward": [0.25] * 2000}
    path = recorders.table(tmp_path / "log.parquet", columns)
    file = pq.ParquetFile(path)
    chunk = file.metadata.row_group(0).column(2)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + 2 : chunk.data_page_offset + 10] = b"\xff" * 8
    path.write_bytes(data)
    run = only(path)
    assert len(points(run, "loss")) == 2000
    assert not points(run, "reward_mean")
    (problem,) = run.problems
    assert "column 'reward' left out" in problem.message


def test_an_output_of_a_notebook_of_no_kind(tmp_path: Path) -> None:
    odd = {"output_type": {"a": 1}, "text": "x"}
    cells = [test_notebook.cell(test_notebook.stream(test_notebook.PRINTED), odd)]
    assert len(read(tmp_path, "run.ipynb", test_notebook.notebook(*cells)).steps) == 4


@pytest.mark.parametrize("kind", hostile.FORMATS)
def test_inputs_of_the_fuzz_are_read_while_they_are_whole(kind: str, tmp_path: Path) -> None:
    assert list(hostile.texts_of(hostile.write(hostile.whole(kind), tmp_path)))
