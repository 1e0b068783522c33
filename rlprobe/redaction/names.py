"""What a name says of the value beside it; its parts are words: `hf_token`, not `tokenizer`."""

from __future__ import annotations

import functools
import re

NONE, WEAK, STRONG = 0, 1, 2  # no secret; one if it looks so; one
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
OF_A_HASH = re.compile(
    r"(?:commit|sha\d*|rev(?:ision)?|hash|ref|head|digest|blob|tree|snapshots?|checkout|version|git"
    r"|md5|checksum|etag|@|\#|/)\W{0,4}$",
    re.IGNORECASE,
)


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


def names_hash(name: str) -> bool:
    """Whether a name, or the end of a text, says that the hash of a commit follows."""
    return bool(OF_A_HASH.search(name))
