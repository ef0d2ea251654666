"""Programs under a real SLURM of two nodes, started by the files that docs/guide/schedulers.md shows."""
import re

import pytest

import slurm_cluster
from harness import BUILD, SOURCE

FILES = SOURCE / "examples" / "schedulers"
ALL_REDUCE = BUILD / "bin" / "examples" / "all_reduce"
SUM_OF_FOUR = [f"rank {rank} of 4: the sum is 10" for rank in range(4)]
SUM_OF_TWO = [f"rank {rank} of 2: the sum is 3" for rank in range(2)]
NO_TASK = ("Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set\n"
           "  hint: this process is in SLURM job N, but is not one of its tasks (a batch script or a shell): start the program "
           "with srun\n")
MPI = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    reason = slurm_cluster.why_not()
    if reason:
        print(reason)
        pytest.skip(reason)
    slurm_cluster.namespaces.sweep()
    slurm = slurm_cluster.Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def script(slurm, text):
    file = slurm.folder / "job.sh"
    file.write_text("#!/bin/bash\n" + text)
    return file


def lines(text):
    return sorted(line for line in text.splitlines() if line.startswith("rank "))


def test_a_task_is_a_rank(slurm):
    code, text = slurm.batch(FILES / "slurm_srun.sbatch", ALL_REDUCE)
    assert (code, lines(text)) == (0, SUM_OF_FOUR), text


@pytest.mark.tier_all
def test_two_jobs_meet_on_the_same_nodes_at_once(slurm):
    # Each rank holds its place until both jobs run.
    places = slurm.folder / "places"
    places.mkdir()
    wait = f"touch {places}/$SLURM_JOB_ID-$SLURM_PROCID; while [ $(ls {places} | wc -l) -lt 8 ]; do sleep 0.05; done"
    command = ["srun", "--nodes=2", "--ntasks-per-node=2", "sh", "-c", f"{wait}; exec {ALL_REDUCE}"]
    jobs = [slurm.start_user(command) for _ in range(2)]
    ended = [job.communicate(timeout=300) for job in jobs]
    assert [(job.returncode, lines(out)) for job, (out, _) in zip(jobs, ended)] == [(0, SUM_OF_FOUR)] * 2, ended


@pytest.mark.tier_all
def test_a_step_smaller_than_its_job_and_two_steps_at_once(slurm):
    step = f"srun --exact --nodes=1 --ntasks=2 {ALL_REDUCE}"
    code, text = slurm.batch(script(slurm, f"{step} & {step} & wait"), flags=["--nodes=1", "--ntasks=4"])
    assert (code, lines(text)) == (0, sorted(SUM_OF_TWO * 2)), text


def test_a_batch_script_and_a_shell_are_no_ranks(slurm):
    code, text = slurm.batch(script(slurm, f"exec {BUILD}/bin/examples/ranks_by_hand"),
                             flags=["--nodes=2", "--ntasks=4"])
    assert (code, re.sub(r"job \d+", "job N", text)) == (1, NO_TASK)
    shell = slurm.run(["salloc", "--quiet", "--nodes=2", "--ntasks=4", BUILD / "bin" / "examples" / "ranks_by_hand"])
    assert (shell.returncode, re.sub(r"job \d+", "job N", shell.stderr)) == (1, NO_TASK)


@pytest.mark.tier_all
def test_a_batch_script_that_a_task_submits_is_no_rank(slurm):
    file = script(slurm, f"exec {BUILD}/bin/examples/ranks_by_hand")
    out = slurm.folder / "submitted.out"
    sbatch = ["sbatch", "--parsable", "--nodes=2", "--ntasks=2", f"--output={out}", file]
    submitted = slurm.run(["srun", "--nodes=1", "--ntasks=1", *sbatch])
    assert slurm.wait_for_job(submitted.stdout.strip()) == 1
    assert re.sub(r"job \d+", "job N", out.read_text()) == NO_TASK


@pytest.mark.tier_all
@pytest.mark.parametrize("flags", [["--mpi=pmi2"], ["--distribution=cyclic"]])
def test_other_ways_to_srun(slurm, flags):
    done = slurm.run(["srun", "--nodes=2", "--ntasks=4", *flags, ALL_REDUCE])
    assert (done.returncode, lines(done.stdout)) == (0, SUM_OF_FOUR), done.stderr


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi", "mpirun.mpich"])
def test_mpirun_in_a_slurm_job(slurm, mpirun):
    if slurm_cluster.shutil.which(mpirun) is None:
        pytest.skip(f"{mpirun} is not installed")
    done = slurm.run(["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2", mpirun, "-n", "4", ALL_REDUCE], **MPI)
    assert (done.returncode, lines(done.stdout)) == (0, SUM_OF_FOUR), done.stderr


def test_a_failed_rank_ends_the_job(slurm):
    program = slurm.folder / "fails_on_one.sh"
    program.write_text(f"#!/bin/bash\n[ $SLURM_PROCID = 1 ] && exit 7\nexec {ALL_REDUCE}\n")
    program.chmod(0o755)
    code, text = slurm.batch(FILES / "slurm_srun.sbatch", program)
    assert code != 0 and "Exited with exit code 7" in text, text


def test_an_agent_per_node(slurm):
    slurm_path = f"{BUILD}/bin:{slurm_cluster.path()}"
    code, text = slurm.batch(FILES / "slurm_agents.sbatch", ALL_REDUCE, PATH=slurm_path)
    assert (code, lines(text)) == (0, SUM_OF_FOUR), text


@pytest.mark.tier_all
def test_the_sixth_step_of_cifar(slurm):
    for name, target in (("build", BUILD), ("data", slurm.folder / "cifar")):
        (slurm.folder / name).symlink_to(target)
    slurm.run([BUILD / "bin" / "cohort-data", "make", "cifar10", "--root", slurm.folder / "cifar", "--samples", "100"])
    code, text = slurm.batch(SOURCE / "examples" / "cifar" / "6_slurm.sbatch", "1", slurm.folder / "run", OMP_NUM_THREADS="1")
    assert code == 0 and text.count("epoch 1: loss ") == 1 and text.count("test accuracy ") == 1, text
    assert (slurm.folder / "run" / "checkpoint.safetensors").exists()
