"""Loops: the same n-gram again and again, in text of any script and in token ids.

One measure for guards, detectors and `rlprobe show`. Occurrences count that do not overlap, so that
a run of one token is not as many loops as it has tokens; rules and dots are no words and do not
count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlprobe.errors import UsageError
from rlprobe.values import BoolArray, IntArray

N = 8  # tokens of an n-gram
MOST_REPEATS = 3  # an n-gram may come so many times
COVERED = 0.5  # share of a text that looping n-grams fill: a loop, too, however short the text
ANSWER_REPEATS = 6  # outside the reasoning, where tables, code and lists repeat what they must
RUN = 100  # tokens in a row of looping n-grams that are a loop in an answer, however long it is
LONG_WORD = 24  # characters; longer "words" are text without spaces, and go by characters

_Codes = NDArray[np.uint64]


class _Grams(NamedTuple):
    """The n-grams of one text, of which half is words.

    Attributes:
        places: token at which each occurrence begins, those of one n-gram together.
        edges: where in `places` an n-gram's occurrences begin, and the end of the last.
        tokens: number of tokens of the text.
    """

    places: IntArray
    edges: IntArray
    tokens: int


def loops(
    text_or_tokens: str | Sequence[int] | NDArray[Any], n: int = N, max_repeats: int = MOST_REPEATS
) -> bool:
    """Whether some n-gram comes more than `max_repeats` times.

    Overlapping occurrences count where they fill half of the text: a short text that is nothing
    but one word is a loop.

    Raises:
        UsageError: `n` below 1, or neither text nor token ids.
    """
    grams = _grams(text_or_tokens, n)
    if _most(grams, n) > max_repeats:
        return True
    covered = _covered(grams, n, max_repeats)
    return bool(covered.any() and covered.mean() >= COVERED)


def loops_in_answer(text: str) -> bool:
    """Whether an answer says the same again and again, one time right after the other.

    Some n-gram comes more than `ANSWER_REPEATS` times, and such n-grams follow each other without
    a break over half of the text, or over `RUN` tokens. Numbers are no words here: a grid of them,
    a table and code may repeat themselves.
    """
    ids, words = _text_ids(text, numbers=False)
    grams = _grams_of(ids, words, N)
    if _most(grams, N) <= ANSWER_REPEATS:
        return False
    covered = _covered(grams, N, ANSWER_REPEATS)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], covered, [False]))))
    longest = int((edges[1::2] - edges[::2]).max(initial=0))
    return longest >= min(RUN, COVERED * grams.tokens)


def loops_in_completion(text: str, most: int | None = None) -> bool:
    """Whether a completion loops: inside any block of its reasoning, or outside of them.

    Args:
        most: characters of the end of each part that are read; default all.
    """
    blocks, answer = parts_of(text)
    cut = slice(None if most is None else -most, None)
    return any(loops(block[cut]) for block in blocks) or loops_in_answer(answer[cut])


def most_repeats(text_or_tokens: str | Sequence[int] | NDArray[Any], n: int = N) -> int:
    """How often the commonest n-gram occurs without overlap: 0 for fewer than n tokens.

    Text goes by words (or characters, where there are no spaces), token ids as they are. An n-gram
    of text counts if half of it is words. Costs a sort of the n-grams' 64-bit hashes: a few million
    tokens a second.

    Raises:
        UsageError: `n` below 1, or neither text nor token ids.
    """
    return _most(_grams(text_or_tokens, n), n)


def tokens_of(text: str) -> list[str]:
    """Words, punctuation marks, and single characters where a script has no spaces.

    Raises:
        UsageError: no text.
    """
    if not isinstance(text, str):
        raise UsageError(f"Couldn't split 'text' {text!r}: it is no text")
    starts, _, _ = _cut(_codes(text))
    ends = [*starts[1:].tolist(), len(text)][: len(starts)]
    return [
        text[first:end].rstrip(_SPACES) for first, end in zip(starts.tolist(), ends, strict=True)
    ]


def block_of(text: str, tag: str = "think") -> str:
    """What stands in the first block of a tag; the whole text where there is none.

    A block that is never closed runs to the end; one that the prompt has opened begins the text.
    """
    _, opened, rest = text.partition(f"<{tag}>")
    return (rest if opened else text).partition(f"</{tag}>")[0] or text


def parts_of(text: str, tag: str = "think") -> tuple[list[str], str]:
    """What stands in each block of a tag, and what stands outside of them, together.

    As `block_of`; the whole text is the one block where the tag is nowhere. A tag that is opened
    again and again begins no new block: that is how a loop of tags looks.
    """
    pieces = re.split(f"(</?{tag}>)", text)
    if len(pieces) == 1:
        return [text], ""
    inside = pieces[1].startswith("</")
    blocks, outside = list[str](), list[str]()
    for piece, mark in zip(pieces[::2], ["", *pieces[1::2]], strict=True):
        closes = mark.startswith("</")
        if mark and inside and not closes and blocks:  # opened once more within itself
            blocks[-1] += mark + piece
            continue
        inside = not closes if mark else inside
        (blocks if inside else outside).append(piece)
    return [block for block in blocks if block.strip()][-_MOST_BLOCKS:], "\n".join(outside)


# --- n-grams --------------------------------------------------------------------------------------


def _grams(source: str | Sequence[int] | NDArray[Any], n: int) -> _Grams:
    if n < 1:
        raise UsageError(f"Couldn't count n-grams of 'n' {n}: must be at least 1")
    return _grams_of(*(_text_ids(source) if isinstance(source, str) else _token_ids(source)), n)


def _grams_of(ids: _Codes, words: BoolArray, n: int) -> _Grams:
    if len(ids) < n:
        return _Grams(np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64), len(ids))
    hashes = _window_hashes(ids, n)
    counted = np.cumsum(np.concatenate([[0], words]))
    wordy = np.flatnonzero(2 * (counted[n:] - counted[:-n]) >= n)
    order = wordy[np.argsort(hashes[wordy])]
    ordered = hashes[order]
    new = ordered[1:] != ordered[:-1]
    edges = np.flatnonzero(np.concatenate([[len(order) > 0], new, [True]]))
    return _Grams(order, edges, len(ids))


def _window_hashes(ids: _Codes, n: int) -> _Codes:
    """A polynomial hash of every window of n ids, modulo 2^64."""
    mixed = (ids + np.uint64(1)) * _FACTOR
    mixed ^= mixed >> np.uint64(29)
    size = len(ids) - n + 1
    hashes = np.zeros(size, dtype=np.uint64)
    for offset in range(n):
        hashes = hashes * np.uint64(0xBF58476D1CE4E5B9) + mixed[offset : offset + size]
    return hashes


def _covered(grams: _Grams, n: int, max_repeats: int) -> BoolArray:
    """The tokens that n-grams fill which come more often than that."""
    counts = np.diff(grams.edges)
    looping = grams.places[np.repeat(counts > max_repeats, counts)]
    covered = np.zeros(grams.tokens, dtype=np.bool_)
    for offset in range(n if len(looping) else 0):
        covered[looping + offset] = True
    return covered


def _most(grams: _Grams, n: int) -> int:
    """The most occurrences of one n-gram that do not overlap."""
    counts = np.diff(grams.edges)
    most = 0
    for gram in np.argsort(-counts, kind="stable").tolist():
        if counts[gram] <= most:
            break
        places = np.sort(grams.places[grams.edges[gram] : grams.edges[gram + 1]])
        most = max(most, apart(places.tolist(), n))
    return most


def apart(places: Sequence[int], n: int) -> int:
    """How many n-grams that begin at these places, ascending, do not overlap."""
    count, free = 0, 0
    for place in places:
        if place >= free:
            count, free = count + 1, place + n
    return count


# --- tokens ---------------------------------------------------------------------------------------

_MOST_BLOCKS = 8  # of reasoning that are read, from the end
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, 2^64 over the golden ratio: a multiplicative hash
_ODD = np.array([2 * i + 1 for i in range(64)], dtype=np.uint64) * _FACTOR
_ODD ^= _ODD >> np.uint64(29)
_ODD |= np.uint64(1)
_SPACES = "".join(map(chr, range(33))) + "\u3000"
_LETTERS = np.array([chr(code).isalnum() for code in range(128)] + [True])


def _token_ids(source: Sequence[int] | NDArray[Any]) -> tuple[_Codes, BoolArray]:
    detach = getattr(source, "detach", None)  # a torch tensor, on whatever device
    array = np.asarray(source if detach is None else detach().cpu().numpy())
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(
            f"Couldn't read 'text_or_tokens' as text or token ids: shape {array.shape}, "
            f"type {array.dtype}"
        )
    return array.astype(np.int64).astype(np.uint64), np.ones(len(array), dtype=np.bool_)


def _text_ids(text: str, *, numbers: bool = True) -> tuple[_Codes, BoolArray]:
    """Hashes of the tokens of a text, and which of them are words rather than marks.

    Args:
        numbers: whether they count as words.
    """
    codes = _codes(text)
    starts, space, letter = _cut(codes)
    if not len(starts):
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.bool_)
    begun = np.zeros(len(codes), dtype=np.int64)
    begun[starts] = starts
    place = np.arange(len(codes)) - np.maximum.accumulate(begun)  # inside its word
    mixed = np.where(space, np.uint64(0), (codes + np.uint64(1)) * _ODD[place % 64])
    first = codes[starts]
    words = letter[starts] & (numbers | (first < ord("0")) | (first > ord("9")))
    return np.add.reduceat(mixed, starts), words


def _codes(text: str) -> _Codes:
    return np.frombuffer(text.encode("utf-32-le", "replace"), dtype="<u4").astype(np.uint64)


def _cut(codes: _Codes) -> tuple[IntArray, BoolArray, BoolArray]:
    """Where tokens begin; which characters are spaces, and which are letters or digits."""
    space = (codes <= 32) | (codes == 0x3000)
    letter = _LETTERS[np.minimum(codes, 128).astype(np.int64)]
    single = ~space & (~letter | _unspaced(codes))
    starts = _starts(space, single)
    single |= ~space & _in_long_word(starts, len(codes))
    return _starts(space, single), space, letter


def _unspaced(codes: _Codes) -> BoolArray:
    """Scripts that are written without spaces: CJK, kana, Thai, Lao, Khmer, Burmese."""
    asian = (codes >= 0x2E80) & (codes <= 0x9FFF)
    southern = ((codes >= 0x0E00) & (codes <= 0x0EFF)) | ((codes >= 0x1000) & (codes <= 0x109F))
    khmer = (codes >= 0x1780) & (codes <= 0x17FF)
    return asian | southern | khmer | (codes >= 0x20000)


def _starts(space: BoolArray, single: BoolArray) -> IntArray:
    before = np.concatenate(([True], space[:-1] | single[:-1]))
    return np.flatnonzero(~space & (single | before))


def _in_long_word(starts: IntArray, size: int) -> BoolArray:
    lengths = np.diff(np.append(starts, size))
    before = np.zeros(int(starts[0]) if len(starts) else size, dtype=np.bool_)
    return np.concatenate((before, np.repeat(lengths > LONG_WORD, lengths)))
