"""The command line: exit codes, what goes where, and that it never shows a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rlprobe import Recorder, schema
from rlprobe.cli import main

Run = Callable[..., tuple[int, str, str]]
EVIL = "\x1b[2J[red]\r\u202e"
DETECTOR = '''
from rlprobe.detector import Detector, Evidence, Finding, Severity


class {name}(Detector):
    """A detector for tests."""

    id = "{id}"
    severity = Severity.CRITICAL
    needs = (("loss",),)

    def scan(self, run):
        {body}
        yield
'''


@pytest.fixture
def rlprobe(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in this process: exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return code, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of this repository reaches the tests."""
    monkeypatch.chdir(tmp_path)


def log(path: Path, rows: int = 200, nan_from: int | None = None) -> Path:
    lines = []
    for step in range(1, rows + 1):
        bad = nan_from is not None and step >= nan_from
        grad_norm = "NaN" if bad else f"{0.8 + 0.01 * (step % 7):.3f}"
        kl = f"{0.02 + 0.001 * (step % 5):.4f}"
        reward = f"{0.5 + 0.01 * (step % 6):.3f}"
        lines.append(
            f'{{"step": {step}, "grad_norm": {grad_norm}, "kl": {kl}, "loss": 0.1, '
            f'"reward": {reward}}}'
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return log(tmp_path / "healthy.jsonl")


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    return log(tmp_path / "sick.jsonl", nan_from=150)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "one"
    with Recorder(path, algorithm="GRPO", rank=0, world_size=2, signals=False) as recorder:
        for step in range(1, 31):
            recorder.step(step, loss=0.5, grad_norm=1.0, kl_mean=0.02)
            recorder.rank_step(step, loss=0.5)
        recorder.checkpoint(20, "checkpoint-20", has=["model"], lacks=["rng"])
        recorder.samples(
            30,
            prompts=["2+2?"] * 4,
            completions=[f"{EVIL} four"] * 4,
            rewards=[0.1] * 4,
            advantages=[9.0, -9.0, 9.0, -9.0],
            group_size=4,
        )
    return path


# --- exit codes -----------------------------------------------------------------------------


def test_a_healthy_run_is_0(rlprobe: Run, healthy: Path) -> None:
    code, out, err = rlprobe("scan", healthy)
    assert code == 0
    assert "PASS" in out
    assert not err


def test_a_finding_at_the_bar_is_1(rlprobe: Run, sick: Path) -> None:
    code, out, _ = rlprobe("scan", sick)
    assert code == 1
    assert "first bad step 150" in out


def test_the_bar_can_be_lifted(rlprobe: Run, sick: Path) -> None:
    assert rlprobe("scan", sick, "--fail-on", "never")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["scan"],
        ["scan", "nowhere"],
        ["scan", "empty"],
        ["scan", "HEALTHY", "--no-such-flag"],
        ["scan", "HEALTHY", "--select", "KL_BLOWP"],
        ["scan", "HEALTHY", "--ignore", "KL_BLOWP"],
        ["scan", "HEALTHY", "--format", "yaml"],
        ["scan", "HEALTHY", "--fail-on", "sometimes"],
        ["scan", "HEALTHY", "--config", "nowhere.toml"],
        ["scan", "HEALTHY", "--detectors", "nowhere"],
        ["scan", "HEALTHY", "-o", "no/such/place"],
        ["gate", "nowhere"],
        ["show", "HEALTHY", "--step", "999"],
        ["show", "HEALTHY", "--step", "word"],
        ["show", "HEALTHY", "--step", "1", "--rank", "3"],
        ["show", "HEALTHY", "--step", "1", "--format", "html"],
        ["explain", "KL_BLOWP"],
        ["query", "HEALTHY", "SELEC 1"],
        ["query", "HEALTHY", "DROP VIEW steps"],
        ["ls", "nowhere"],
        ["compact", "nowhere"],
    ],
)
def test_a_usage_error_is_2(rlprobe: Run, healthy: Path, words: list[str]) -> None:
    Path("empty").touch()
    (healthy.parent / "empty").touch()
    code, out, err = rlprobe(*[str(healthy) if word == "HEALTHY" else word for word in words])
    assert code == 2
    if words:
        assert err.startswith("rlprobe: ")
        assert not out


def test_near_matches_are_offered(rlprobe: Run, healthy: Path) -> None:
    assert "try: Did you mean KL_BLOWUP" in rlprobe("scan", healthy, "--select", "KL_BLOWP")[2]
    assert "try: Did you mean KL_BLOWUP" in rlprobe("explain", "kl-blowp")[2]


