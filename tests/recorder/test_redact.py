"""What a user wants taken out of rollouts is taken out before anything of their text is stored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlprobe.errors import UsageError
from rlprobe.recorder import Recorder, SamplePolicy
from rlprobe.recorder.redact import Redact
from rlprobe.store.recording import Recording


def stored(
    run_dir: Path, redact: Redact, text: str = "full"
) -> tuple[list[tuple[str | None, str | None]], str]:
    """Prompts and completions as they are stored, and what the recording says it lost."""
    policy = SamplePolicy(text=text, redact=redact)
    with Recorder(run_dir, samples=policy, signals=False) as recorder:
        recorder.samples(
            1,
            prompts=["I am Ada, ada@example.org", "plain"],
            completions=["call 555-0199", "token hf_aBcDeFgHiJkLmNoPqRsTuV"],
            rewards=[1.0, 0.0],
        )
    recording = Recording(run_dir)
    rollouts = recording.rollouts(1)
    return [(rollout.prompt, rollout.completion) for rollout in rollouts], recording.info.health


def test_patterns(tmp_path: Path) -> None:
    texts, health = stored(tmp_path, [r"\S+@\S+", re.compile("ADA", re.IGNORECASE), r"\d{3}-\d+"])
    assert texts[0] == ("I am ***, ***", "call ***")
    assert texts[1][0] == "plain"
    assert health == ""


def test_a_function(tmp_path: Path) -> None:
    texts, _ = stored(tmp_path, str.upper)
    assert texts[0] == ("I AM ADA, ADA@EXAMPLE.ORG", "CALL 555-0199")


def test_what_looks_like_a_secret(tmp_path: Path) -> None:
    texts, _ = stored(tmp_path, "secrets")
    assert texts[1] == ("plain", "token ***")
    assert texts[0][1] == "call 555-0199"


def test_it_comes_before_the_text_is_cut(tmp_path: Path) -> None:
    texts, _ = stored(tmp_path, [r"ada@example\.org"], text="truncated:18")
    assert texts[0][0] == "I am Ada, ***"  # whole, as it is short enough now
    assert "***" in str(texts[0][0])


@pytest.mark.filterwarnings("ignore:rlprobe. could not redact:RuntimeWarning")
@pytest.mark.parametrize("kind", ["raises", "no text", "exits"])
def test_where_it_fails_no_text_is_stored_and_that_is_counted(tmp_path: Path, kind: str) -> None:
    def redact(text: str) -> str:
        if "plain" in text:
            return text
        if kind == "raises":
            raise ValueError(text)
        if kind == "exits":
            raise SystemExit(1)
        return None  # type: ignore[return-value]

    texts, health = stored(tmp_path, redact)
    assert texts == [(None, None), ("plain", None)]
    assert "3 texts not stored" in health
    assert b"Ada" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))


@pytest.mark.parametrize("wrong", ["(", "one pattern", 5, ["("], [None]])
def test_what_makes_no_sense_is_refused_at_once(wrong: Redact) -> None:
    with pytest.raises(UsageError, match="Couldn't redact by"):
        SamplePolicy(redact=wrong)
