"""Jupyter notebooks: their outputs in every layout, and nothing but their outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from tests.importers.reading import log, points, read

Json = dict[str, Any]

LOSSES = {2: 0.91, 4: 0.83, 6: 0.74, 8: 0.655}
PRINTED = "".join(
    f"{{'loss': {loss}, 'grad_norm': 1.5, 'learning_rate': 2e-06, 'epoch': {step / 100}}}\n"
    for step, loss in LOSSES.items()
)
SB3 = """-----------------------------
| rollout/       |          |
|    ep_rew_mean | {reward} |
| time/          |          |
|    total_timesteps | {step} |
| train/         |          |
|    loss        | 0.{step} |
-----------------------------
"""


def cell(*outputs: Json, source: str = "trainer.train()", kind: str = "code") -> Json:
    return {"cell_type": kind, "metadata": {}, "source": source, "outputs": list(outputs)}


def stream(text: str | list[str]) -> Json:
    return {"output_type": "stream", "name": "stdout", "text": text}


def shown(page: str | list[str], plain: str = "<IPython.core.display.HTML object>") -> Json:
    data = {"text/html": page, "text/plain": [plain]}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def result(plain: str) -> Json:
    return {"output_type": "execute_result", "metadata": {}, "data": {"text/plain": plain}}


def error(name: str, said: str) -> Json:
    frames = [f"\x1b[0;31m{'-' * 75}\x1b[0m", f"\x1b[0;31m{name}\x1b[0m Traceback (most recent)"]
    frames += [f"File site-packages/trainer.py:{line}, in train(self)" for line in range(30)]
    trace = [*frames, f"\x1b[0;31m{name}\x1b[0m: {said}"]
    return {"output_type": "error", "ename": name, "evalue": said, "traceback": trace}


def table(
    rows: dict[int, list[float]], *names: str, bar: str = "", style: str = "", gap: str = "\n"
) -> str:
    """A table as the Trainer's notebook callback and Unsloth draw it."""
    head = "".join(f"<th>{name}</th>{gap}" for name in ("Step", *names))
    body = "".join(
        f"<tr>{gap}"
        + "".join(f"<td>{value}</td>{gap}" for value in (step, *values))
        + f"</tr>{gap}"
        for step, values in rows.items()
    )
    return (
        f"{style}<div><progress value='1' max='9'></progress>{bar}</div>{gap}"
        f'<table border="1" class="dataframe">{gap}<thead><tr style="text-align: left;">{head}'
        f"</tr></thead>{gap}<tbody>{gap}{body}</tbody></table><p>"
    )


LOSS_TABLE = table({step: [loss] for step, loss in LOSSES.items()}, "Training Loss")


def notebook(*cells: Json, indent: int | None = 1, **more: Any) -> str:
    return json.dumps(
        {"cells": list(cells), "nbformat": 4, "nbformat_minor": 5, **more}, indent=indent
    )


def losses(folder: Path, text: str, name: str = "run.ipynb") -> list[tuple[int, float]]:
    return points(read(folder, name, text), "loss")


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("split", [True, False])
def test_a_table_reads_alike_in_every_layout(
    tmp_path: Path, indent: int | None, split: bool
) -> None:
    page = LOSS_TABLE.splitlines(keepends=True) if split else LOSS_TABLE
    assert losses(tmp_path, notebook(cell(shown(page)), indent=indent)) == list(LOSSES.items())


@pytest.mark.parametrize("text", [PRINTED, PRINTED.splitlines(keepends=True)])
@pytest.mark.parametrize("indent", [None, 2])
def test_printed_rows_read_alike_in_every_layout(
    tmp_path: Path, text: str | list[str], indent: int | None
) -> None:
    assert [
        value for _, value in losses(tmp_path, notebook(cell(stream(text)), indent=indent))
    ] == [*LOSSES.values()]


def test_a_table_without_line_ends_is_read(tmp_path: Path) -> None:
    page = table({3: [0.25, 0.5], 6: [0.125, 0.75]}, "Training Loss", "reward", gap="")
    run = read(tmp_path, "run.ipynb", notebook(cell(shown(page))))
    assert points(run, "reward_mean") == [(3, 0.5), (6, 0.75)]


def test_styles_and_scripts_in_a_page_are_no_text(tmp_path: Path) -> None:
    style = "<style scoped>\n .dataframe tbody { 'loss': 7.5, 'step': 1 }\n</style>"
    page = table({1: [0.5]}, "Training Loss", style=style)
    assert losses(tmp_path, notebook(cell(shown(page)))) == [(1, 0.5)]


