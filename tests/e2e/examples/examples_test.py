"""Every example, started as its first lines say (short forms), and what can go wrong with it."""
import os
import re
import signal
import stat
import subprocess
import time

import pytest

from harness import BUILD, SOURCE, free_port, run_ranks
from jobs import wait_until
from example_runs import (COHORT, EXAMPLES, GPT_FLAGS, checkpoint, launch, lines, logged, run, train_gpt,
                          wait_for_checkpoint)

pytestmark = pytest.mark.tier_all  # they need every example


def losses(text, rank=None):
    start = "" if rank is None else rf"\[rank {rank}\] "
    return [float(m) for m in re.findall(rf"(?m)^{start}epoch \d+ \| .* loss ([\d.]+)$", text)]


def test_every_source_is_an_example_that_says_how_to_start_it():
    sources = sorted((SOURCE / "examples").glob("*.cpp"))
    assert len(sources) == 13
    for source in sources:
        name = source.stem.split("_", 1)[1]
        head = source.read_text().split("#include")[0]
        assert f"build/bin/examples/{name}" in head and "print" in head, source
        assert (EXAMPLES / name).exists()


def test_all_reduce():
    code, out, err = launch("all_reduce")
    assert code == 0, err
    assert sorted(out.splitlines()) == ["rank 0 of 2: the sum is 3", "rank 1 of 2: the sum is 3"]
    source = (SOURCE / "examples" / "01_all_reduce.cpp").read_text()
    assert len([line for line in source.splitlines() if line and not line.startswith("//")]) <= 20


def test_train_single(tmp_path):
    code, out, err = run(EXAMPLES / "train_single", "--epochs", 12, "--save-every", 5, cwd=tmp_path)
    assert code == 0, err
    assert lines(out, r"^epoch 0 \| batch size 32 \| steps 64 \| loss \d\.\d{4}$")
    assert len(losses(out)) == 12 and losses(out)[-1] < losses(out)[0]
    assert lines(out, "checkpoint saved") == [f"epoch {e} | checkpoint saved at checkpoint.safetensors" for e in (0, 5, 10)]
    from safetensors.torch import load_file
    assert {k: tuple(v.shape) for k, v in load_file(tmp_path / "checkpoint.safetensors").items()} == {
        "weight": (1, 20), "bias": (1,)}


def test_train_spawn(tmp_path):
    code, out, err = run(EXAMPLES / "train_spawn", "--nprocs", 2, "--epochs", 6, "--save-every", 5, cwd=tmp_path)
    assert code == 0, err
    for rank in (0, 1):
        assert len(losses(out, rank)) == 6
        assert losses(out, rank)[-1] < losses(out, rank)[0]
    assert len(lines(out, r"^\[rank [01]\] epoch 0 \| batch size 32 \| steps 32 \|")) == 2
    assert len(lines(out, "checkpoint saved")) == 2
    assert (tmp_path / "checkpoint.safetensors").exists()


def test_train_spawn_equals_train_single_in_quality(tmp_path):
    code, out, _ = run(EXAMPLES / "train_spawn", "--nprocs", 1, "--epochs", 3, cwd=tmp_path)
    assert code == 0
    code2, out2, _ = run(EXAMPLES / "train_single", "--epochs", 3, cwd=tmp_path)
    assert code2 == 0
    assert losses(out, 0)[-1] == pytest.approx(losses(out2)[-1], rel=0.1)


def test_train_run_resumes_from_its_snapshot(tmp_path):
    code, out, err = launch("train_run", "--epochs", 12, "--save-every", 10, cwd=tmp_path)
    assert code == 0, err
    whole = losses(out, 0)
    assert len(whole) == 12 and len(lines(out, "snapshot saved")) == 2

    code, out, err = launch("train_run", "--epochs", 12, "--save-every", 10, cwd=tmp_path)
    assert code == 0, err
    assert sorted(lines(out, "resuming")) == [
        f"[rank {rank}] resuming from snapshot.safetensors at epoch 11" for rank in (0, 1)]
    assert losses(out, 0) == whole[11:]


