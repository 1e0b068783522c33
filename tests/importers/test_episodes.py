"""Episodes that end at one step, each on a line of its own."""

from __future__ import annotations

from pathlib import Path

from tests.importers.reading import points, read


def test_the_step_has_the_mean_of_its_episodes(tmp_path: Path) -> None:
    text = "".join(
        f"global_step={step}, episodic_return={value}\n"
        for step, values in ((1024, (1.0, 2.0, 6.0)), (2048, (4.0,)), (3072, (5.0, 5.0, 8.0)))
        for value in values
    )
    run = read(tmp_path, "run.log", text)
    assert points(run, "reward_mean") == [(1024, 3.0), (2048, 4.0), (3072, 6.0)]
    said = "several episodes end at one step: their mean (4 rows more than steps)"
    assert said in run.info.notes
    assert len(run.info.attempts) == 1


def test_other_rows_of_one_step_are_no_samples(tmp_path: Path) -> None:
    run = read(tmp_path, "run.log", "step 1 | loss 2.0\nstep 1 | loss 4.0\nstep 2 | loss 1.0\n")
    assert points(run, "loss")[-1] == (2, 1.0)
    assert not [note for note in run.info.notes if "mean" in note]
