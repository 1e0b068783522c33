"""Several ranks that print into one log."""

from __future__ import annotations

from pathlib import Path

from tests.importers.reading import points, read

LINE = "[rank{rank}]: step {step} | loss {loss} | grad_norm {norm} | step_time 0.{rank}5s\n"


def printed(norm_of_rank_2: float) -> str:
    return "".join(
        LINE.format(rank=rank, step=step, loss=1 / step, norm=norm_of_rank_2 if rank == 2 else 1.5)
        for step in range(1, 6)
        for rank in range(4)
    )


def test_ranks_that_differ_have_their_own_rows(tmp_path: Path) -> None:
    run = read(tmp_path, "run.log", printed(9.0))
    assert points(run, "grad_norm") == [(step, 1.5) for step in range(1, 6)]
    by_rank = run.ranks.series_by_rank("grad_norm")
    assert sorted(by_rank) == [0, 1, 2, 3]
    assert by_rank[2].values.tolist() == [9.0] * 5
    assert by_rank[3].values.tolist() == [1.5] * 5
    assert len(run.info.attempts) == 1
    assert "those of the rank that printed a step first, of 4 ranks" in " ".join(run.info.notes)


def test_ranks_that_print_the_same_count_once(tmp_path: Path) -> None:
    run = read(tmp_path, "run.log", printed(1.5))
    assert len(run.steps) == 5
    assert not len(run.ranks)
    assert "the same rows from 4 ranks: counted once" in run.info.notes