def test_two_agents():
    port = free_port()
    agents = [subprocess.Popen([COHORT, "run", "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1",
                                "--master-addr", "127.0.0.1", "--master-port", str(port), EXAMPLES / "two_agents"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for node in (0, 1)]
    try:
        outputs = [agent.communicate(timeout=300) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    for node, (out, _) in enumerate(outputs):
        assert f"rank {node} of 2 | agent {node} | local rank 0 of 1" in out
    seen = [re.findall(r"step (\d+) \| loss ([\d.]+)", out) for out, _ in outputs]
    assert seen[0] == seen[1] and len(seen[0]) == 10
    assert float(seen[0][-1][1]) < float(seen[0][0][1])


def test_toy_model(tmp_path):
    code, out, err = run(EXAMPLES / "toy_model", "--nprocs", 2, env={"TMPDIR": str(tmp_path)})
    assert code == 0, err
    for rank in (0, 1):
        assert f"running the basic DDP example on rank {rank}" in out
        assert f"running the DDP checkpoint example on rank {rank}" in out
    assert "every rank loaded the checkpoint of rank 0" in out
    assert "skipping the model-parallel example: it needs 2 devices per rank, 2 ranks need 4, this machine has 0" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("replicas", [1, 3])
def test_data_parallel(replicas):
    code, out, err = run(EXAMPLES / "data_parallel", "--replicas", replicas, "--epochs", 20)
    assert code == 0, err
    assert out.splitlines()[0] == f"devices: {replicas} x cpu"
    losses = [float(loss) for loss in re.findall(r"^epoch \d+: loss ([\d.]+), accuracy [\d.]+$", out, re.M)]
    assert len(losses) == 20 and losses[-1] < 0.1 * losses[0], "it learns its 320 samples by heart"
    assert out.splitlines()[-1] == "trained 20 epochs with DataParallel"


def places_of_simulated_devices():
    """CUDA's place is free in a LibTorch without CUDA only."""
    libraries = subprocess.run(["ldd", EXAMPLES / "toy_model"], capture_output=True, text=True).stdout
    return ["sim"] if "libtorch_cuda" in libraries else ["sim", "cuda"]


# Its kernels and copies run as late as they may.
def test_toy_model_on_two_devices_a_rank(tmp_path):
    for place in places_of_simulated_devices():
        code, out, err = run(EXAMPLES / "toy_model", "--nprocs", 2,
                             env={"TMPDIR": str(tmp_path), "LD_PRELOAD": str(BUILD / "lib" / "libcohort_sim_preload.so"),
                                  "COHORT_TEST_SIM": f"{place},late-default"})
        assert code == 0, err
        assert "skipping" not in out
        assert f"rank 0 has trained a model on {place}:0 and {place}:1" in out
        assert f"rank 1 has trained a model on {place}:2 and {place}:3" in out


@pytest.mark.parametrize("ranks", [1, 3])
def test_hogwild_trains_one_model_in_all_processes(ranks):
    code, out, err = run(EXAMPLES / "hogwild", "--nprocs", ranks, "--epochs", 4)
    assert code == 0, err
    # A rank that came late starts from what the others have learned.
    assert max(float(m) for m in re.findall(r"epoch 0 \| 64 steps \| loss ([\d.]+)", out)) > 0.25
    for rank in range(ranks):
        losses = [float(m) for m in re.findall(rf"(?m)^\[rank {rank}\] epoch \d \| 64 steps \| loss ([\d.]+)$", out)]
        assert len(losses) == 4 and losses[-1] < 0.25
    # Each has its own address space; one memory is the only way to agree to the last bit on weights that nobody has sent.
    sums = re.findall(r"(?m)^\[rank \d\] all ranks have finished \| sum of the weights ([\d.]+)$", out)
    steps, of_parent, right = re.search(r"parent: (\d+) steps by \d ranks \| sum of the weights ([\d.]+) \| ([\d.]+) % right",
                                        out).groups()
    assert sums == [of_parent] * ranks
    assert int(steps) == ranks * 4 * 64
    # The parent's model was not trained by the parent.
    assert float(right) > 90


def test_ranks_by_hand():
    results = run_ranks([[EXAMPLES / "ranks_by_hand"]] * 3)
    assert [code for code, _, _ in results] == [0, 0, 0], results
    assert [out for _, out, _ in results] == [
        f"rank {rank} of 3 got {(rank + 2) % 3} from rank {(rank + 2) % 3}; all ranks together hold 0 1 2\n"
        for rank in range(3)]


def test_ranks_by_hand_without_its_variables():
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    done = subprocess.run([EXAMPLES / "ranks_by_hand"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert ("RANK expected, but not set\n  hint: start this program by a launcher, as in `cohort run --nproc-per-node 2 "
            f"{EXAMPLES / 'ranks_by_hand'}`, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT\n") in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["train_single", "train_spawn", "train_run", "toy_model", "hogwild"])
def test_bad_flag(name):
    code, _, err = run(EXAMPLES / name, "--no-such-flag")
    assert code != 0
    assert err == "The following argument was not expected: --no-such-flag\nRun with --help for more information.\n"


def test_bad_value():
    code, _, err = run(EXAMPLES / "train_single", "--epochs", "-3")
    assert code != 0
    assert err == "--epochs: Value -3 not in range 1 to 1000000\nRun with --help for more information.\n"


@pytest.mark.parametrize("flags, message", [
    (["--no-such-flag"], "there is no option --no-such-flag\n  hint: --help lists the options"),
    (["--auto_resum"], 'there is no option --auto_resum (did you mean "--auto-resume"?)\n  hint: --help lists the options'),
    (["--steps", "0"], '--steps "0": must be at least 1'),
    (["--clip=-1"], '--clip "-1": must be at least 0'),
])
def test_train_gpt_bad_option(flags, message):
    code, _, err = run(EXAMPLES / "train_gpt", *flags)
    assert code == 2
    assert err == f"error: {message}\n"


def test_train_gpt_learns_and_reports(whole_run):
    folder, out = whole_run
    assert re.search(r"^41 text files in .*, 1 of them copies: ", out, re.M)
    assert lines(out, r"^epoch 1  step \d+/24  loss \d\.\d+  lr \S+  [\d.]+k? samples/s  .*ETA \d+:\d\d  ")
    assert lines(out, r"^epoch 1, step 16:  validation/loss \d\.\d+$")
    assert lines(out, r"^epoch 1  24 steps in \d+:\d\d  loss \d\.\d+  ")
    loss = logged(folder)
    assert sorted(loss) == list(range(2, 25, 2))
    assert loss[24] < loss[2] < 6
    held_out = re.search(r"held-out loss in nats per byte, over (\d+) bytes.*\n  unigram +([\d.]+)\n"
                         r"  interpolated 4-gram +([\d.]+)\n  this GPT +([\d.]+)  \(", out)
    assert held_out and 0 < float(held_out[3]) < float(held_out[2])
    assert float(held_out[4]) == pytest.approx(logged(folder, "test/loss")[24], abs=1e-4)
    assert "a text by the model" in out and "checkpoints: train_gpt" in out


def test_train_gpt_checkpoint_is_private_and_has_nanogpts_names(whole_run):
    folder = whole_run[0] / "train_gpt"
    assert [path.name for path in folder.iterdir()] == ["step-00000024"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o600}
    assert checkpoint(whole_run[0])["model.transformer.h.0.attn.c_attn.weight"].shape == (48, 16)


def test_train_gpt_resumes_exactly(whole_run, text_folder, tmp_path):
    train_gpt(tmp_path, text_folder, "--steps", 24, "--stop-at", 10)
    out = train_gpt(tmp_path, text_folder, "--steps", 24, "--resume")[1]
    assert 'resumes after step 10 of "train_gpt" (epoch 0, batch 10)' in out
    assert logged(tmp_path) == logged(whole_run[0])
    assert logged(tmp_path, "test/loss") == logged(whole_run[0], "test/loss")
    ours, whole = checkpoint(tmp_path), checkpoint(whole_run[0])
    assert ours.keys() == whole.keys()
    assert all(ours[name].equal(whole[name]) for name in whole)


def test_train_gpt_killed_in_the_middle_resumes_exactly(whole_run, text_folder, tmp_path):
    command = [COHORT, "run", "--standalone", "--nproc-per-node", "2", EXAMPLES / "train_gpt", "--data", text_folder,
               *GPT_FLAGS, "--log", "log.jsonl", "--steps", "24", "--save-every", "6"]
    job = subprocess.Popen([str(part) for part in command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env=dict(os.environ, OMP_NUM_THREADS="1"))
    wait_for_checkpoint(tmp_path, job)
    job.send_signal(signal.SIGKILL)
    job.stdout.read()  # until the last worker has gone
    job.wait()
    (tmp_path / "log.jsonl").unlink(missing_ok=True)
    out = train_gpt(tmp_path, text_folder, "--steps", 24, "--save-every", 6, "--resume")[1]
    step = int(re.search(r'resumes after step (\d+) of "train_gpt"', out)[1])
    assert step % 6 == 0
    assert logged(tmp_path) == {s: loss for s, loss in logged(whole_run[0]).items() if s > step}
    assert logged(tmp_path, "test/loss") == logged(whole_run[0], "test/loss")


def test_train_gpt_accumulates_to_the_same_step(text_folder, tmp_path):
    """2 ranks x 4 windows against 2 ranks x 2 passes x 2 windows: the same windows, so nearly the same losses."""
    for name, flags in {"once": ["--batch-size", 4], "twice": ["--batch-size", 2, "--gradient-accumulation-steps", 2]}.items():
        (tmp_path / name).mkdir()
        train_gpt(tmp_path / name, text_folder, "--steps", 6, "--dropout", 0, *flags)
    once, twice = logged(tmp_path / "once"), logged(tmp_path / "twice")
    assert once.keys() == twice.keys()
    for step, loss in once.items():
        assert twice[step] == pytest.approx(loss, rel=1e-4)


def test_train_gpt_with_its_optimizer_divided(whole_run, text_folder, tmp_path):
    """The same losses, and checkpoints that runs with and without --zero exchange."""
    train_gpt(tmp_path, text_folder, "--steps", 24, "--stop-at", 8, "--zero")
    train_gpt(tmp_path, text_folder, "--steps", 24, "--stop-at", 16, "--resume")
    train_gpt(tmp_path, text_folder, "--steps", 24, "--resume", "--zero")
    assert logged(tmp_path) == logged(whole_run[0])
    ours, whole = checkpoint(tmp_path), checkpoint(whole_run[0])
    assert ours.keys() == whole.keys()
    assert all(ours[name].equal(whole[name]) for name in whole)


def test_train_gpt_in_one_process_without_a_launcher(text_folder, tmp_path):
    code, out, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--steps", 4, cwd=tmp_path)
    assert code == 0, err
    assert "this GPT" in out


@pytest.mark.parametrize("flags, message", [
    (["--resume"], 'train_gpt: error: [cohort] Trainer: there is no checkpoint in "train_gpt" to resume from\n'),
    (["--heads", 3], "train_gpt: error: [cohort] GPT: n_embd must be a multiple of n_head, got n_embd 16 and n_head 3"),
    (["--data", "/no/such/folder"], 'no text at "/no/such/folder"'),
    (["--held-out", 1.5], "[cohort] split_text needs 0 < held_out_fraction < 1, but got 1.5"),
    (["--batch-size", 100000], "[cohort] Trainer: an epoch has no batch to train on\n"
                               "  hint: check the dataset's size, drop_last and limit_train_batches"),
])
def test_train_gpt_errors(text_folder, tmp_path, flags, message):
    code, _, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--steps", 4, *flags, cwd=tmp_path)
    assert code == 1
    assert message in err


@pytest.mark.parametrize("flags, text", [
    (["--width", 32], "width = 16, but this run has 32"),
    (["--tie-weights"], "tie-weights = false, but this run has true"),
])
def test_train_gpt_refuses_a_checkpoint_of_another_model(whole_run, text_folder, flags, text):
    code, _, err = train_gpt(whole_run[0], text_folder, "--steps", 24, "--resume", *flags, ranks=1, check=False)
    assert code == 1
    assert f'train_gpt: error: [cohort] Trainer: the checkpoint in "train_gpt" was made with {text}\n' in err


def test_train_gpt_does_not_begin_anew_over_a_run(whole_run, text_folder):
    code, _, err = train_gpt(whole_run[0], text_folder, "--steps", 24, ranks=1, check=False)
    assert code == 1
    assert 'train_gpt: error: [cohort] Trainer: "train_gpt" has checkpoints of another run, up to step 24, ' in err


@pytest.mark.parametrize("strategy", [[], ["--fsdp"]], ids=["ddp", "fsdp"])
def test_train_gpt_goes_on_from_memory(text_folder, tmp_path, strategy):
    """A rank is killed after the 9th step, between two checkpoints: the run ends with the bits of one that was not disturbed."""
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    flags = ["--steps", 400, "--log-every", 1, "--eval-every", 0, *strategy]
    train_gpt(tmp_path / "whole", text_folder, *flags)
    command = [COHORT, "run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", EXAMPLES / "train_gpt", "--data",
               text_folder, *GPT_FLAGS, "--log", "log.jsonl", *flags, "--memory-snapshots", 1]
    job = subprocess.Popen([str(part) for part in command], cwd=tmp_path / "killed", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    log, deadline = tmp_path / "killed" / "log.jsonl", time.monotonic() + 300
    while not (log.exists() and log.read_text().count("\n") >= 9):
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    workers = subprocess.run(["pgrep", "--parent", str(job.pid), "train_gpt"], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    out, err = job.communicate(timeout=300)
    assert job.returncode == 0, err
    found = re.search(r"resumes after step (\d+) from memory \(epoch \d+, batch \d+\)", out)
    assert found, out + err
    step = int(found[1])
    assert 8 <= step < 400
    assert logged(tmp_path / "killed") == logged(tmp_path / "whole")
    ours, whole = checkpoint(tmp_path / "killed"), checkpoint(tmp_path / "whole")
    assert ours.keys() == whole.keys()
    assert all(ours[name].equal(whole[name]) for name in whole)


def test_train_gpt_goes_on_from_the_jobs_own_checkpoint(text_folder, tmp_path):
    """Without --auto-resume, as no other run's checkpoints may be mixed with this one's; those of this job before a restart may."""
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    flags = ["--steps", 400, "--log-every", 1, "--eval-every", 0, "--save-every", 8]
    train_gpt(tmp_path / "whole", text_folder, *flags)
    command = [COHORT, "run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3", EXAMPLES / "train_gpt", "--data",
               text_folder, *GPT_FLAGS, "--log", "log.jsonl", *flags]
    job = subprocess.Popen([str(part) for part in command], cwd=tmp_path / "killed", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    wait_for_checkpoint(tmp_path / "killed", job)
    workers = subprocess.run(["pgrep", "--parent", str(job.pid), "train_gpt"], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    out, err = job.communicate(timeout=300)
    assert job.returncode == 0, err
    assert err.count("restarting the workers, restart ") == 1, err
    assert int(re.search(r'resumes after step (\d+) of "train_gpt"', out)[1]) % 8 == 0, out
    assert logged(tmp_path / "killed") == logged(tmp_path / "whole")
    ours, whole = checkpoint(tmp_path / "killed"), checkpoint(tmp_path / "whole")
    assert ours.keys() == whole.keys()
    assert all(ours[name].equal(whole[name]) for name in whole)


@pytest.mark.parametrize("flags, text", [
    (["--pp", 2, "--memory-snapshots", 1], "train_gpt: error: --pp and --memory-snapshots do not go together: "),
    (["--no-such-flag"], "error: there is no option --no-such-flag"),
], ids=["refused together", "unknown"])
def test_wrong_flags_are_not_tried_for_ever(text_folder, tmp_path, flags, text):
    code, _, err = run(COHORT, "run", "--standalone", "--nproc-per-node", 2, "--max-restarts", 5, EXAMPLES / "train_gpt", "--data",
                       text_folder, *GPT_FLAGS, *flags, cwd=tmp_path)
    assert code == 1
    assert text in err
    assert err.count("restarting the workers, restart ") == 1, err
    assert "the workers have ended twice with the same error of the program, soon after their start; not restarting them" in err


def test_another_runs_checkpoints_are_not_tried_for_ever(whole_run, text_folder):
    code, _, err = run(COHORT, "run", "--standalone", "--nproc-per-node", 1, "--max-restarts", 5, EXAMPLES / "train_gpt", "--data",
                       text_folder, *GPT_FLAGS, "--steps", 24, cwd=whole_run[0])
    assert code == 1
    assert err.count('"train_gpt" has checkpoints of another run, up to step 24, ') >= 2, err
    assert err.count("restarting the workers, restart ") == 1, err


def test_own_project_learns_and_goes_on_after_its_last_epoch(tmp_path):
    code, out, err = launch("own_project", cwd=tmp_path)
    assert code == 0, err
    found = re.findall(r"(?m)^epoch (\d) \| lr (0\.\d{4}) \| held-out loss (\d+\.\d{4})$", out)
    assert [(int(epoch), lr) for epoch, lr, _ in found] == list(enumerate(["0.0100"] * 3 + ["0.0050"] * 2 + ["0.0025"])), out
    assert float(found[-1][2]) < float(found[0][2]) / 2

    from safetensors import safe_open
    with safe_open(tmp_path / "own_project.safetensors", "pt") as file:
        assert file.metadata()["epoch"] == "6"
    assert launch("own_project", cwd=tmp_path)[:2] == (0, "resuming after epoch 5\n")


def test_own_project_stopped_and_resumed_ends_as_one_that_was_not(tmp_path):
    """Its file after three epochs is the same whether the run then goes on or another takes over."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    code, out, err = launch("own_project", cwd=whole)
    assert code == 0, err
    worker = subprocess.Popen([COHORT, "run", "--standalone", "--nproc-per-node", "2", EXAMPLES / "own_project"], cwd=parts,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    wait_until((parts / "own_project.safetensors").exists, "the first checkpoint")
    worker.kill()
    worker.communicate(timeout=300)
    code, again, err = launch("own_project", cwd=parts)
    assert code == 0, err
    assert lines(again, r"^resuming after epoch \d$")
    wanted = lines(out, r"^epoch \d")
    assert lines(again, r"^epoch \d") == wanted[len(wanted) - len(lines(again, r"^epoch \d")):]


def test_simulation_trains_alike_in_every_way():
    code, out, err = launch("simulation", "--width", 32, "--layers", 2, "--solver-steps", 3, "--rounds", 6)
    assert code == 0, err
    found = re.findall(r"(?m)^(.{28}) median +(\d+\.\d{2}) ms  fastest +\d+\.\d{2} ms  loss (\d\.\d{4})$", out)
    assert [name.strip() for name, _, _ in found] == ["nothing exchanged", "all_reduce of each gradient", "all_reduce_coalesced",
                                                      "a Reducer per layer", "one Reducer"], out
    assert len({loss for _, _, loss in found[1:]}) == 1, out


@pytest.mark.parametrize("model", ["image_classifier", "train_model"])
def test_image_classifier(model):
    code, out, err = launch("image_classifier", "--model", model, "--epochs", 2)
    assert code == 0, err
    # 100 images are 4 batches for each of two ranks, of which the first is shown.
    losses = re.findall(r"^Epoch (\d), Batch 0, Loss: ([\d.]+)$", out, re.M)
    assert [epoch for epoch, _ in losses] == ["1", "2"] and all(1.5 < float(loss) < 4 for _, loss in losses), out
    assert out.endswith("Training Complete!\n") and out.count("Training Complete!") == 1


@pytest.mark.parametrize("page", ["collectives", "context_parallel", "ddp", "data", "checkpoints", "data_parallel", "optimizers",
                                  "device_mesh", "dtensor", "together", "memory", "logging", "mixed_precision", "models", "pipeline", "schedules_and_metrics", "tensor_parallel"])
def test_pieces_of_the_guide_run(page):
    code, out, err = launch("guide_pieces", page)
    assert code == 0, err
    assert lines(out, "done") == [f"{page}: done"] * 2


def test_pieces_of_the_guide_about_data_sets_run(tmp_path):
    for name in ("mnist", "cifar10", "tokens", "csv"):
        subprocess.run([COHORT.parent / "cohort-data", "make", name, "--root", tmp_path], check=True, capture_output=True, timeout=300)
    code, out, err = launch("guide_pieces", "datasets", env={"GUIDE_DATA": str(tmp_path)})
    assert code == 0, err
    assert lines(out, "done") == ["datasets: done"] * 2
