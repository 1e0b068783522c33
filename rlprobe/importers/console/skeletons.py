"""What is left of a line without its numbers: lines that have it in common mean the same.

A log of a million lines has a few dozen skeletons, and what is known of one line of a skeleton
(that it cannot matter, or how it is read) is known of all.
"""

from __future__ import annotations

import numpy as np

from rlprobe.values import BoolArray, IntArray

_OPENING = np.isin(np.arange(256), list(b" \t:=([,|'\"\n"))  # behind which a sign is of a number


def in_numbers(data: bytes) -> BoolArray:
    """Which bytes are of numbers: digits, and the signs, points and exponents among them."""
    codes = np.frombuffer(data, np.uint8)
    digit = (codes - ord("0")) < 10  # unsigned: what is below wraps
    number = digit.copy()
    signed = ((codes == ord("-")) | (codes == ord("+"))) & _next(digit)
    dot, exponent = codes == ord("."), (codes | 32) == ord("e")
    goes_on = _next(digit) | _next(signed)
    middle = _last(digit) & ((dot & _next(digit)) | (exponent & goes_on))
    number |= middle | (signed & _last(middle & exponent))
    number |= (signed | (dot & _next(digit))) & _last(_OPENING[codes])
    return number


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
    changes = np.flatnonzero(np.diff(number, prepend=False, append=False))
    return changes[::2], changes[1::2]


def _last(flags: BoolArray) -> BoolArray:
    """Whether it holds of the character before."""
    moved = np.empty_like(flags)
    moved[:1], moved[1:] = False, flags[:-1]
    return moved


def _next(flags: BoolArray) -> BoolArray:
    """Whether it holds of the character after."""
    moved = np.empty_like(flags)
    moved[-1:], moved[:-1] = False, flags[1:]
    return moved