def test_tables_of_stable_baselines_are_read(tmp_path: Path) -> None:
    text = "".join(SB3.format(reward=step // 100, step=step) for step in (512, 1024, 1536))
    run = read(tmp_path, "run.ipynb", notebook(cell(stream(text.splitlines(keepends=True)))))
    assert points(run, "reward_mean") == [(512, 5.0), (1024, 10.0), (1536, 15.0)]


def test_a_data_frame_is_read_without_its_index(tmp_path: Path) -> None:
    head = "<tr><th></th><th>step</th><th>loss</th></tr>"
    rows = "".join(f"<tr><th>{i}</th><td>{i * 5 + 5}</td><td>0.{i}5</td></tr>" for i in range(3))
    rows += "<tr><th>...</th><td>...</td><td>...</td></tr>"
    rows += "<tr><th>9</th><td>50</td><td>0.75</td></tr>"
    page = f"<table class='dataframe'>{head}{rows}</table>"
    assert losses(tmp_path, notebook(cell(shown(page, "step loss")))) == [
        (5, 0.05),
        (10, 0.15),
        (15, 0.25),
        (50, 0.75),
    ]


def test_source_and_markdown_are_never_metrics(tmp_path: Path) -> None:
    told = "step 7 | loss: 9.5 | reward: 3.5\n"
    text = notebook(
        cell(source=told, kind="markdown"),
        cell(stream(PRINTED), source=told),
        cell(source=[told, "{'loss': 4.5, 'step': 9}"]),  # type: ignore[arg-type]
    )
    assert [value for _, value in losses(tmp_path, text)] == [*LOSSES.values()]
    with pytest.raises(InputError, match="Couldn't find metrics"):
        open_runs(log(tmp_path, "told.ipynb", notebook(cell(source=told))))


def test_a_traceback_shows_source_that_is_no_metric(tmp_path: Path) -> None:
    failed = error("ValueError", "bad")
    failed["traceback"].insert(3, "---> 12 print('step 99 | loss: 5.5 | reward: 1.5')")
    run = read(tmp_path, "run.ipynb", notebook(cell(shown(LOSS_TABLE), failed)))
    assert points(run, "loss") == list(LOSSES.items())


def test_the_state_of_widgets_is_no_output(tmp_path: Path) -> None:
    widget = shown("", "Step 50 | loss: 3.5")
    widget["data"]["application/vnd.jupyter.widget-view+json"] = {"model_id": "a1"}
    state = {"widgets": {"state": {"a1": {"value": "step 51 | loss: 3.5"}}}}
    text = notebook(cell(widget, shown(LOSS_TABLE)), metadata=state)
    assert losses(tmp_path, text) == list(LOSSES.items())


def test_nbformat_3_lies_in_worksheets(tmp_path: Path) -> None:
    outputs = [
        {"output_type": "stream", "stream": "stdout", "text": ["loading\n"]},
        {"output_type": "display_data", "html": [LOSS_TABLE], "text": ["<HTML>"]},
        {"output_type": "pyerr", "ename": "RuntimeError", "evalue": "lost", "traceback": []},
    ]
    sheet = {"cells": [{"cell_type": "code", "input": ["train()"], "outputs": outputs}]}
    text = json.dumps({"metadata": {}, "nbformat": 3, "worksheets": [sheet]})
    run = read(tmp_path, "old.ipynb", text)
    assert points(run, "loss") == list(LOSSES.items())
    assert [(event.kind, event.step) for event in run.events] == [("crash", 8)]


def test_a_notebook_is_known_by_its_content(tmp_path: Path) -> None:
    text = notebook(cell(shown(LOSS_TABLE)), indent=None)
    run = read(tmp_path, "download.json", text)
    assert run.info.source == "notebook"
    assert points(run, "loss") == list(LOSSES.items())


def test_a_table_that_is_drawn_again_counts_once(tmp_path: Path) -> None:
    part = {step: [loss] for step, loss in list(LOSSES.items())[:2]}
    text = notebook(cell(shown(table(part, "Training Loss")), shown(LOSS_TABLE)))
    run = read(tmp_path, "run.ipynb", text)
    assert points(run, "loss") == list(LOSSES.items())
    assert len(run.info.attempts) == 1


def test_the_history_of_the_trainer_is_the_table_once_more(tmp_path: Path) -> None:
    history = [{"loss": loss, "grad_norm": 0.5, "step": step} for step, loss in LOSSES.items()]
    plain = "[" + ",\n ".join(str(row) for row in history) + "]"
    run = read(tmp_path, "run.ipynb", notebook(cell(shown(LOSS_TABLE)), cell(result(plain))))
    assert points(run, "loss") == list(LOSSES.items())
    assert points(run, "grad_norm") == [(step, 0.5) for step in LOSSES]
    assert len(run.info.attempts) == 1


def test_the_history_of_printed_rows_is_no_other_training(tmp_path: Path) -> None:
    history = [{"loss": loss, "grad_norm": 1.5, "step": step} for step, loss in LOSSES.items()]
    plain = "[" + ",\n ".join(str(row) for row in history) + "]"
    run = read(tmp_path, "run.ipynb", notebook(cell(stream(PRINTED)), cell(result(plain))))
    assert points(run, "loss") == list(enumerate(LOSSES.values(), start=1))


def test_a_table_without_rows_is_no_run(tmp_path: Path) -> None:
    trained = "TrainOutput(global_step=30, training_loss=0.9, metrics={'train_runtime': 17.5})"
    text = notebook(cell(shown(table({}, "Training Loss")), result(trained)))
    with pytest.raises(InputError, match="no output of its 1 cells holds rows"):
        open_runs(log(tmp_path, "run.ipynb", text))


def test_epochs_number_the_rows_where_there_are_no_steps(tmp_path: Path) -> None:
    head = "".join(f"<th>{name}</th>" for name in ("Epoch", "Training Loss", "Validation Loss"))
    rows = "".join(
        f"<tr><td>{epoch}</td><td>{loss}</td><td>0.{epoch}5</td></tr>"
        for epoch, loss in ((1, "No log"), (2, "0.625"), (3, "0.5"))
    )
    run = read(
        tmp_path, "run.ipynb", notebook(cell(shown(f"<table><tr>{head}</tr>{rows}</table>")))
    )
    assert points(run, "loss") == [(2, 0.625), (3, 0.5)]


def test_a_cell_that_failed_ends_the_training(tmp_path: Path) -> None:
    failed = error("OutOfMemoryError", "CUDA out of memory. Tried to allocate 3.50 GiB.")
    after = [cell(stream(f"line {i} of other work\n" * 30)) for i in range(3)]
    run = read(tmp_path, "run.ipynb", notebook(cell(shown(LOSS_TABLE), failed), *after))
    (event,) = run.events
    assert (event.kind, event.step) == ("crash", 8)
    assert "CUDA out of memory" in event.message


def test_another_cell_that_failed_is_no_end_of_the_training(tmp_path: Path) -> None:
    failed = cell(error("NameError", "name 'plot' is not defined"))
    run = read(tmp_path, "run.ipynb", notebook(cell(shown(LOSS_TABLE)), failed))
    assert not run.events


@pytest.mark.parametrize("indent", [None, 1])
def test_a_notebook_that_was_cut_off_is_read_up_to_the_cut(
    tmp_path: Path, indent: int | None
) -> None:
    text = notebook(cell(stream("loading\n"), shown(LOSS_TABLE)), indent=indent)
    cut = text[: text.index("<td>0.74") + len("<td>0.7")]
    run = read(tmp_path, "run.ipynb", cut)
    assert points(run, "loss") == [(2, 0.91), (4, 0.83)]
    assert any("cut off" in problem.message for problem in run.problems)


def test_every_cut_gives_the_rows_before_it_and_no_others(tmp_path: Path) -> None:
    text = notebook(cell(shown(LOSS_TABLE.splitlines(keepends=True)), stream(PRINTED)))
    whole = set(LOSSES.items())
    for end in range(text.index("<td>2<"), text.index('"name"'), 7):
        try:
            (run,) = open_runs(log(tmp_path, "cut.ipynb", text[:end]))
        except InputError:
            continue
        assert set(points(run, "loss")) <= whole, text[end - 40 : end]


def test_other_forms_of_outputs_do_no_harm(tmp_path: Path) -> None:
    odd: list[Any] = [None, 7, "text", {"output_type": "display_data", "data": [1]}]
    odd += [{"output_type": "stream", "text": None}, {"output_type": "error"}, {}]
    text = notebook(cell(*odd), "text", {"cell_type": "code"}, cell(shown(LOSS_TABLE)))  # type: ignore[arg-type]
    assert losses(tmp_path, text) == list(LOSSES.items())
