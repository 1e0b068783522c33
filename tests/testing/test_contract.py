"""The contract of a detector is checked whole: each broken promise is named."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlprobe import catalog
from rlprobe.cli import main
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, knob, rule
from rlprobe.errors import InputError
from rlprobe.rule import SINCE, Period, finding
from rlprobe.testing import check_detector, load_cases

PAGE = (Path(__file__).parents[2] / "docs" / "writing-a-detector.md").read_text(encoding="utf-8")
LENGTHS = Path(__file__).parents[1] / "detectors" / "length_collapse.toml"


def broken(detector: type[Detector], cases: object = LENGTHS) -> str:
    with pytest.raises(AssertionError) as caught:
        check_detector(detector, cases)  # type: ignore[arg-type]
    return str(caught.value)


def renamed(**changes: object) -> type[Detector]:
    """LENGTH_COLLAPSE with something changed."""
    return type("LengthCollapse", (catalog.get("LENGTH_COLLAPSE"),), changes)


def test_a_detector_of_the_catalogue_keeps_it() -> None:
    check_detector(catalog.get("LENGTH_COLLAPSE"), LENGTHS)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (
            {"needs": (("completion_lenght_mean",),)},
            "needs 'completion_lenght_mean': no such metric",
        ),
        ({"needs": (("reward_componnent/*",),)}, "needs 'reward_componnent/*': no such metric"),
        ({"needs": (("event:nan_detect",),)}, "needs 'event:nan_detect': no such kind of event"),
        ({"caused_by": ("KL_BLOWUPP",)}, "caused_by 'KL_BLOWUPP': no such detector"),
        ({"caused_by": ("LENGTH_COLLAPSE",)}, "caused_by 'LENGTH_COLLAPSE': itself"),
        ({"id": "LENGTH_COLAPSE"}, "the class is called LengthCollapse"),
        ({"__doc__": "Says nothing"}, "the page has not the sections"),
    ],
)
def test_a_misspelt_declaration_is_named(changes: dict[str, object], word: str) -> None:
    assert word in broken(renamed(**{"__doc__": renamed().__mro__[1].__doc__, **changes}))


class Asking(Detector):
    """Asks for what it is told to.

    What it detects
        Nothing.

    Why it matters
        It does not.

    How it is computed
        `much` is not used.

    What to do
        Nothing.

    When it is wrong
        Always.

    References
        None.
    """

    id = "ASKING"
    severity = Severity.INFO
    needs = (("loss",),)

    much: float = knob(1, "nothing")

    @rule("first")
    def _first(self, run: RunContext) -> Iterator[Finding]:
        """Fires always."""
        run.series("los")
        run.names("rewrd_component/")
        run.events("checkpiont")
        yield finding(
            self,
            Period(run, run.first_step, run.last_step, recovered=False),
            f"Something is wrong{SINCE}.",
            variant="frist",
            evidence=(Evidence("loss_maen", None, 1.0),),
            remedies=("nothing",),
        )


def test_names_that_are_asked_for_are_checked_while_a_case_runs() -> None:
    case = {
        "name": "one",
        "columns": {"loss": [1.0, 2.0]},
        "fires": [{"variant": "frist"}],
        "qiet": 1,
    }
    words = broken(Asking, [case])
    for word in (
        "asks for metric 'los', which means nothing",
        "asks for metrics 'rewrd_component/…', which means nothing",
        "asks for event 'checkpiont', which means nothing",
        "speaks of 'loss_maen', which means nothing",
        "variant 'frist' is declared by no rule",
        "no case in which 'first' fires",
        "unknown key 'qiet'",
        "no case file without three that are quiet",
    ):
        assert word in words, words


def test_a_rule_may_stand_for_every_variant() -> None:
    class Open(Asking):
        id = "OPEN"

        @rule("*")
        def _any(self, run: RunContext) -> Iterator[Finding]:
            """Called after what happened."""
            yield from ()

    words = broken(Open, [{"name": "one", "columns": {"loss": [1.0, 2.0]}, "quiet": True}])
    assert "declared by no rule" not in words
    assert "'*' fires" not in words


def test_a_case_that_does_not_hold_is_named() -> None:
    cases = load_cases(LENGTHS)
    cases[0]["fires"] = [{"first_bad_step": 7}]
    assert f"case '{cases[0]['name']}': wanted {{'first_bad_step': 7}}" in broken(renamed(), cases)


@pytest.mark.parametrize("text", ["case = [", "x = 1"])
def test_a_case_file_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cases.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(f"Couldn't read the cases in '{path}'")):
        load_cases(path)
    with pytest.raises(InputError, match="No such file"):
        load_cases(tmp_path / "absent.toml")


# --- the page that writes one ---------------------------------------------------------------------


def block(start: str) -> str:
    """The code block of the page that begins with these words."""
    return next(
        str(b) for b in re.findall(r"```\w*\n(.*?)```", PAGE, re.DOTALL) if b.startswith(start)
    )


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files, as a reader would write them."""
    folder = tmp_path / "my_detectors"
    folder.mkdir()
    (folder / "queue_backlog.py").write_text(block('"""QUEUE_BACKLOG'))
    (folder / "queue_backlog.toml").write_text(block("[[case]]"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "queue_backlog", raising=False)
    return folder


def test_the_page_writes_a_detector_that_passes(written: Path) -> None:
    exec(compile(block("from queue_backlog"), "page", "exec"), {})


def test_the_detector_of_the_page_is_used_in_a_scan(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = written / "log.csv"
    rows = [f"{step},{20 if step < 60 else 200}" for step in range(1, 101)]
    log.write_text("step,rollout_queue_length\n" + "\n".join(rows))
    main(["scan", str(log), "--detectors", str(written), "--select", "QUEUE_BACKLOG"])
    assert "The queue grew from 20 to 200 rollouts from step 60 on." in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["explain", "queue-backlog", "--detectors", str(written)]) == 0
    assert "points = 8: logged lengths that are needed" in capsys.readouterr().out
