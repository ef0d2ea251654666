"""train_gpt --fsdp beside train_gpt: the same losses, and checkpoints that both kinds of run exchange, on any number of ranks."""
import os
import re
import shutil
import signal
import subprocess

import pytest

from example_runs import COHORT, EXAMPLES, GPT_FLAGS, checkpoint, logged, run, train_gpt, wait_for_checkpoint

pytestmark = pytest.mark.tier_all  # the strategies have tests of their own


def assert_same_checkpoints(ours, theirs):
    ours, theirs = checkpoint(ours), checkpoint(theirs)
    assert ours.keys() == theirs.keys()
    assert [name for name in theirs if not ours[name].equal(theirs[name])] == []


def assert_alike(ours, theirs):
    assert ours.keys() == theirs.keys() and len(theirs) > 0
    assert all(ours[step] == pytest.approx(theirs[step], abs=1e-5) for step in theirs), (ours, theirs)


@pytest.fixture(scope="module")
def sharded_run(tmp_path_factory, text_folder):
    folder = tmp_path_factory.mktemp("sharded")
    out = train_gpt(folder, text_folder, "--steps", 24, "--fsdp")[1]
    return folder, out


def test_losses_are_those_of_ddp(whole_run, sharded_run):
    for name in ("train/loss", "validation/loss", "test/loss"):
        assert_alike(logged(sharded_run[0], name), logged(whole_run[0], name))
    assert logged(sharded_run[0])[24] < logged(sharded_run[0])[2]
    sample = re.compile(r"a text by the model.*?\n----\n(.*?)\n----\n", re.S)
    assert sample.search(sharded_run[1])[1] == sample.search(whole_run[1])[1]


def test_checkpoint_is_that_of_ddp(whole_run, sharded_run):
    """Whole tensors, of the same names and sizes."""
    ours, theirs = checkpoint(sharded_run[0]), checkpoint(whole_run[0])
    assert {name: tensor.shape for name, tensor in ours.items()} == {name: tensor.shape for name, tensor in theirs.items()}
    for name in theirs:
        atol = 1e-5 if name.startswith("model.") else 1e-7
        if name.startswith("rank."):  # random numbers, and the sum of losses
            continue
        assert ours[name].double().allclose(theirs[name].double(), rtol=1e-3, atol=atol), name


def test_resumes_exactly(sharded_run, text_folder, tmp_path):
    train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--stop-at", 10)
    out = train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--resume")[1]
    assert 'resumes after step 10 of "train_gpt"' in out
    assert logged(tmp_path) == logged(sharded_run[0])
    assert logged(tmp_path, "test/loss") == logged(sharded_run[0], "test/loss")
    assert_same_checkpoints(tmp_path, sharded_run[0])


