"""The steps of examples/cifar learn; those with checkpoints go on after they were killed."""
import os
import re
import signal
import subprocess
import time

import pytest

from harness import BUILD, SOURCE, free_port
from process_tree import kill_tree

pytestmark = pytest.mark.tier_all  # it needs the examples

EXAMPLES = BUILD / "bin" / "examples"
LAUNCH = [BUILD / "bin" / "cohort", "run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")
HANG_LIMIT = 300


def make_data(root, samples):
    subprocess.run([BUILD / "bin" / "cohort-data", "make", "cifar10", "--root", root, "--samples", str(samples)], check=True,
                   capture_output=True, timeout=HANG_LIMIT)
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("cifar"), 400)


# For steps in bfloat16, which a processor without it takes ten times as long for.
@pytest.fixture(scope="module")
def little_data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("little_cifar"), 160)


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=HANG_LIMIT, env=ENVIRONMENT, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses_in(out):
    return [float(loss) for loss in re.findall(r"epoch \d+: loss ([\d.]+)", out)]


@pytest.mark.parametrize("command", [[EXAMPLES / "cifar_single"], [EXAMPLES / "cifar_data_parallel"], [*LAUNCH, EXAMPLES / "cifar_ddp"]],
                         ids=["single", "data_parallel", "ddp"])
def test_a_step_learns(data, command):
    out = run([*command, data, "4"])
    losses = losses_in(out)
    assert len(losses) == 4 and losses[-1] < 0.8 * losses[0], out
    assert out.count("test accuracy") == 1


def killed_when(appears, command):
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
                               start_new_session=True)
    deadline = time.monotonic() + HANG_LIMIT
    try:
        while not appears():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_long_run_goes_on_after_it_was_killed(little_data, tmp_path):
    command = [*LAUNCH, EXAMPLES / "cifar_long_run", little_data, "3", tmp_path]
    killed_when(lambda: (tmp_path / "checkpoint.safetensors").exists(), command)
    out = run(command)
    # A first epoch has 2.7; one that knows nothing of the killed run's would, too.
    assert 1 <= len(losses_in(out)) < 3 and losses_in(out)[0] < 2.3 and losses_in(out)[-1] < 2.1, out
    assert list(tmp_path.glob("events*")), os.listdir(tmp_path)


def test_two_nodes(little_data, tmp_path):
    # The script takes the data from its repository: here one that has it, and the programs.
    for name, target in (("build", BUILD), ("data", little_data)):
        (tmp_path / name).symlink_to(target)
    script = tmp_path / "examples" / "cifar" / "5_two_nodes.sh"
    script.parent.mkdir(parents=True)
    text = (SOURCE / "examples" / "cifar" / "5_two_nodes.sh").read_text()
    assert text.count("29500") == 1
    script.write_text(text.replace("29500", str(free_port())))
    nodes = [subprocess.Popen(["bash", str(script), str(rank), "127.0.0.1", "2", str(tmp_path / "run")], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT) for rank in range(2)]
    try:
        outs = [node.communicate(timeout=HANG_LIMIT)[0] for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                kill_tree(node.pid)
                node.communicate()
    assert [node.returncode for node in nodes] == [0, 0], outs
    assert len(losses_in(outs[0])) == 2 and "test accuracy" in outs[0] and not losses_in(outs[1]), outs


def test_the_trainer_goes_on_after_it_was_killed(data, tmp_path):
    command = [*LAUNCH, EXAMPLES / "cifar_trainer", "--root", data, "--epochs", "12", "--batch-size", "32", "--plot", "--folder", tmp_path / "run"]
    killed_when(lambda: list(tmp_path.glob("run/checkpoints/step-*")), command)
    out = run(command)
    assert "resumes after step" in out
    # A gradient that is wrong, such as one of this rank alone, twice as large or of other images, does not learn that much.
    assert float(re.search(r"test accuracy ([\d.]+)", out).group(1)) >= 0.9, out
    assert {"events", "metrics.csv", "metrics.jsonl", "curves.svg", "curves.png"} <= set(os.listdir(tmp_path / "run"))
    steps = [int(line.split(",")[0]) for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]]
    # Each of two ranks has 200 images, in 13 batches of 16; no step of the killed run is there twice.
    assert steps == sorted(steps) and steps[-1] == 12 * 13
    out = run(command)
    assert "nothing is left to train: all 12 epochs are done already" in out
    refused = subprocess.run([str(part) for part in [*command, "--width", "8"]], capture_output=True, text=True, timeout=HANG_LIMIT, env=ENVIRONMENT)
    assert refused.returncode != 0
    assert "was made with width = 16, but this run has 8\n" in refused.stderr, refused.stderr


def test_three_ranks_share_a_batch_that_does_not_divide(data, tmp_path):
    out = run([*LAUNCH[:-1], "3", EXAMPLES / "cifar_trainer", "--root", data, "--epochs", "1", "--limit-batches", "2", "--folder", tmp_path])
    assert "goes on" not in out and "test accuracy" in out
    done = subprocess.run([str(part) for part in [*LAUNCH, EXAMPLES / "cifar_trainer", "--root", data, "--batch-size", "1", "--folder", tmp_path / "b"]],
                          capture_output=True, text=True, timeout=HANG_LIMIT, env=ENVIRONMENT)
    assert done.returncode != 0 and "[cohort] global_batch_size=1 is too small for 2 ranks: each needs a sample\n" in done.stderr, done.stderr


def test_the_trainer_finds_a_rate_and_a_batch_size(data):
    out = run([EXAMPLES / "cifar_trainer", "--root", data, "--width", "8", "--find-lr", "--find-batch-size", "--folder", ""])
    assert re.search(r"fastest batch of a rank: \d+\n", out) and re.search(r"learning rate: [\d.]+\n", out), out
    assert "test accuracy" not in out


@pytest.mark.parametrize("command", [["cifar_single"], ["cifar_data_parallel"], ["cifar_trainer", "--folder", "", "--root"]], ids=lambda c: c[0])
def test_without_data_the_error_alone_is_shown(command, tmp_path):
    done = subprocess.run([str(EXAMPLES / command[0]), *command[1:], str(tmp_path)], capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"{command[0]}: error: ") and "hint: " in done.stderr, done.stderr
    assert "terminate" not in done.stderr and "frame #" not in done.stderr, done.stderr


def test_two_nodes_without_arguments_says_its_usage():
    script = SOURCE / "examples" / "cifar" / "5_two_nodes.sh"
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=HANG_LIMIT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"usage: {script} NODE_RANK HOST [EPOCHS [FOLDER]]; NODE_RANK is 0 on HOST, 1 on the other node\n"


@pytest.mark.parametrize("flag, code", [("--help", 0), ("--batch-siz=3", 2)])
def test_one_rank_shows_help_and_errors_of_use(flag, code):
    for rank in (0, 1):
        done = subprocess.run([str(EXAMPLES / "cifar_trainer"), flag], capture_output=True, text=True, timeout=HANG_LIMIT,
                              env=dict(ENVIRONMENT, RANK=str(rank)))
        assert done.returncode == code
        assert bool(done.stdout + done.stderr) == (rank == 0)
    if code == 0:
        assert "  --[no-]augment  " in subprocess.run([str(EXAMPLES / "cifar_trainer"), flag], capture_output=True, text=True).stdout
