"""What is left of a line without its numbers: lines that have it in common mean the same.

A log of a million lines has a few dozen skeletons, and what is known of one line of a skeleton
(that it cannot matter, or how it is read) is known of all.
"""

from __future__ import annotations

import numpy as np

from rlprobe.values import BoolArray, IntArray

Codes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_OPENING = np.isin(np.arange(256), list(b" \t:=([,|'\"\n"))  # behind which a sign is of a number


def in_numbers(data: bytes) -> BoolArray:
    """Which bytes are of numbers: digits, and the signs, points and exponents among them."""
    number = _are_digits(np.frombuffer(data, np.uint8))
    starts, ends = spans(number)
    around = np.frombuffer(b"\n\n" + data + b"\n\n\n", np.uint8)
    before, last = around[starts], around[starts + 1]
    next_, then, after = around[ends + 2], around[ends + 3], around[ends + 4]
    leads = (_are_signs(last) | (last == ord("."))) & _OPENING[before]
    exponent = (next_ | 32) == ord("e")
    signed = exponent & _are_signs(then) & _are_digits(after)
    goes_on = ((next_ == ord(".")) | exponent) & _are_digits(then)
    number[starts[leads] - 1] = True
    number[ends[goes_on | signed]] = True
    number[ends[signed] + 1] = True
    return number


def _are_digits(codes: Codes) -> BoolArray:
    return np.asarray((codes - np.uint8(ord("0"))) < 10)  # unsigned: what is below wraps


def _are_signs(codes: Codes) -> BoolArray:
    return np.asarray((codes == ord("-")) | (codes == ord("+")))


def skeletons(data: bytes, number: BoolArray) -> list[bytes]:
    """Of every line: each number is `0`, and no more than two blanks stand together.

    Args:
        data: lines.
        number: which of its bytes are of numbers.
    """
    codes = np.frombuffer(data, np.uint8)
    blank = codes == ord(" ")
    left_out = (number & _last(number)) | (blank & _last(blank & _last(blank)))
    plain = np.where(number, np.uint8(ord("0")), codes)[~left_out]
    return bytes(plain).split(b"\n")


def spans(number: BoolArray) -> tuple[IntArray, IntArray]:
    """Where each number starts and ends."""
    changes = np.flatnonzero(number[1:] != number[:-1]) + 1
    if number[:1].any():
        changes = np.append(0, changes)
    if number[-1:].any():
        changes = np.append(changes, len(number))
    return changes[::2], changes[1::2]


def _last(flags: BoolArray) -> BoolArray:
    """Whether it holds of the character before."""
    moved = np.empty_like(flags)
    moved[:1], moved[1:] = False, flags[:-1]
    return moved
