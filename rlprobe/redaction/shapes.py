"""What a value looks like: a token of a known make, a key, letters at random; or harmless."""

from __future__ import annotations

import itertools
import re

from rlprobe.redaction.names import WEAK

MASK = "***"
_PLAIN_VALUES = re.compile(
    "true|false|none|null|yes|no|on|off|auto|default|basic|digest|bearer|negotiate|ntlm|kerberos"
    "|required|optional|disabled|enabled",
    re.IGNORECASE,
)
_LONG_VALUE = 20
_ALL_KINDS, _OFTEN = 3, 0.42  # of characters; changes from one to the next
# Letters and digits, or too many letters for a word.
_NO_WORD = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9]{8,}|[A-Za-z0-9+/=]{16,}")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
REFERENCE = re.compile(r"\$\{?\w+\}?|\$\(.*\)|%\w+%|\{\{.*\}\}|<[^>]*>|\*+|env:\w+")

SHAPES = re.compile(
    r"""(?<![A-Za-z0-9_])(?:
      hf_[A-Za-z0-9]{16,} | api_org_[A-Za-z0-9]{16,}
    | sk-(?:proj|ant|or|svcacct|admin|live|test|lf|None)-[\w-]{10,} | sk-[A-Za-z0-9]{20,}
    | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_\w{16,}
    | gl(?:pat|dt|rt|ft|soat|cbt|ptt|agent|imt)-[\w-]{12,}
    | xox[abceoprs]-[\w-]{10,} | xapp-[\w-]{10,}
    | (?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[A-Z0-9]{12,} | AIza[\w-]{20,} | ya29\.[\w-]{16,}
    | GOCSPX-[\w-]{16,} | eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*){0,3}
    | npm_[A-Za-z0-9]{20,} | pypi-[\w-]{20,} | dckr_[a-z]+_[\w-]{16,} | r8_[A-Za-z0-9]{20,}
    | gsk_[A-Za-z0-9]{20,} | pplx-[A-Za-z0-9]{20,} | nvapi-[\w-]{16,} | xai-[A-Za-z0-9]{20,}
    | csk-[A-Za-z0-9]{20,} | SG\.[\w-]{12,}\.[\w-]{12,} | [rspw]k_(?:live|test)_[A-Za-z0-9]{10,}
    | shp(?:at|ss|ca|pa)_[A-Za-z0-9]{16,} | do[opr]_v1_[a-z0-9]{20,} | lin_api_\w{16,}
    | rpa_[A-Za-z0-9]{20,} | tgp_v\d_[\w-]{16,} | fw_[A-Za-z0-9]{20,} | dapi[0-9a-f]{30,}
    | hv[sb]\.[\w-]{16,} | sntry[su]_[\w=+/-]{16,} | ATATT3x[\w=-]{16,} | ntn_[A-Za-z0-9]{20,}
    | secret_[A-Za-z0-9]{24,} | wandb_v\d_\w{16,} | local-[0-9a-f]{40} | SK[0-9a-f]{32}
    | AGE-SECRET-KEY-[A-Z0-9]{16,} | tvly-[\w-]{12,} | jina_[A-Za-z0-9]{20,} | e2b_[a-z0-9]{20,}
    | [MNO][A-Za-z0-9]{22,26}\.[\w-]{6}\.[\w-]{27,} | \d{8,10}:AA[\w-]{30,}
    )""",
    re.VERBOSE,
)
PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
HEX = re.compile(r"(?<![\w-])(?:[0-9a-f]{40}|[0-9a-f]{64})(?![\w-])")
RUN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9])")
LONG = re.compile(r"(?<![\w/+.~-])[A-Za-z0-9+][A-Za-z0-9/+_-]{31,}={0,2}(?![\w/+-])")


def is_harmless(value: str, level: int) -> bool:
    """Whether a value beside a telling name is none that has to be hidden."""
    bare = value.strip("'\"")
    if not bare or _PLAIN_VALUES.fullmatch(bare) or REFERENCE.fullmatch(bare):
        return True
    if level == WEAK:
        is_plain = not looks_random(bare, 3) and not SHAPES.search(bare)
        return is_plain and not _NO_WORD.fullmatch(bare)
    # A working directory is called PWD, and a port or a count is no password.
    return bare.startswith(("/", "./", "~/", "../")) or bool(
        _NUMBER.fullmatch(bare) and len(bare) < 5
    )


def looks_random(value: str, fewest: int) -> bool:
    """Whether letters and digits alternate more often than in a name.

    Args:
        fewest: changes between letters and digits, or into capitals, that there must be.
    """
    bare = re.sub(r"[^A-Za-z0-9]", "", value)
    changes = sum(
        (a.isdigit() != b.isdigit()) or (a.islower() and b.isupper())
        for a, b in itertools.pairwise(bare)
    )
    return changes >= fewest or (len(bare) >= _LONG_VALUE and any(map(str.isdigit, bare)))


def is_drawn(value: str) -> bool:
    """Whether capitals, small letters and digits follow each other as if they were drawn.

    In names they come in words: `DeepSeekR1DistillQwen32B` changes 3 times in 8, a draw 5 times.
    """
    bare = re.sub(r"[^A-Za-z0-9]", "", value)
    kinds = [character.isdigit() + 2 * character.isupper() for character in bare]
    changes = sum(a != b for a, b in itertools.pairwise(kinds))
    return len(set(kinds)) == _ALL_KINDS and changes >= _OFTEN * len(bare)
