"""Token records of martingale."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any

import numpy as np

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.points import ColumnTable
from rlprobe.importers.source import Source
from rlprobe.importers.trackers.sqlite_file import Database, has_columns, opened
from rlprobe.importers.trainers.rollout_rows import Rollouts, Sampled
from rlprobe.values import FloatArray, Problem

_NEEDED = ("actor_id", "sequence_index", "digest", "record_json")
_SCORES = {"sequence_digest", "position", "train_revision_digest", "record_json"}
_FORMATS = {"f32": Struct(">f"), "f64": Struct(">d")}
_MOST_TOKENS = 50_000_000
_NOTE = "from recorded tokens: rewards, lengths, and trainer against sampler, per trained step"


class Martingale(Importer):
    """martingale's token records (`tokens.db`): every token of every rollout, with the log
    probability that the engine gave to it, and the one that the trainer gave to it later.

    Each step at which sequences were trained on becomes a row: rewards and their spread inside
    groups (rollouts of one prompt), lengths, the difference of the log probabilities (mean and
    largest, absolute), the importance weights and their effective sample size, the KL between the
    two (the estimator that is never negative), and how many steps old the rollouts were. Rollouts
    have no texts: the record holds token ids. Rows that a replay buffer handed out again count in
    the differences only.

    Source: martingale/record/{store,tokens,bits}.py (0.2).
    """

    name = "martingale"
    description = "martingale token records (tokens.db)"
    priority = 23

    def recognises(self, source: Source) -> bool:
        """An SQLite database with its table of sequences."""
        return has_columns(source, "sequences", *_NEEDED)

    def read(self, source: Source) -> list[Reading]:
        """The run in the record."""
        with opened(source.path) as database:
            if not database.columns("sequences") >= set(_NEEDED):
                raise InputError(f"Couldn't read '{source.path}': no table of sequences")
            record = _Record(_revisions(database))
            record.read(database)
        if not record.sequences:
            raise EmptyRunError(f"Couldn't find sequences in '{source.path}': no row holds one")
        return [record.reading(source)]


@dataclass
class _Sequence:
    """One rollout: the step that sampled it, and the log probability of each token."""

    prompt: str
    reward: float | None
    step: int
    logprobs: FloatArray
    replayed: bool
    trained: int | None = None


@dataclass
class _Difference:
    """The trainer against the sampler at one step: token by token, and the ages of sequences."""

    tokens: array[float] = field(default_factory=lambda: array("d"))
    ages: list[int] = field(default_factory=list)

    def metrics(self) -> dict[str, float]:
        """What they tell of the step."""
        apart = np.frombuffer(self.tokens, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp(apart)
            ess = weights.sum() ** 2 / (len(weights) * (weights**2).sum())
            kl = float(np.mean(weights - apart - 1.0))
        return {
            "logprob_diff_mean": float(np.abs(apart).mean()),
            "logprob_diff_max": float(np.abs(apart).max()),
            "mismatch_kl": kl,
            "is_ratio_mean": float(weights.mean()),
            "is_ratio_max": float(weights.max()),
            "is_ess": float(ess),
            "staleness_mean": float(np.mean(self.ages)),
            "staleness_max": float(np.max(self.ages)),
        }


@dataclass
class _Record:
    steps: Mapping[str, int]
    sequences: dict[str, _Sequence] = field(default_factory=dict)
    differences: dict[int, _Difference] = field(default_factory=dict)
    bad: int = 0
    full: bool = False

    def read(self, database: Database) -> None:
        """Take every sequence, then what the trainer made of its tokens."""
        tokens = 0
        for (text,) in database.rows("SELECT record_json FROM sequences ORDER BY rowid"):
            sequence = _sequence(text, self.steps)
            if sequence is None:
                self.bad += 1
                continue
            tokens += len(sequence[1].logprobs)
            if tokens > _MOST_TOKENS:
                self.full = True
                break
            self.sequences[sequence[0]] = sequence[1]
        if database.columns("scores") >= _SCORES:
            self._score(database)

    def _score(self, database: Database) -> None:
        aged: set[tuple[str, int]] = set()
        query = (
            "SELECT sequence_digest, position, train_revision_digest, record_json FROM scores "
            "ORDER BY rowid"
        )
        for digest, position, revision, text in database.rows(query):
            sequence, step = self.sequences.get(str(digest)), self.steps.get(str(revision))
            logprob = _logprob(text)
            if sequence is None or step is None or not isinstance(position, int):
                continue
            if logprob is None or not 0 <= position < len(sequence.logprobs):
                self.bad += 1
                continue
            into = self.differences.setdefault(step, _Difference())
            into.tokens.append(logprob - float(sequence.logprobs[position]))
            if (str(digest), step) not in aged:
                aged.add((str(digest), step))
                into.ages.append(step - sequence.step)
                sequence.trained = step if sequence.trained is None else sequence.trained

    def reading(self, source: Source) -> Reading:
        """All of it."""
        rollouts = Rollouts(source.name)
        for sequence in self.sequences.values():
            if not sequence.replayed:
                rollouts.add(_sampled(sequence))
        sampled, derived, notes = rollouts.finish()
        at = derived.steps()
        table = ColumnTable(at, derived.columns())
        for step, difference in sorted(self.differences.items()):
            table.add(step, difference.metrics())
        problems = [f"{self.bad:,} rows left out: not readable"] if self.bad else []
        problems += [f"all after {_MOST_TOKENS:,} tokens left out"] if self.full else []
        return Reading(
            rows=table,
            rollouts=sampled,
            notes=[_NOTE, *notes],
            problems=[Problem(str(source.path), message) for message in problems],
        )


def _sampled(sequence: _Sequence) -> Sampled:
    return Sampled(
        step=sequence.step if sequence.trained is None else sequence.trained,
        prompt=None,
        completion=None,
        reward=sequence.reward,
        group=sequence.prompt[:16],
        length=len(sequence.logprobs),
        prompt_id=sequence.prompt[:16],
    )


def _revisions(database: Database) -> dict[str, int]:
    """The step of each version of the weights."""
    if not database.columns("llm_revisions") >= {"digest", "step"}:
        return {}
    rows = database.rows("SELECT digest, step FROM llm_revisions")
    return {str(digest): step for digest, step in rows if isinstance(step, int)}


def _sequence(text: object, steps: Mapping[str, int]) -> tuple[str, _Sequence] | None:
    raw = _object(text)
    tokens = raw.get("tokens")
    if not isinstance(tokens, list) or not isinstance(raw.get("digest"), str):
        return None
    logprobs = [_bits(bits) for bits in _each(tokens, "logprob_bits")]
    sampled = [steps.get(str(revision)) for revision in _each(tokens, "revision_digest")]
    if not logprobs or None in logprobs or sampled[0] is None:
        return None
    return raw["digest"], _Sequence(
        prompt=str(raw.get("prompt_digest")),
        reward=_bits(raw.get("reward_bits")),
        step=sampled[0],
        logprobs=np.array(logprobs, dtype=np.float64),
        replayed=raw.get("replay") is not None,
    )


def _each(tokens: list[Any], key: str) -> Iterator[Any]:
    return (token.get(key) if isinstance(token, dict) else None for token in tokens)


def _logprob(text: object) -> float | None:
    return _bits(_object(text).get("logprob_bits"))


def _object(text: object) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str | bytes) else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _bits(text: object) -> float | None:
    """A number that is written as the bits of a float: `f32:bf800000`."""
    if not isinstance(text, str):
        return None
    kind, _, digits = text.partition(":")
    try:
        value: float = _FORMATS[kind].unpack(bytes.fromhex(digits))[0]
    except (KeyError, ValueError, error):
        return None
    return value
