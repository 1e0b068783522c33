"""Ways to pass a secret, none of which may be recorded, and settings that must stay readable."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from rlprobe import redaction
from rlprobe.store import manifest

S = "s3cr3tV4lue"  # a password of somebody's own making
HF = "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345"
HEX = "0123456789abcdef0123456789abcdef01234567"  # an API key of W&B; and the hash of a commit
WORDS = f"""
--hf-token {S}
--hf_token={S}
HF_TOKEN={S}
--hub_token {S}
--hub-token=hunter
--huggingface-token {S}
--token {S}
--token={S}
--token= {S}
--api-key={S}
--api_key {S}
--apiKey {S}
--APIKEY={S}
--apikey {S}
--openai_api_key={S}
OPENAI_API_KEY={S}
ANTHROPIC_API_KEY={S}
--anthropic-key {S}
--wandb-key {S}
--wandb.api_key={S}
WANDB_API_KEY={HEX}
wandb login {HEX}
wandb login --relogin {S}
--key {S}
--access-key {S}
--secret-access-key {S}
--aws_access_key_id={S}
aws_secret_access_key={S}
AWS_SESSION_TOKEN={S}
aws configure set aws_secret_access_key {S}
--auth {S}
--auth-token={S}
--authToken={S}
--authorization {S}
--credentials {S}
--pass {S}
--password {S}
--passwd={S}
--db-password={S}
--passphrase {S}
--pwd {S}
-p {S}
-p{S}
-t{S}
mysql -uroot -phunter
--pat {S}
--bearer {S}
--bearer-token {S}
--cookie session={S}
--client-secret {S}
--clientSecret={S}
--webhook-secret {S}
--secret {S}
--secrets.hf={HF}
+trainer.hf_token={S}
++trainer.logger.wandb.key={S}
trainer.wandb.key={S}
model.auth={S}
~model.api_key={S}
--config.wandb.api_key {S}
-Dhf.token={S}
--db postgresql://user:{S}@host/db
--redis redis://:{S}@host:6379/0
--mongo mongodb+srv://me:{S}@cluster0.mongodb.net/x
--proxy http://user:{S}@proxy:8080
--index-url=https://__token__:{S}@pypi.example.org/simple
--git https://{S}@github.com/x/y
--git https://oauth2:{S}@gitlab.com/x/y.git
--data https://host/x?token={S}
--data 'https://host/x?a=1&access_token={S}&b=2'
--data 'https://b.s3.amazonaws.com/x?X-Amz-Signature={S}&X-Amz-Date=2026'
--data 'https://a.blob.core.windows.net/c?sv=2024&sig={S}'
--data 'https://host/x?api_key={S}'
--hook https://hooks.slack.com/services/T000/B000/{S}
--hook https://discord.com/api/webhooks/123/{S}
--header 'Authorization: Bearer {S}'
--header 'Authorization: Basic {S}'
--header 'authorization: token {S}'
--header='X-Api-Key: {S}'
-H 'Cookie: sid={S}; a=b'
curl -u user:{S}
curl --user user:{S} https://host
--env HF_TOKEN={S}
-e WANDB_API_KEY={S}
-eHF_TOKEN={S}
--set-env=HF_TOKEN={S}
--env-vars=A=1,HF_TOKEN={S}
env A=1 HF_TOKEN={S} python t.py
bash -c 'HF_TOKEN={S} python t.py'
bash -c 'export A=1; HF_TOKEN={S} python t.py'
bash -c 'export HF_TOKEN="{S}" && python t.py'
bash -lc "python t.py --api-key '{S}'"
bash -c 'python t.py --hf_token={S}'
bash -c 'curl -H "Authorization: Bearer {S}" https://host'
bash -c 'huggingface-cli login --token {S}'
bash -c 'wandb login {HEX}'
python -c 'import os; os.environ["HF_TOKEN"] = "{S}"'
python -c 'login(token="{S}")'
bash -c 'mysql -u root -phunter db'
bash -c 'curl -u user:hunter https://host'
bash -c 'echo hunter | huggingface-cli login'
bash -c 'set HF_TOKEN hunter; python t.py'
bash -c 'sshpass -p hunter ssh host'
docker login -u me -p hunter
ssh host 'HF_TOKEN={S} python t.py'
--login user:{S}
--my_service_token={S}
--openrouter-key {S}
'token: hunter'
--json '["--token","hunter"]'
--json '{{"api_key": "{S}"}}'
--json '{{"auth": {{"token": "{S}"}}}}'
--json '{{"api_keys": ["{S}", "b"]}}'
--runtime-env-json '{{"env_vars": {{"HF_TOKEN": "{S}"}}}}'
--json "{{'password': '{S}'}}"
--json '"{{\\"api_key\\": \\"{S}\\"}}"'
--yaml 'api_key: {S}'
--dsn 'host=db user=u password={S}'
--azure 'AccountName=x;AccountKey={S};EndpointSuffix=y'
{HF}
--x {HF}
--x sk-proj-abcdefghijklmnop{S}
--x sk-ant-api03-abcdefghijklmnop{S}
--x sk-abcdefghijklmnopqrst{S}
--x ghp_abcdefghijklmnopqrst{S}
--x github_pat_11ABCDEFG0abcdef_{S}
--x glpat-abcdefghijkl{S}
--x xoxb-123456789012-{S}
--x AKIAIOSFODNN7EXAMPLE
--x AIzaSyA-abcdefghijklmnop{S}
--x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc{S}
--x gsk_abcdefghijklmnopqrst{S}
--x nvapi-abcdefghijklmnop{S}
--x r8_abcdefghijklmnopqrst{S}
--x 8Zk2pQ9vXb7Tn4Lw1Rj6Hc3Md5Fs0Gy
--x wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXaMPLEKEY
--x '-----BEGIN OPENSSH PRIVATE KEY----- {S}'
"""
SECRET = [line for line in WORDS.splitlines() if line]
PROGRAMS = {"docker", "ssh", "wandb", "aws", "mysql", "curl", "bash", "python", "env"}
SAID = (S, HF, HEX, "hunter", "AKIAIOSFODNN7EXAMPLE", "8Zk2pQ9vXb7", "wJalrXUtnFEMI")

HARMLESS = """
--tokenizer Qwen/Qwen2-7B
--tokenizer_name_or_path=Qwen/Qwen2-7B
tokenizer.path=/models/x
--max_tokens 512
--max-new-tokens=512
--tokens_per_step=1e6
tokens_per_batch=4096
--num_train_tokens 100
--min-tokens 3
--pad_token_id 0
--eos_token_id 151643
--pad-token '<|endoftext|>'
--eos-token=</s>
--stop-token END
--image-token '<image>'
--use-token-level-loss
--loss_agg_mode token-mean
--token-budget 32768
--secretary x
--author someone
--authors a,b
--passes 3
--num-pass 3
--forward_pass full
--pass-at-k 8
--bypass-cache true
--data.prompt_key=prompt
data.reward_fn_key=data_source
--input_key context_messages
--label-key answer
--sort-keys true
--cache-key text
--keyboard us
--monkey patch
--patience 5
--pattern '*.jsonl'
--path /data/set
--public-key id_rsa.pub
--token-file /run/secrets/token
--password-file=/run/secrets/db
--api-base https://api.openai.com/v1
--api-version 2024-02-01
--auth none
--use-auth false
--hf-token $HF_TOKEN
--hf-token=${HF_TOKEN}
--revision 0123456789abcdef0123456789abcdef01234567
--commit=0123456789abcdef0123456789abcdef01234567
git checkout 0123456789abcdef0123456789abcdef01234567
--image repo/x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
--cache models--Qwen--Qwen2/snapshots/0123456789abcdef0123456789abcdef01234567
--run-id 6f9619ff-8b86-d011-b42d-00c04fc964ff
--run-name grpo-Qwen2.5-Math-7B-Instruct-lr1e-6-bs512-kl0.001-2026-11-30
--model deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
--model meta-llama/Llama-3.1-70B-Instruct
--name DeepSeekR1DistillQwen32BInstruct
--output-dir /checkpoints/Qwen2-7B-GRPO/step_000100/global_step2000
--ckpt s3://bucket/runs/Qwen2-7B/2026-11-30_12-00-00/global_step_1000
--git git@github.com:x/y.git
--git https://github.com/x/y.git
--repo ssh://git@github.com/x/y
--url http://host:8080/v1/completions?model=Qwen2&n=8
--master-addr 10.0.0.1 --master-port 29500
--seed 1234567890
-p 8080
-p1
--lr 1e-6 --beta 0.04 --dtype bfloat16
CUDA_VISIBLE_DEVICES=0,1,2,3
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
TOKENIZERS_PARALLELISM=false
NCCL_DEBUG=INFO
PWD=/work/here
OMP_NUM_THREADS=8
trainer.logger=['console','wandb']
actor_rollout_ref.rollout.gpu_memory_utilization=0.6
algorithm.adv_estimator=grpo
+actor_rollout_ref.actor.fsdp_config.model_dtype=bf16
--config '{"max_tokens": 512, "pad_token": "<pad>", "lr": 1e-6}'
bash -c 'torchrun --nproc-per-node 8 train.py --max_tokens 512 2>&1 | tee log.txt'
--session-name exp3
--optimizer adamw_8bit
--lora_target_modules q_proj,k_proj,v_proj
--vllm-gpu-memory-utilization 0.9
--reward_funcs accuracy format
--system-prompt 'You are a helpful assistant. Answer: step by step'
--dataset openai/gsm8k
--wandb-project my-project2
--wandb-entity team1
--wandb_run_id 3k2j1h0x
--wandb_mode offline
--hub-model-id me/model-v2
--push-to-hub true
--attn flash_attention_2
--deepspeed ds_config_zero3.json
--host 127.0.0.1 --port 8000
--nnodes 2 --nproc_per_node 8 --rdzv_id 4711 --rdzv_endpoint host1:29400
--rdzv-backend c10d
python -u -m verl.trainer.main_ppo algorithm.kl_ctrl.kl_coef=0.001 data.train=/d/x.parquet
--reward-key score2
--token_type bpe
--first_token 5
--special_tokens '<|im_start|>,<|im_end|>'
--bos_token='<s>'
--max_token_len_per_gpu 16384
--ppo_max_token_len_per_gpu=24000
--key_metric val/acc
--keep_last 3
--auth-type basic
--secretsmanager-region us-east-1
--session 3
--credit 0.5
--certificate /etc/ssl/x.pem
--api_timeout 30
--passthrough 1
--compass north
--pass_rate_threshold 0.5
--bearing 3
--cookiecutter x
--name v100x8-a100x16
--experiment 20261130T120000Z_9f8e7d6c
--ckpt 9f8e7d6c5b4a
--uuid 123e4567e89b12d3a456426614174000
--md5 d41d8cd98f00b204e9800998ecf8427e
--time 2026-11-30T12:00:00.123456Z
--quant W8A8_INT8
--gpu H100SXM5
--dtype float8_e4m3fn
-m torch.distributed.run
-k test_name
-t 8
-w 4
-p
-pthread
-tt
-Wignore
--temperature=1.0
--chat_template '{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}'
--env TOKENIZERS_PARALLELISM=false
--env CUDA_VISIBLE_DEVICES=0,1
bash -c 'cd /x && source venv/bin/activate && python train.py --lr 1e-6 > log_$(date +%s).txt'
SLURM_JOB_ID=12345
LD_LIBRARY_PATH=/usr/lib:/opt/lib
--username alice
--user alice
--key-value true
--use-key-query-norm true
--ssh-host box1
--sort-key step
--tags a,b,c
--notes 'first run: token accounting fixed'
--trust-remote-code
https://huggingface.co/Qwen/Qwen2-7B/resolve/main/model-00001-of-00004.safetensors
s3://bucket/a/b/c?versionId=3
--index 123456789012345678901234567890
--hex 0xdeadbeef
--credit-assignment gae
"""
SHOWN = [line for line in HARMLESS.splitlines() if line]


@pytest.mark.parametrize("line", SECRET)
def test_no_secret_of_a_command_line_is_recorded(line: str) -> None:
    command = shlex.split(line)
    if command[0] not in PROGRAMS:
        command = ["python", "t.py", *command]
    shown = shlex.join(redaction.words(command))
    assert "***" in shown
    assert not [part for part in SAID if part in shown]
    again = redaction.text(shown)  # an event of it is looked at once more
    assert not [part for part in SAID if part in again]


@pytest.mark.parametrize("line", SHOWN)
def test_harmless_settings_stay_readable(line: str) -> None:
    command = ["python", "t.py", *shlex.split(line), "next"]
    assert redaction.words(command) == command
    shown = shlex.join(command)
    assert redaction.text(shown) == shown


TEXTS = [
    f"401 Client Error for url: https://user:{S}@host/x",
    f"requests.exceptions.HTTPError: https://host/x?token={S}",
    f"ValueError: bad credentials: api_key={S!r}",
    f"KeyError: {{'hf_token': '{S}'}}",
    f"Authorization: Bearer {S}",
    f"  headers = {{'Authorization': 'Bearer {S}'}}",
    f"wandb: ERROR API key must be 40 characters long, got WANDB_API_KEY={S}",
    f"openai.AuthenticationError: Incorrect API key provided: {HF}",
    f"subprocess.CalledProcessError: Command '['x', '--hf-token={S}']' returned 1",
]


@pytest.mark.parametrize("line", TEXTS)
def test_no_secret_of_a_last_line_is_recorded(line: str) -> None:
    assert S not in redaction.text(line)
    assert HF not in redaction.text(line)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: device-side assert triggered",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "SyntaxError: invalid token: unexpected end",
        "KeyError: 'prompt'",
        "step 12 | loss 0.5 | reward 0.25 | tokens/s 1234.5 | max_tokens: 512",
        'File "/usr/lib/python3.11/site-packages/transformers/tokenization_utils.py", line 1',
        "ValueError: Asking to pad but the tokenizer does not have a padding token",
        "torch.OutOfMemoryError: Tried to allocate 2.00 GiB. GPU 0 has 79.10 GiB",
        "[rank1]: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000)",
        "Loading model at commit 0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_last_lines_without_a_secret_stay_as_they_are(line: str) -> None:
    assert redaction.text(line) == line


def test_a_private_key_over_several_lines_is_left_out() -> None:
    key = ["-----BEGIN RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQ", "-----END RSA PRIVATE KEY-----"]
    assert redaction.lines(["a", *key, "b"]) == ["a", "***", "b"]


def test_settings_keep_their_shape() -> None:
    settings = {
        "hf_token": S,
        "hub": {"token": S, "repo": "x/y"},
        "argv": ["train.py", "--api-key", S],
        "url": f"https://u:{S}@h",
        "password": 12345678,
        "use_auth_token": True,
        "max_tokens": 512,
        "betas": (0.9, 0.95),
        "pad_token": "<pad>",
        "revision": HEX,
        "note": None,
    }
    assert redaction.settings(settings) == {
        "hf_token": "***",
        "hub": {"token": "***", "repo": "x/y"},
        "argv": ["train.py", "--api-key", "***"],
        "url": "https://u:***@h",
        "password": "***",
        "use_auth_token": True,
        "max_tokens": 512,
        "betas": [0.9, 0.95],
        "pad_token": "<pad>",
        "revision": HEX,
        "note": None,
    }


def test_nothing_of_a_secret_reaches_the_manifest(tmp_path: Path) -> None:
    class Odd:
        def __str__(self) -> str:
            return f"Odd(hub_token='{S}')"

    manifest.update(tmp_path, {"config": {"args": Odd(), "wandb": {"api_key": S}}, "model": "x/y"})
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert S not in text
    assert json.loads(text)["model"] == "x/y"


def test_long_texts_cost_little() -> None:
    for piece in (
        "a=",
        "://",
        "-----BEGIN PRIVATE KEY-----",
        '"',
        "login ",
        "--a ",
        "x" * 50,
        "[:",
    ):
        redaction.text(piece * (1_000_000 // len(piece)))  # a pattern that backtracks never ends
