"""Secrets are left out of what is recorded: of commands, settings, and the last lines of a failure.

Three ways to know one: by the name beside it, whose parts count as words (`--hf-token`,
`WANDB_API_KEY`, but not `--tokenizer` or `max_tokens`); by its shape (`hf_…`, `ghp_…`, a JWT, a
private key); by where it stands (`https://user:secret@host`, `Authorization: …`, `?sig=…`).

What is left out becomes `***`. That errs to the side of hiding where a name says so, and to the
side of showing where only a shape could: model names, paths, hashes of commits stay readable.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MASK = "***"
NONE, WEAK, STRONG = 0, 1, 2  # what a name says of the value beside it

_MOST_CHARACTERS = 100_000  # of a text that is looked at; the rest is left out
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Alone or with what may follow them, these name a secret.
_ALWAYS = _set(
    "password passwd passphrase pwd pw psk secret secrets credential credentials cred creds apikey"
    " apikeys bearer cookie cookies authorization jwt mnemonic otp passcode sas"
)
_FOLLOWING = _set(
    "key keys id ids value values token tokens string text str hash base64 b64 json access prod dev"
    " test main old new default primary secondary header headers"
)
# Of these two, the word before decides.
_TOKENS, _KEYS = _set("token tokens tok"), _set("key keys")
_ISSUERS = _set(
    "hf hub huggingface face wandb github gh gitlab gl git api access auth bearer refresh session"
    " security secret oauth oauth2 jwt slack discord telegram bot openai anthropic claude aws s3"
    " azure gcp google gemini comet neptune mlflow clearml swanlab modal runpod replicate together"
    " cohere mistral groq vault npm pypi docker registry user client service admin private deploy"
    " ci kube k8s kubernetes databricks kaggle sentry datadog dd newrelic pinecone qdrant weaviate"
    " elastic serper tavily brave exa jina e2b fireworks deepseek moonshot zhipu dashscope qwen"
    " nvidia ngc nim lambda vast jupyter notebook ray grafana prometheus influx redis mongo"
    " postgres mysql db database smtp mail sendgrid twilio stripe ssh gpg encryption signing"
    " encrypt sign license licence account storage master subscription app application webhook"
    " trackio aim dagshub hopsworks csrf xsrf personal project org team root rest server"
)
_OF_TEXT = _set(
    "pad eos bos unk sep cls mask stop special image video audio vision start end begin per num n"
    " max min first last tool think thinking level new prev next answer reward step prefix suffix"
    " any each every out in total mean sum avg p top bad good class label score object separator"
    " newline response prompt input output completion"
)
_OF_DATA = _set(
    "prompt input output label labels reward fn text image images video audio step sort group"
    " primary foreign answer response solution metric metrics data dataset column field message"
    " messages chosen rejected query cache dict log state public hot index partition row idx name"
    " tool rng prng random"
)
_LOGINS = _set("auth pass pat passw pswd userpwd sig signature")
_OF_PASSES = _set("forward backward single multi two one first second num n per")
_PLAIN_VALUES = _set(
    "true false none null yes no on off auto default basic digest bearer negotiate ntlm kerberos"
    " required optional disabled enabled"
)
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_REFERENCE = re.compile(r"\$\{?\w+\}?|\$\(.*\)|%\w+%|\{\{.*\}\}|<[^>]*>|\*+|env:\w+")

_SHAPES = re.compile(
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
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_USER_IN_URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,30}://)([^\s/?#'\"]{1,2000})@", re.IGNORECASE)
_PLAIN_USERS = re.compile(
    r"(?:git|ssh|sftp|hdfs|s3|s3a|gs|postgres\w*|mysql|redis\w*|mongodb\S*)://"
)
_WEBHOOKS = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/|"
    r"api\.telegram\.org/bot)[^\s'\"?#]+"
)
_HEADER = re.compile(
    r"((?:proxy-)?authorization|(?:set-)?cookie)(\\?[\"']?\s*[:=]\s*\\?[\"']?)(?!\s)[^\n\"'\\]+",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(bearer|basic|token)(\s+)([\w.~+/=-]{6,})", re.IGNORECASE)
# `name=value`, `name: value`, `"name": "value"`, `environ["NAME"] = "value"`.
_ASSIGNED = re.compile(
    r"""(?P<name>[A-Za-z_][\w.-]{0,200})(?P<sign>\\?["']?\]?\s{0,4}(?:[:=]|=>)\s{0,4})
        (?: (?P<quote>\\?["']) (?P<inner>.*?) (?P=quote)
          | \[ (?P<list>[^\[\]]*) \]
          | (?P<value>[^\s"',;&}\])|]+) )""",
    re.VERBOSE,
)
_OPTION = re.compile(
    r"(?P<name>(?<!\S)--?[A-Za-z][\w.-]*)(?P<sign>\s+)(?P<quote>[\"']?)(?P<value>[^\s\"']+)"
)
_LOGIN = re.compile(r"(\blogin\s+(?:--?[\w-]+\s+)*)([^\s-]\S{7,})")
_HEX = re.compile(r"(?<![\w-])(?:[0-9a-f]{40}|[0-9a-f]{64})(?![\w-])")
_OF_A_HASH = re.compile(
    r"(?:commit|sha\d*|rev(?:ision)?|hash|ref|head|digest|blob|tree|snapshots?|checkout|version|git"
    r"|md5|checksum|etag|@|\#|/)\W{0,4}$",
    re.IGNORECASE,
)
_RUN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9])")
_LONG = re.compile(r"(?<![\w/+.~-])[A-Za-z0-9+][A-Za-z0-9/+_-]{31,}={0,2}(?![\w/+-])")
_SHORT = re.compile(r"-([A-Za-z])(.*)", re.DOTALL)
_VALUE_OPTIONS = frozenset("ptkwPKW")  # short options that often carry one


def words(command: Sequence[str]) -> list[str]:
    """A command line, word by word, without its secrets."""
    shown: list[str] = []
    expects = NONE
    name = ""
    program = command[0].rpartition("/")[2] if command else ""
    for place, word in enumerate(command):
        if expects and not _is_option(word) and not _is_harmless(word, expects):
            shown.append(MASK)
            expects = NONE
            continue
        expects = NONE
        if place == 0:
            shown.append(text(word))
            continue
        plain = _of_hash(word) if _names_hash(name) else _word(word, program)
        if command[place - 1] == "login" and _looks_random(word, 1):
            plain = MASK
        elif (
            name in {"-u", "--user", "--proxy-user", "--userpwd"} and ":" in word and plain == word
        ):
            plain = _user(word, program, name)
        shown.append(plain)
        expects, name = _expected(word), word
    return shown


def text(content: str) -> str:
    """A text without its secrets: lines of output, a shell's script, JSON."""
    if len(content) > _MOST_CHARACTERS:
        content = f"{content[:_MOST_CHARACTERS]} [{len(content) - _MOST_CHARACTERS:,} more]"
    if len(content) < 4:
        return content
    content = _PRIVATE_KEY.sub(MASK, content)
    if "://" in content:
        content = _USER_IN_URL.sub(_without_user, content)
    content = _WEBHOOKS.sub(rf"\1{MASK}", content)
    content = _HEADER.sub(rf"\1\2{MASK}", content)
    content = _SCHEME.sub(_without_credentials, content)
    content = _ASSIGNED.sub(_without_value, content)
    content = _OPTION.sub(_without_argument, content)
    content = _LOGIN.sub(lambda m: m[1] + (MASK if _looks_random(m[2], 1) else m[2]), content)
    content = _SHAPES.sub(MASK, content)
    content = _HEX.sub(_without_hex, content)
    content = _RUN.sub(lambda m: MASK if _looks_random(m[0], 6) else m[0], content)
    return _LONG.sub(lambda m: MASK if _looks_random(m[0], 8) else m[0], content)


def settings(value: Any, name: str = "") -> Any:
    """Settings, nested as they are, without their secrets; other values than text stay.

    Args:
        name: under which the value stands.
    """
    if isinstance(value, Mapping):
        return {key: settings(item, str(key)) for key, item in value.items()}
    level = level_of(name) if name else NONE
    if isinstance(value, bytes):
        return MASK if level else value
    if isinstance(value, str):
        hidden = level and not _is_harmless(value, level)
        return MASK if hidden else _of_hash(value) if _names_hash(name) else text(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = list(value)
        if items and all(isinstance(item, str) for item in items) and level == NONE:
            is_command = any(_is_option(item) for item in items)
            return words(["", *items])[1:] if is_command else list(lines(items))
        return [settings(item, name) for item in items]
    return MASK if level == STRONG and isinstance(value, int) and not _is_small(value) else value


@functools.lru_cache(maxsize=4096)
def level_of(name: str) -> int:
    """Whether a name says that the value beside it is a secret: `WEAK` if it looks like one."""
    stripped = name.lstrip("-+")
    if name.startswith("-D"):
        stripped = name[2:]
    parts = [part.lower() for part in _PARTS.findall(stripped)]
    while parts and parts[-1].isdigit():
        parts.pop()
    if not parts:
        return NONE
    for place, part in enumerate(parts):
        if (part in _ALWAYS or _is_joined(part)) and _FOLLOWING.issuperset(parts[place + 1 :]):
            return STRONG
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in {"id", "ids", "value"} and parts[-3:-1] in (["access", "key"], ["secret", "key"]):
        return STRONG
    return _of_last(last, before, alone=len(re.findall(r"[^\W_]+", stripped)) == 1)


def _of_last(last: str, before: str, *, alone: bool) -> int:
    if last in _TOKENS:
        if last == "tokens" and before not in {"api", "access", "auth", "secret", "bearer", "hf"}:
            return NONE
        level = STRONG if before in _ISSUERS or alone else WEAK
        return NONE if before in _OF_TEXT else level
    if last in _KEYS:
        if last == "keys" and before not in _ISSUERS:
            return NONE
        level = STRONG if before in _ISSUERS else WEAK
        return NONE if before in _OF_DATA else level
    if last in _LOGINS:
        return NONE if before in _OF_PASSES else STRONG if last != "sig" else WEAK
    return NONE


def _is_joined(part: str) -> bool:
    """Whether a word is several without a sign between them: `hftoken`, `secretkey`."""
    for ending in ("password", "passwd", "token", "apikey", "key", "secret"):
        if part.endswith(ending) and part != ending:
            stem = part.removesuffix(ending)
            return stem in _ISSUERS or ending in {"password", "passwd", "apikey"}
    return False


def _names_hash(name: str) -> bool:
    return bool(_OF_A_HASH.search(name))


def _of_hash(value: str) -> str:
    return value if _HEX.fullmatch(value) else text(value)


def _is_small(value: int) -> bool:
    return isinstance(value, bool) or abs(value) < 10_000


def _is_harmless(value: str, level: int) -> bool:
    """Whether a value beside a telling name is none that has to be hidden."""
    bare = value.strip("'\"")
    if not bare or bare.lower() in _PLAIN_VALUES or _REFERENCE.fullmatch(bare):
        return True
    if level == WEAK:
        return not _looks_random(bare, 3) and not _SHAPES.search(bare)
    # A working directory is called PWD, and a port or a count is no password.
    return bare.startswith(("/", "./", "~/", "../")) or bool(
        _NUMBER.fullmatch(bare) and len(bare) < 5
    )


def _is_option(word: str) -> bool:
    return bool(re.fullmatch(r"--[A-Za-z][\w.-]*(?:=.*)?|-[A-Za-z]", word, re.DOTALL))


def _expected(word: str) -> int:
    """What a word says of the next one."""
    name, equals, value = word.partition("=")
    if equals:
        return level_of(name) if not value else NONE
    if re.fullmatch(r"-[A-Za-z]", word):
        return WEAK if word[1] in _VALUE_OPTIONS else NONE
    if word.startswith("-"):
        return level_of(word)
    several = re.fullmatch(r"[A-Za-z]+(?:_[A-Za-z]+)+", word)
    return level_of(word) if several else NONE


def _word(word: str, program: str) -> str:
    name, equals, value = word.partition("=")
    if equals and re.fullmatch(r"[-+\w.@/:\[\]]+", name):
        if text(name) != name:
            return MASK
        if level := level_of(name):
            return word if _is_harmless(value, level) else f"{name}={MASK}"
        if _names_hash(name):
            return f"{name}={_of_hash(value)}"
        return f"{name}={_word(value, program)}"
    short = _SHORT.fullmatch(word)
    if (
        short
        and not word.startswith("--")
        and len(word) > 4
        and _is_attached(short[1], short[2], program)
    ):
        return f"-{short[1]}{MASK}"
    return text(word)


def _is_attached(option: str, value: str, program: str) -> bool:
    """Whether a short option carries a secret: `-pS3cret`."""
    if option == "p" and program.startswith(("mysql", "mariadb", "sshpass")):
        return True
    if option not in _VALUE_OPTIONS or re.search(r"[/=:.\s]", value):
        return False
    has_signs = bool(re.search(r"[A-Za-z]", value) and re.search(r"[^a-z_-]", value))
    return _looks_random(value, 3) or (option == "p" and has_signs and not value[0].isdigit())


def _user(word: str, program: str, name: str) -> str:
    user, _, _ = word.partition(":")
    tells = name != "-u" or program in {"curl", "wget", "http", "https", "xh", "aria2c"}
    return f"{user}:{MASK}" if tells and "://" not in word else word


def _looks_random(value: str, fewest: int) -> bool:
    """Whether letters and digits alternate more often than in a name.

    Args:
        fewest: changes that there must be.
    """
    bare = re.sub(r"[^A-Za-z0-9]", "", value)
    changes = sum(
        (a.isdigit() != b.isdigit()) or (a.islower() and b.isupper())
        for a, b in itertools.pairwise(bare)
    )
    if changes < fewest or not bare:
        return len(bare) >= 20 and fewest <= 3 and any(map(str.isdigit, bare))
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", value) if part]
    if len(value) >= 20 and fewest > 3:
        mixed = all(any(map(test, bare)) for test in (str.isdigit, str.isupper, str.islower))
        return mixed and changes >= 0.3 * len(bare) and max(map(len, parts)) > 5
    return True


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match[1], match[2]
    name, colon, _ = user.partition(":")
    if colon:
        return f"{scheme}{name}:{MASK}@"
    if _PLAIN_USERS.match(scheme.lower()) or name == "git" or _REFERENCE.fullmatch(name):
        return match[0]
    return f"{scheme}{MASK}@"


def _without_credentials(match: re.Match[str]) -> str:
    sure = match[1][0].isupper() or match[1].lower() == "bearer"
    needed = 1 if sure else 3
    hidden = _looks_random(match[3], needed) or (sure and len(match[3]) >= 16)
    return f"{match[1]}{match[2]}{MASK}" if hidden else match[0]


def _without_value(match: re.Match[str]) -> str:
    level = level_of(match["name"])
    if level == STRONG and ":" in match["sign"] and match["value"] and not _is_sure(match):
        level = WEAK  # `invalid token: unexpected end`
    if level == NONE:
        return _inside(match)
    if match["list"] is not None:
        start, end = match.start("list"), match.end("list")
        items = re.sub(r"[^\s,\"']+", MASK, match["list"])
        return match[0][: start - match.start()] + items + match[0][end - match.start() :]
    group = "value" if match["value"] is not None else "inner"
    if _is_harmless(match[group], level):
        return match[0]
    start, end = match.start(group) - match.start(), match.end(group) - match.start()
    return match[0][:start] + MASK + match[0][end:]


def _inside(match: re.Match[str]) -> str:
    """What stands in a value of a harmless name: `--env=HF_TOKEN=…`, a script in quotes."""
    for group in ("inner", "list", "value"):
        content = match[group]
        if content and re.search(r"[:=]|--", content):
            start, end = match.start(group) - match.start(), match.end(group) - match.start()
            inner = _OPTION.sub(_without_argument, _ASSIGNED.sub(_without_value, content))
            return match[0][:start] + inner + match[0][end:]
    return match[0]


def _is_sure(match: re.Match[str]) -> bool:
    """Whether a name with a colon behind it is one of several words, and no word of a sentence."""
    return bool(re.search(r"[_.-]|[a-z][A-Z]", match["name"])) or match["name"].isupper()


def _without_argument(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    level = _expected(name)
    if not level or _is_option(value) or _is_harmless(value, level):
        return match[0]
    return match[0][: match.start("value") - match.start()] + MASK


def _without_hex(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 24) : match.start()]
    return match[0] if _OF_A_HASH.search(before) else MASK


def lines(content: Sequence[str]) -> Iterator[str]:
    """Lines of output, each without its secrets; a private key may go on over several."""
    joined = _PRIVATE_KEY.sub(MASK, "\n".join(content))
    return map(text, joined.split("\n"))
