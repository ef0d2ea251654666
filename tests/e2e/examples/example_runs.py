"""How the tests of the examples start them, and read what they say."""
import json
import os
import re
import subprocess

from harness import BUILD, wait_for_step

EXAMPLES = BUILD / "bin" / "examples"
COHORT = BUILD / "bin" / "cohort"


def run(*command, cwd=None, env=None, timeout=300):
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=dict(os.environ, OMP_NUM_THREADS="1", **(env or {})),
                          capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


def launch(name, *arguments, ranks=2, **kwargs):
    return run(COHORT, "run", "--standalone", "--nproc-per-node", ranks, EXAMPLES / name, *arguments, **kwargs)


def lines(text, pattern):
    return [line for line in text.splitlines() if re.search(pattern, line)]


GPT_FLAGS = ["--depth", 1, "--width", 16, "--heads", 2, "--context", 32, "--batch-size", 4, "--warmup", 4, "--log-every", 2,
             "--eval-every", 8, "--eval-windows", 64, "--sample-bytes", 20, "--held-out", 0.2, "--dropout", 0.1]


def train_gpt(folder, text, *flags, ranks=2, hosts=1, check=True):
    """`hosts`: as many as there are ranks, and they share no memory."""
    assert hosts in (1, ranks)
    program = [EXAMPLES / "train_gpt"] if hosts == 1 else ["/bin/sh", "-c", 'COHORT_HOST_ID=$RANK exec "$0" "$@"', EXAMPLES / "train_gpt"]
    code, out, err = run(COHORT, "run", "--standalone", "--nproc-per-node", ranks, *program, "--data", text, *GPT_FLAGS,
                         "--log", "log.jsonl", *flags, cwd=folder)
    if check:
        assert code == 0, out + err
    return code, out, err


def logged(folder, name="train/loss"):
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    found = [(row["step"], row[name]) for row in rows if name in row]
    assert len(dict(found)) == len(found), "no step is there twice"
    return dict(found)


def checkpoint(folder, name="train_gpt"):
    """The tensors of the newest one, by name."""
    from safetensors.torch import load_file
    newest = max((folder / name).glob("step-*"))
    return {name: tensor for path in newest.glob("*.safetensors") for name, tensor in load_file(path).items()}


def wait_for_checkpoint(folder, process):
    """Of a run of train_gpt."""
    wait_for_step(folder / "train_gpt", 0, process)
