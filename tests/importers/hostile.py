"""Inputs of every format, and what happens to them on the way: torn, cut, spliced, lied about.

An input is a tree of files: {relative path: content}. All of it goes by seeds.
"""

from __future__ import annotations

import functools
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from rlprobe.importers import open_runs
from rlprobe.store import from_run
from tests.importers import (  # noqa: F401 - they register themselves
    encoders,
    families,
    families_classic,
    families_rl,
    mishaps_inside,
    shapes,
    test_aim,
    test_completions,
    test_notebook,
)
from tests.importers import test_recorders as recorders
from tests.importers import test_stores as stores
from tests.importers import test_swanlab as swanlab
from tests.importers.mishaps import CHANGES, WORDS

Tree = dict[str, bytes]
_ROWS = [
    {"step": n, "loss": 1.5 / (n + 1), "reward": n / 8, "grad_norm": 0.5, "kl": 0.01 * n}
    for n in range(24)
]


def _jsonl() -> Tree:
    return {"log.jsonl": "".join(json.dumps(row) + "\n" for row in _ROWS).encode()}


def _json() -> Tree:
    return {"log.json": json.dumps(_ROWS, indent=1).encode()}


def _csv() -> Tree:
    out = io.BytesIO()
    pa.csv.write_csv(pa.Table.from_pylist(_ROWS), out)
    return {"log.csv": out.getvalue()}


def _parquet() -> Tree:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(_ROWS), out)
    return {"log.parquet": out.getvalue()}


def _trainer_state() -> Tree:
    state = {"global_step": 24, "max_steps": 24, "log_history": [dict(row) for row in _ROWS]}
    return {"trainer_state.json": json.dumps(state).encode()}


def _tensorboard() -> Tree:
    with tempfile.TemporaryDirectory() as name:
        events = (
            encoders.event(int(row["step"]), encoders.plain("loss", row["loss"])) for row in _ROWS
        )
        path = encoders.event_file(Path(name) / "events.out.tfevents.1.x", *events)
        return {path.name: path.read_bytes()}


def _wandb() -> Tree:
    config = encoders.run_record({"beta": 0.1})
    records = [config, *(encoders.history({"_step": row["step"], **row}) for row in _ROWS)]
    return {"run-x.wandb": encoders.wandb_bytes([*records, encoders.exit_record(1)])}


def _swanlab() -> Tree:
    return {"run-x.swanlab": swanlab.file()}


def _notebook() -> Tree:
    page = test_notebook.table({2: [0.9], 4: [0.8], 6: [0.7]}, "Training Loss")
    cells = [test_notebook.cell(test_notebook.stream(test_notebook.PRINTED))]
    cells.append(test_notebook.cell(test_notebook.shown(page)))
    return {"run.ipynb": test_notebook.notebook(*cells).encode()}


def _in_folder(make: Callable[[Path], object]) -> Callable[[], Tree]:
    def tree() -> Tree:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make(folder)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    return tree


def _trackio(folder: Path) -> None:
    stores.trackio(folder / "p.db", [("1", "a", n, row) for n, row in enumerate(_ROWS)])


def _mlflow(folder: Path) -> None:
    stores.mlflow(folder / "mlflow.db", stores.POINTS)


def _recording(folder: Path) -> None:
    write(_jsonl(), folder / "from")
    (run,) = open_runs(folder / "from" / "log.jsonl")
    from_run.write(run, folder / "run")
    (folder / "from" / "log.jsonl").unlink()


FORMATS: dict[str, Callable[[], Tree]] = {
    "jsonl": _jsonl,
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "hf_trainer_state": _trainer_state,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "swanlab": _swanlab,
    "notebook": _notebook,
    "trackio": _in_folder(_trackio),
    "mlflow": _in_folder(_mlflow),
    "mlflow_files": _in_folder(lambda folder: stores.mlflow_files(folder / "mlruns")),
    "aim": _in_folder(test_aim.repository),
    "rollouts": _in_folder(lambda folder: test_completions.trl(folder, 3, [0.0, None])),
    "rlprobe_0_1": _in_folder(recorders.recording),
    "rlwatch": _in_folder(lambda folder: recorders.rlwatch(folder / "w.db")),
    "trainscope": _in_folder(recorders.trainscope),
    "martingale": _in_folder(lambda folder: recorders.martingale(folder / "m.jsonl")),
    "recording": _in_folder(_recording),
}


@functools.cache
def whole(name: str) -> Tree:
    """An input of a format, as its writer leaves it."""
    return FORMATS[name]()


def write(tree: Tree, folder: Path) -> Path:
    """Put an input on disk; the file, where it is one, else the folder."""
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    names = list(tree)
    return folder / names[0] if len(names) == 1 else folder


def _splice(data: bytearray, random: Random) -> None:
    """A piece of another format."""
    other = random.choice(list(whole(random.choice(list(FORMATS))).values()))
    start = random.randrange(len(other) + 1)
    at = random.randrange(len(data))
    data[at:at] = other[start : start + random.choice((10, 300, 5000))]


def harmed(tree: Tree, random: Random) -> Tree:
    """The same input after one to four mishaps."""
    files = dict(tree)
    for _ in range(random.choice((1, 1, 2, 4))):
        name = random.choice(list(files))
        data = bytearray(files[name] or random.choice(WORDS))
        changes = mishaps_inside.changes(data)
        if not changes or random.random() < 0.3:
            changes = (*CHANGES, _splice)
        random.choice(changes)(data, random)
        files[name] = bytes(data)
    return files


@functools.cache
def _families() -> list[Tree]:
    samples = (make() for make in families.FAMILIES.values())
    return [{sample.file: sample.text.encode()} for sample in samples]


_KINDS = (*FORMATS, *("family",) * 4, *("shape",) * 4)


def kind_of(seed: int, only: str = "") -> bool:
    """Whether the input of a seed is of this kind; any is, if none is asked for."""
    return not only or Random(seed).choice(_KINDS) == only


def made(seed: int) -> tuple[str, Tree]:
    """The input of a seed, and its format."""
    random = Random(seed)
    kind = random.choice(_KINDS)
    if kind == "family":
        tree = random.choice(_families())
    elif kind == "shape":
        tree = {"train.log": shapes.log(random).text.encode()}
    else:
        tree = whole(kind)
    return kind, harmed(tree, random)


def texts_of(path: Path) -> Iterator[str]:
    """Reads all that is at a path, to the last value; whatever a user would be shown as text."""
    for run in open_runs(path):
        info = run.info
        yield from (info.id, *info.notes, *(problem.message for problem in run.problems))
        for frame in (run.steps, run.ranks):
            assert frame.step.dtype == "int64"
            for name in frame.names:
                values, valid = frame.load(name)
                assert len(values) == len(valid) == len(frame.step)
        yield from (event.message for event in run.events)
        for step in run.sample_steps()[:20]:
            yield from (rollout.completion or "" for rollout in run.rollouts(step))