def test_nothing_to_judge_is_3(rlprobe: Run, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text('{"step": 1, "my_metric": 3}\n{"step": 2, "my_metric": 4}\n')
    code, out, _ = rlprobe("scan", path)
    assert code == 3
    assert "NOT JUDGED" in out


def detectors(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    text = DETECTOR.format(name=name.title(), id=name.upper(), body=body)
    (folder / f"{name}.py").write_text(text)
    return folder


def test_a_failing_detector_is_3(rlprobe: Run, healthy: Path, tmp_path: Path) -> None:
    folder = detectors(tmp_path / "own", "broken", "raise ZeroDivisionError('oops')")
    code, out, _ = rlprobe("scan", healthy, "--detectors", folder)
    assert code == 3
    assert "BROKEN (ZeroDivisionError: oops)" in " ".join(out.split())


def test_a_fault_of_our_own_is_not_a_finding(
    rlprobe: Run, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("ouch")

    monkeypatch.setattr("rlprobe.cli.scanning.scan_all", fail)
    code, out, err = rlprobe("scan", healthy)
    assert (code, out) == (3, "")
    assert "internal error: ValueError: ouch" in err


def test_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPROBE_DEBUG", "1")
    assert main(["scan", "nowhere"]) == 2
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setattr("rlprobe.catalog.get", lambda *_: 1 / 0)
    assert main(["explain", "KL_BLOWUP"]) == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_an_interrupt_is_quiet(
    rlprobe: Run, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rlprobe.cli.scanning.scan_all", interrupt)
    assert rlprobe("scan", healthy) == (130, "", "")


# --- scan and gate ---------------------------------------------------------------------------


def test_one_unreadable_path_does_not_lose_the_others(
    rlprobe: Run, healthy: Path, sick: Path
) -> None:
    code, out, err = rlprobe("scan", healthy, "nowhere", sick, "--format", "json")
    assert code == 2
    assert "'nowhere'" in err
    verdicts = [run["verdict"] for run in json.loads(out)["runs"]]
    assert verdicts == ["pass", "fail"]


def test_one_unreadable_recording_does_not_lose_the_others(rlprobe: Run, recording: Path) -> None:
    newer = recording.parent / "newer"
    newer.mkdir()
    (newer / "run.json").write_text('{"format_version": 999}')
    code, out, err = rlprobe("scan", recording.parent)
    assert code == 2
    assert "Upgrade rlprobe" in err
    assert "steps 1-30" in out
    code, out, err = rlprobe("ls", recording.parent)
    assert code == 2
    assert "1-30" in out


@pytest.mark.parametrize("several", [False, True])
def test_logs_beside_recordings_are_mentioned(
    rlprobe: Run, recording: Path, *, several: bool
) -> None:
    folder = recording.parent
    (folder / "old").mkdir()
    log(folder / "old" / "train.jsonl", rows=5)
    (folder / "notes.md").write_text("no log")
    if several:
        with Recorder(folder / "two", rank=0, world_size=1, signals=False) as other:
            other.step(1, loss=0.5)
    said = "not looked at: old/train.jsonl, beside recordings; give a log by itself"
    document = json.loads(rlprobe("scan", folder, "--format", "json")[1])
    notes = [run["run"]["notes"] for run in document.get("runs", [document])]
    assert notes == [[said], *([] for _ in notes[1:])]
    assert len(notes) == 1 + several
    alone = json.loads(rlprobe("scan", recording, "--format", "json")[1])
    assert alone["run"]["notes"] == []


def test_json_follows_the_schema(rlprobe: Run, sick: Path, recording: Path) -> None:
    validator = jsonschema.Draft202012Validator(schema.report_schema())
    for words in ([sick], [recording], [sick, recording], [recording.parent]):
        document = json.loads(rlprobe("scan", *words, "--format", "json")[1])
        validator.validate(document)
        assert ("runs" in document) == (len(words) > 1)
    gate = json.loads(rlprobe("gate", sick, "--format", "json")[1])
    validator.validate(gate)
    assert gate["gate"]["exit_code"] == 1


def test_a_file_gets_what_stdout_would(rlprobe: Run, sick: Path, tmp_path: Path) -> None:
    _, out, _ = rlprobe("scan", sick)
    assert rlprobe("scan", sick, "-o", tmp_path / "out.txt") == (1, "", "")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == out


def test_select_and_ignore(rlprobe: Run, sick: Path) -> None:
    def covered(*words: str) -> set[str]:
        document = json.loads(rlprobe("scan", sick, "--format", "json", *words)[1])
        return {entry["detector"] for entry in document["coverage"]}

    assert covered("--select", "kl-blowup,GRAD_PATHOLOGY") == {"KL_BLOWUP", "GRAD_PATHOLOGY"}
    everything = covered()
    assert covered("--ignore", "KL_BLOWUP") == everything - {"KL_BLOWUP"}
    Path("rlprobe.toml").write_text('ignore = ["KL_BLOWUP"]\n')
    assert covered() == everything - {"KL_BLOWUP"}
    assert covered("--select", "KL_BLOWUP") == {"KL_BLOWUP"}


def test_the_gate_follows_the_policy(rlprobe: Run, sick: Path, healthy: Path) -> None:
    assert rlprobe("gate", sick)[0] == 1
    assert rlprobe("gate", healthy)[0] == 0
    Path("policy.toml").write_text('[gate]\nfail_on = "never"\n')
    assert rlprobe("gate", sick, "--config", "policy.toml")[0] == 0
    Path("policy.toml").write_text('[gate]\nrequire = ["TRUNCATION"]\n')
    code, out, _ = rlprobe("gate", healthy, "--config", "policy.toml")
    assert code == 3
    assert "TRUNCATION is required" in out
    assert "GATE NOT JUDGED" in out


def test_a_waiver_is_told(rlprobe: Run, sick: Path) -> None:
    found = json.loads(rlprobe("gate", sick, "--format", "json")[1])["gate"]["failing"]
    ids = {key.partition("@")[0].partition(":")[0] for key in found}
    text = "".join(f'[[waivers]]\ndetector = "{name}"\nreason = "known"\n' for name in ids)
    Path("policy.toml").write_text(text)
    code, out, _ = rlprobe("gate", sick, "--config", "policy.toml", "--quiet")
    assert code == 0
    assert "waived" in out


def test_a_waiver_of_the_root_passes_nothing_else(rlprobe: Run, sick: Path) -> None:
    lines = sick.read_text(encoding="utf-8").splitlines()
    lines[155:] = [line.replace('"kl": 0.0', '"kl": 90') for line in lines[155:]]
    sick.write_text("\n".join(lines), encoding="utf-8")
    document = json.loads(rlprobe("scan", sick, "--format", "json")[1])
    root = document["incidents"][0]["root"].partition("@")[0].partition(":")[0]
    others = {item["detector"] for item in document["findings"] if item["severity"] == "critical"}
    assert others - {root}
    Path("policy.toml").write_text(f'[[waivers]]\ndetector = "{root}"\nreason = "known"\n')
    code, out, _ = rlprobe("gate", sick, "--config", "policy.toml", "--quiet")
    assert code == 1
    assert out.startswith("GATE FAIL")
    assert all(f"{name} at step" in out for name in others)


def test_a_gate_with_a_path_that_cannot_be_read_does_not_say_pass(
    rlprobe: Run, sick: Path, healthy: Path
) -> None:
    code, out, err = rlprobe("gate", healthy, "nowhere", "--quiet")
    assert (code, out.splitlines()[0]) == (2, "GATE NOT JUDGED")
    assert "'nowhere' could not be read" in out
    assert "nowhere" in err
    code, out, _ = rlprobe("gate", sick, "nowhere", healthy, "--format", "json")
    document = json.loads(out)
    assert code == document["gate"]["exit_code"] == 1
    assert [bool(run["failing"]) for run in document["gate"]["by_run"]] == [True, False]


@pytest.mark.parametrize("name", ["text", "json", "markdown"])
def test_quiet(rlprobe: Run, sick: Path, name: str) -> None:
    code, out, err = rlprobe("scan", sick, "--quiet", "--format", name)
    assert code == 1
    assert out
    assert not err


# --- the other verbs -------------------------------------------------------------------------


def test_show(rlprobe: Run, recording: Path) -> None:
    code, out, _ = rlprobe("show", recording, "--step", 30)
    assert code == 0
    assert "step 30   attempt 1" in out
    assert "20 checkpoint" in out
    assert "<- noise" in out
    assert r"\x1b[2J[red]\r\u202e" in out
    document = json.loads(rlprobe("show", recording, "--step", 30, "--format", "json")[1])
    assert document["groups"][0]["noise"] is True
    code, out, _ = rlprobe("show", recording, "--step", 30, "--rank", 0, "--all")
    assert "rank 0, against its own past" in out


def test_show_needs_one_run(rlprobe: Run, recording: Path) -> None:
    with Recorder(recording.parent / "two", rank=0, world_size=1, signals=False) as other:
        other.step(1, loss=1.0)
    code, _, err = rlprobe("show", recording.parent, "--step", 1)
    assert code == 2
    assert "there are 2" in err


def test_explain(rlprobe: Run) -> None:
    code, out, _ = rlprobe("explain")
    assert code == 0
    assert "KL_BLOWUP" in out
    code, out, _ = rlprobe("explain", "kl-blowup")
    assert code == 0
    assert "Knobs ([knobs.KL_BLOWUP] in rlprobe.toml)" in out
    page = json.loads(rlprobe("explain", "KL_BLOWUP", "--format", "json")[1])
    assert page["id"] == "KL_BLOWUP"
    assert page["knobs"]
    listed = json.loads(rlprobe("explain", "--format", "json")[1])
    assert page.items() <= {**listed["detectors"][0], **page}.items()


def test_ls(rlprobe: Run, recording: Path) -> None:
    code, out, _ = rlprobe("ls", recording.parent)
    assert code == 0
    assert "1-30" in out
    assert "completed" in out
    document = json.loads(rlprobe("ls", recording.parent, "--format", "json")[1])
    assert document["recordings"][0]["attempts"][0]["ended"] == "completed"


def test_query(rlprobe: Run, recording: Path) -> None:
    statement = "SELECT step, grad_norm, 'nan'::DOUBLE AS x FROM line WHERE step = 30"
    assert rlprobe("query", recording, statement)[1].split("\n")[1].split() == ["30", "1", "NaN"]
    assert rlprobe("query", recording, statement, "--format", "csv")[1] == (
        "step,grad_norm,x\n30,1.0,NaN\n"
    )
    rows = json.loads(rlprobe("query", recording, statement, "--format", "json")[1])
    assert rows == [{"step": 30, "grad_norm": 1.0, "x": None, "x_kind": "nan"}]
    code, out, _ = rlprobe("query", recording, "SELECT completion FROM samples")
    assert code == 0
    assert "\x1b" not in out


def test_compact(rlprobe: Run, recording: Path) -> None:
    left = recording / "steps" / ".x.parquet.0123abcd.tmp"
    left.touch()
    os.utime(left, (0, 0))
    code, out, err = rlprobe("compact", recording)
    assert code == 0
    assert "->" in out
    assert "deleted: 1 temporary file of writers that are gone" in err
    assert not left.exists()


# --- hostile input ---------------------------------------------------------------------------


def test_hostile_names_paths_and_texts(rlprobe: Run, tmp_path: Path) -> None:
    path = tmp_path / f"a{EVIL}b.jsonl"
    rows = [{"step": step, "loss": 0.1, f"{EVIL}{'m' * 10_000}": 1.0} for step in range(1, 60)]
    rows[-1]["loss"] = float("nan")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for words in (
        ["scan", path],
        ["scan", path, "--format", "json"],
        ["scan", path, "--format", "markdown"],
        ["gate", path],
        ["show", path, "--step", 59, "--all"],
        ["show", path, "--step", 60],
        ["query", path, "SELECT * FROM steps"],
        ["query", path, "SELECT * FROM nowhere"],
        ["scan", tmp_path / f"{EVIL}.jsonl"],
    ):
        _, out, err = rlprobe(*words)
        found = {c for c in out + err if unicodedata.category(c) in {"Cc", "Cf", "Cs"}}
        assert found <= {"\n"}, words


# --- as a process ----------------------------------------------------------------------------


def process(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlprobe", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help() -> None:
    done = process("--help")
    assert done.returncode == 0
    assert "scan" in done.stdout


def test_a_reader_that_goes_away_is_no_error(sick: Path) -> None:
    command = f"'{sys.executable}' -m rlprobe scan '{sick}' '{sick}'; echo $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({command}) | head -1"], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("/")
    assert done.stderr == "1\n"


def test_a_terminal_without_unicode(sick: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = process("scan", sick, env=environment)
    assert done.returncode == 1
    assert "GRAD_PATHOLOGY" in done.stdout


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'scipy', 'pyarrow', 'duckdb', 'rich', 'torch'}"
    code = (
        "import sys; from rlprobe.cli import main; main(['--help']); "
        f"loaded = {heavy} & set(sys.modules); assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
