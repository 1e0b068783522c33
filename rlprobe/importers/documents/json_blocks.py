"""Many JSON lines at once -> columns, through DuckDB; whatever it cannot prove is read one by one.

The first rows say which keys there are and what they hold. Of a block it is then counted how many
keys, strings and nulls stand in its bytes, and how many values came out of it: where the numbers
differ, a row has another key, a key twice, or a text where others have a number, and the block is
refused. So no value is lost that a look at every row would have found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from rlprobe.importers.numbers import looks_like_number, number
from rlprobe.importers.steps import step_number
from rlprobe.store.json_lines import JSONEngine
from rlprobe.values import BoolArray, FloatArray, IntArray

WORTHWHILE_BYTES = 2 * 1024 * 1024  # below that, loading DuckDB costs more than it saves
_DEEPEST = 8
_MOST_COLUMNS = 2000
_SAMPLE = 100  # lines that are looked at for their keys at each of the places below
_PLACES = 8
_SAMPLE_BYTES = 256 * 1024
_BATCH = 4096  # rows that the engine takes at once
_SLICE = 512 * 1024  # bytes that are counted at once: they stay in the cache
_LARGEST = float(2**62)
# Text that spells no number and looks like none: a word, a date, a path.
_NO_NUMBER = re.compile(r"\s*(?:[a-zA-Z_/][^(]*|\d{4}-\d\d-\d\d.*|)")
_SPELT = re.compile(r"[-+]?(?:nan|inf)", re.IGNORECASE)

Kinds = dict[str, Any]  # key -> `number`, `text`, `list`, or the kinds of an object
Path = tuple[str, ...]
_Column = tuple[FloatArray, BoolArray | None]
_V = TypeVar("_V")


@dataclass(frozen=True)
class Block:
    """Rows as columns of values and validity; None where every row has the value.

    Attributes:
        size: how many rows.
        columns: of numbers, by their key.
        texts: for keys that hold text: what rows have there, None for those that have none.
        objects: keys of every row that hold an object.
    """

    size: int
    columns: dict[str, _Column]
    texts: Mapping[str, Sequence[str | None]]
    objects: frozenset[str]

    def steps(self, key: str) -> tuple[IntArray, BoolArray] | None:
        """The step of each row under a key, and which rows have one; None if no row has the key."""
        if key in self.texts:
            found = [step_number(text) for text in self.texts[key]]
            has = np.array([step is not None for step in found], dtype=np.bool_)
            return np.array([step or 0 for step in found], dtype=np.int64), has
        if key not in self.columns:
            return None
        values, valid = self.columns[key]
        good = np.isfinite(values) & (np.floor(values) == values) & (np.abs(values) < _LARGEST)
        if valid is not None:
            good &= valid
        return np.where(good, values, 0).astype(np.int64), good

    def unwrapped(self, wrappers: Sequence[str], settings: Sequence[str]) -> Block | None:
        """Without the object that wraps the metrics, and without settings.

        None if only some rows have these, or one where others have something else.
        """
        tops = dict.fromkeys(key.partition("/")[0] for key in (*self.columns, *self.texts))
        if any(key not in self.objects for key in (*wrappers, *settings) if key in tops):
            return None
        dropped = {top for top in settings if top in tops}
        wrapper = next((f"{key}/" for key in wrappers if key in tops), "")
        return Block(
            self.size,
            _without(self.columns, wrapper, dropped),
            _without(self.texts, wrapper, dropped),
            frozenset(),
        )


def _without(values: Mapping[str, _V], wrapper: str, left: Collection[str]) -> dict[str, _V]:
    """Keys without the wrapper before them; what it wraps goes before what lies beside it."""
    kept = {key: value for key, value in values.items() if key.partition("/")[0] not in left}
    beside = {k: v for k, v in kept.items() if not wrapper or not k.startswith(wrapper)}
    inside = {k[len(wrapper) :]: v for k, v in kept.items() if wrapper and k.startswith(wrapper)}
    return {**beside, **inside}


@dataclass
class BlockReader:
    """Reads blocks of rows that have the same kinds of values under their keys.

    Args:
        null_is_nan: whether a null is a number that was not finite, and not one that is missing.
    """

    null_is_nan: bool = False
    _kinds: Kinds = field(default_factory=dict)
    _engine: JSONEngine = field(default_factory=JSONEngine)

    def read(self, block: bytes) -> Block | None:
        """The rows of a block of whole lines; None if they have to be read one by one."""
        if b"\\" in block:
            return None  # an escape may hide a quote
        if self._kinds and (found := self._read(block)) is not None:
            return found
        before = json.dumps(self._kinds)
        try:
            for line in _sample(block):
                _learn(self._kinds, json.loads(line))
        except (ValueError, TypeError, AttributeError, RecursionError):
            self._kinds = {}
            return None
        return self._read(block) if json.dumps(self._kinds) != before else None

    def _read(self, block: bytes) -> Block | None:
        leaves = list(_leaves(self._kinds, ()))
        if not leaves or len(leaves) > _MOST_COLUMNS:
            return None
        table = self._engine.columns(_lines(block), _query(self._kinds, leaves))
        return None if table is None else self._proven(block, leaves, table)

    def _proven(
        self, block: bytes, leaves: Sequence[tuple[Path, str]], table: Mapping[str, Any]
    ) -> Block | None:
        """The columns, if nothing stands in the bytes that is not in them."""
        size = len(table["c0"])
        there = [_valid(table[f"c{place}"]) for place in range(len(leaves))]
        values, texts = 0, 0
        for (_, kind), mask in zip(leaves, there, strict=True):
            count = size if mask is None else int(np.count_nonzero(mask))
            values += count
            texts += count if kind == "text" else 0
        quotes, keys = _quotes_and_keys(block)
        nulls = keys - values
        if quotes != 2 * keys + 2 * texts or (nulls and block.count(b"null") != nulls):
            return None
        as_nan = bool(nulls) and self.null_is_nan
        if as_nan and not _only_numbers(leaves, there, nulls):
            return None
        columns: dict[str, _Column] = {}
        words: dict[str, Sequence[str | None]] = {}
        for place, ((path, kind), mask) in enumerate(zip(leaves, there, strict=True)):
            key = "/".join(path)
            if kind == "number" and mask is not None and as_nan:
                columns[key] = np.where(mask, np.ma.getdata(table[f"c{place}"]), np.nan), None
            elif kind == "number" and (mask is None or mask.any()):
                columns[key] = np.ma.getdata(table[f"c{place}"]), mask
            elif kind == "text":
                words[key] = _strings(table[f"t{place}"])
        for key, said in words.items():
            column, understood = _numbers(said)
            if not understood:
                return None
            if column is not None:
                columns[key] = column
        objects = (
            path[0]
            for (path, kind), mask in zip(leaves, there, strict=True)
            if kind == "object" and len(path) == 1 and mask is None
        )
        return Block(size, columns, words, frozenset(objects))


def _quotes_and_keys(block: bytes) -> tuple[int, int]:
    """How many quotes stand in the bytes, and how many of them end a key."""
    codes = np.frombuffer(block, np.uint8)
    quotes, keys = 0, 0
    for start in range(0, len(codes), _SLICE):
        part = codes[start : start + _SLICE + 1]
        quote = part[:_SLICE] == ord('"')
        quotes += int(np.count_nonzero(quote))
        keys += int(np.count_nonzero(quote[: len(part) - 1] & (part[1:] == ord(":"))))
    return quotes, keys


def _only_numbers(
    leaves: Sequence[tuple[Path, str]], there: Sequence[BoolArray | None], nulls: int
) -> bool:
    """Whether whatever is not there is a null where others have a number."""
    missing = 0
    for (_, kind), mask in zip(leaves, there, strict=True):
        absent = 0 if mask is None else int(np.count_nonzero(~mask))
        if absent and kind != "number":
            return False
        missing += absent
    return missing == nulls


def _sample(block: bytes) -> Iterator[bytes]:
    """Lines from all over a block."""
    lines: list[bytes] = []
    for place in range(_PLACES):
        start = block.find(b"\n", len(block) * place // _PLACES) + 1 if place else 0
        stop = block.find(b"\n", start + _SAMPLE_BYTES)
        lines = block[start : stop if stop >= 0 else len(block)].splitlines()
        yield from lines[:_SAMPLE]
    yield from lines[-_SAMPLE:]


def _learn(kinds: Kinds, row: Mapping[str, Any], depth: int = 0) -> None:
    """Add the keys of a row; TypeError where one holds this here and that there."""
    for key, value in row.items():
        if value is None:
            continue
        if isinstance(value, dict):
            inner = kinds.setdefault(key, {})
            if depth >= _DEEPEST or not isinstance(inner, dict) or not value:
                raise TypeError(key)
            _learn(inner, value, depth + 1)
            continue
        kind = "number" if isinstance(value, int | float) else "text"
        kind = "list" if isinstance(value, list) else kind
        if kinds.setdefault(key, kind) != kind:
            raise TypeError(key)


def _leaves(kinds: Kinds, path: Path) -> Iterator[tuple[Path, str]]:
    for key, kind in kinds.items():
        if isinstance(kind, dict):
            yield (*path, key), "object"
            yield from _leaves(kind, (*path, key))
        else:
            yield (*path, key), kind


def _query(kinds: Kinds, leaves: Sequence[tuple[Path, str]]) -> str:
    parts: list[str] = []
    for place, (path, kind) in enumerate(leaves):
        value = ".".join(["r", *('"' + key.replace('"', '""') + '"' for key in path)])
        if kind == "number":
            parts.append(f"{value} AS c{place}")
        else:
            parts.append(f"CASE WHEN {value} IS NOT NULL THEN 1 END AS c{place}")
        if kind == "text":
            parts.append(f"{value} AS t{place}")
    shape = json.dumps(_types(kinds)).replace("'", "''")
    return f"SELECT {', '.join(parts)} FROM (SELECT from_json(line, '{shape}') AS r FROM lines)"  # noqa: S608


def _types(kinds: Kinds) -> dict[str, Any]:
    names = {"number": "DOUBLE", "text": "VARCHAR", "list": "JSON"}
    return {k: _types(kind) if isinstance(kind, dict) else names[kind] for k, kind in kinds.items()}


def _lines(block: bytes) -> Any:
    """The lines of a block as a column of text; no byte is copied."""
    import pyarrow as pa

    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")).astype(np.int32)
    last = [] if block.endswith(b"\n") else [len(block)]
    offsets = np.concatenate(([0], ends + 1, last)).astype(np.int32)
    lines = pa.Array.from_buffers(
        pa.utf8(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )
    table = pa.table({"line": lines})
    return pa.Table.from_batches(table.to_batches(max_chunksize=_BATCH))


def _valid(column: Any) -> BoolArray | None:
    mask = np.ma.getmask(column)
    return None if mask is np.ma.nomask or not mask.any() else ~np.asarray(mask, dtype=np.bool_)


def _strings(column: Any) -> list[str | None]:
    texts: list[str | None] = np.ma.getdata(column).tolist()
    mask = np.ma.getmask(column)
    if mask is np.ma.nomask:
        return texts
    return [None if hidden else text for text, hidden in zip(texts, mask, strict=True)]


def _numbers(words: Sequence[str | None]) -> tuple[_Column | None, bool]:
    """Numbers that were written as text, if some were; and whether all were understood."""
    known: dict[str | None, float | None] = {}
    for word in set(words):
        if word is None or (_NO_NUMBER.fullmatch(word) and not _SPELT.match(word.strip())):
            known[word] = None
            continue
        known[word] = number(word)
        if known[word] is None and looks_like_number(word):
            return None, False
    if all(value is None for value in known.values()):
        return None, True
    found = [known[word] for word in words]
    valid = np.array([value is not None for value in found], dtype=np.bool_)
    values = np.array([np.nan if value is None else value for value in found], dtype=np.float64)
    return (values, valid), True