def test_killed_in_the_middle_resumes_exactly(sharded_run, text_folder, tmp_path):
    command = [COHORT, "run", "--standalone", "--nproc-per-node", "2", EXAMPLES / "train_gpt", "--data", text_folder,
               *GPT_FLAGS, "--steps", "24", "--save-every", "6", "--fsdp"]
    job = subprocess.Popen([str(part) for part in command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env=dict(os.environ, OMP_NUM_THREADS="1"))
    wait_for_checkpoint(tmp_path, job)
    job.send_signal(signal.SIGKILL)
    job.stdout.read()  # until the last worker has gone
    job.wait()
    out = train_gpt(tmp_path, text_folder, "--steps", 24, "--save-every", 6, "--fsdp", "--resume")[1]
    step = int(re.search(r'resumes after step (\d+) of "train_gpt"', out)[1])
    assert step % 6 == 0
    assert logged(tmp_path) == {s: loss for s, loss in logged(sharded_run[0]).items() if s > step}
    assert_same_checkpoints(tmp_path, sharded_run[0])


def test_runs_with_and_without_it_go_on_from_each_others_checkpoints(whole_run, text_folder, tmp_path):
    train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--stop-at", 8)
    train_gpt(tmp_path, text_folder, "--steps", 24, "--resume", "--zero", "--stop-at", 16)
    train_gpt(tmp_path, text_folder, "--steps", 24, "--resume", "--fsdp")
    assert_alike(logged(tmp_path), logged(whole_run[0]))


def test_loads_on_three_ranks_and_without_it(text_folder, tmp_path):
    """What two ranks have saved, three go on from, in one way or the other."""
    train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--stop-at", 10)
    for name, more in {"whole": [], "sharded": ["--fsdp"]}.items():
        shutil.copytree(tmp_path / "train_gpt", tmp_path / name / "train_gpt")
        err = train_gpt(tmp_path / name, text_folder, "--steps", 24, "--stop-at", 16, "--resume", *more, ranks=3)[2]
        assert ("the checkpoint was made by 2 ranks, the job has 3: it continues with 1 batches of 4 samples per step on each rank, "
                "and with other random numbers") in err
    assert_alike(logged(tmp_path / "sharded"), logged(tmp_path / "whole"))


@pytest.mark.parametrize("ranks, hosts", [(3, 1), (2, 2)])
def test_works_with_everything_else(text_folder, tmp_path, ranks, hosts):
    flags = ["--steps", 6, "--gradient-accumulation-steps", 2, "--batch-size", 2, "--activation-checkpointing", 2, "--depth", 2, "--clip", 0.05]
    for name, more in {"whole": [], "sharded": ["--fsdp"]}.items():
        (tmp_path / name).mkdir()
        train_gpt(tmp_path / name, text_folder, *flags, *more, ranks=ranks, hosts=hosts)
    assert_alike(logged(tmp_path / "sharded"), logged(tmp_path / "whole"))


def test_replicas(text_folder, tmp_path):
    """Two replicas of two ranks each, and a checkpoint that four ranks without replicas go on from."""
    for name, runs in {"whole": [[]], "replicas": [["--hsdp", 2, "--stop-at", 4], ["--fsdp", "--resume"]]}.items():
        (tmp_path / name).mkdir()
        for flags in runs:
            train_gpt(tmp_path / name, text_folder, "--steps", 8, *flags, ranks=4)
    assert_alike(logged(tmp_path / "replicas"), logged(tmp_path / "whole"))


def test_ranks_that_share_no_memory(whole_run, text_folder, tmp_path):
    """They gather parameters; the checkpoint in the middle is taken over by ranks that share memory, and the other way round."""
    train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--stop-at", 8, hosts=2)
    train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--stop-at", 16, "--resume")
    train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--resume", hosts=2)
    assert_alike(logged(tmp_path), logged(whole_run[0]))


def test_in_one_process_without_a_launcher(text_folder, tmp_path):
    code, out, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--steps", 4, "--fsdp", cwd=tmp_path)
    assert code == 0, err
    assert "this GPT" in out


@pytest.mark.parametrize("flags, message", [
    (["--eval-every", 0, "--eval-windows", 1], "there are 1 windows of text to test on, and 2 ranks that test together\n"
                                               "  hint: use more --eval-windows, a larger --held-out, or fewer ranks"),
    (["--eval-every", 2, "--eval-windows", 8], '[cohort] Trainer: a rank has no batch to evaluate, and others have up to 1; with strategy "fsdp" '
                                               "all must run the model together\n  hint: use a smaller batch size, or fewer ranks"),
], ids=["tests", "validation"])
def test_too_few_windows_are_said_before_training(text_folder, tmp_path, flags, message):
    code, _, err = train_gpt(tmp_path, text_folder, "--steps", 4, "--fsdp", "--log-every", 1, *flags, check=False)
    assert code == 1
    assert f"train_gpt: error: {message}\n" in err
    assert not any("train/loss" in path.read_text() for path in tmp_path.glob("log.jsonl"))


@pytest.mark.parametrize("flags, message", [
    (["--fsdp", "--zero"], "--fsdp and --zero do not go together: --fsdp already shards the optimizer's state; leave out --zero"),
    (["--hsdp", 1, "--zero"], "--hsdp and --zero do not go together: --hsdp already shards the optimizer's state; leave out --zero"),
    (["--hsdp", 2], "[cohort] ParallelDims: dp_shard is -1, which stands for the rest of 1 ranks, but pp(1) * dp_replicate(2) * cp(1) * tp(1) = 2 "
                    "does not divide 1: 1 mod 2 = 1\n  hint: start a multiple of 2 ranks, or change one of the numbers"),
    (["--tp", 2, "--zero"], "--tp and --zero do not go together: --tp already shards the optimizer's state; leave out --zero"),
])
def test_flags_that_do_not_go_together(text_folder, tmp_path, flags, message):
    code, _, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--steps", 4, *flags, cwd=tmp_path)
    assert code == 1
    assert err == f"train_gpt: error: {message}\n"
