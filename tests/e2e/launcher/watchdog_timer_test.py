"""Watchdog timers end to end, with the real parties both ways: cohort::Expires and torch.distributed.elastic.timer as clients, `cohort
run` and torchrun as those who watch.
"""
import re
import sys

import pytest

import forked_torchrun
from harness import BUILD
from jobs import wait_until

RANK = BUILD / "bin" / "tests" / "expires_rank"  # cohort::Expires; SCOPE AFTER TAKES [SIGNAL]
ON = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}
FOREVER = 1000
BORDER = re.compile(r"={20,}")

PYTHON_RANK = """
import os, time
from torch.distributed.elastic import timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=1000, scope="in time"):
    pass
print("pid", os.getpid(), flush=True)
with timer.expires(after=0.2, scope="from Python"):
    time.sleep(1000)
"""


def pid_of(agent, rank):
    return re.search(rf"rank {rank} \(pid (\d+)\)", agent.errors)[1]


def test_the_report_names_the_block(job):
    agent = job.start("--nproc-per-node=2", "--no-python", RANK, "epoch 7", 0.2, FOREVER, **ON)
    assert agent.finish() == 1
    pid = pid_of(agent, 1)
    why = 'block "epoch 7" overran its timer'
    assert f"[cohort] error: rank 1 (pid {pid}): {why}; ending the process with SIGKILL\n" in agent.errors
    assert (f"[cohort] error: rank 1 (pid {pid}) failed with signal 9 (SIGKILL): {why}; "
            "stopping the other workers with SIGTERM\n") in agent.errors
    report = BORDER.split(agent.errors)[1]
    assert f"  traceback : Signal 9 (SIGKILL) received by PID {pid}: {why}\n" in report[report.index("Root Cause"):]
    job.check_nothing_left()


@pytest.mark.tier_all
def test_a_block_that_is_over_is_forgotten(job, tmp_path):
    """Under both launchers at once: the ranks go on beyond the time that the block had."""
    rank = [str(RANK), "quick", "4", "0", "9"]
    agent = job.start("--no-python", *rank, AFTERWARDS="5", **ON)
    out, err = tmp_path / "out", tmp_path / "err"
    theirs = forked_torchrun.start(["--standalone", "--no-python", *rank],
                                   job.environment(AFTERWARDS="5", TORCHELASTIC_TIMER_FILE=str(tmp_path / "pipe"), **ON),
                                   tmp_path, out, err)
    assert agent.finish() == 0, agent.errors
    assert forked_torchrun.wait(theirs) == 0, err.read_text()
    assert agent.output == out.read_text() == "rank 0 is inside\nrank 0 is done\n"


def test_our_client_under_torchrun(job, tmp_path):
    """torchrun's server ends the process that overran, and with the same signal its own agent."""
    out, err = tmp_path / "out", tmp_path / "err"
    agent = forked_torchrun.start(["--standalone", "--no-python", RANK, "slow", 0.2, FOREVER],
                                  job.environment(TORCHELASTIC_TIMER_FILE=str(tmp_path / "pipe"), **ON), tmp_path, out, err)
    assert forked_torchrun.wait(agent) == -9, err.read_text()
    wait_until(lambda: not job.processes(), "the end of the rank")


def test_pythons_client_under_our_agent(job, tmp_path):
    (tmp_path / "work.py").write_text(PYTHON_RANK)
    agent = job.start(tmp_path / "work.py", PYTHON_EXEC=sys.executable, **ON)
    assert agent.finish() == 1
    pid = re.search(r"pid (\d+)", agent.output)[1]
    assert f'Signal 9 (SIGKILL) received by PID {pid}: block "from Python" overran its timer\n' in agent.errors
    assert "in time" not in agent.errors


def test_an_overrun_uses_up_a_restart(job):
    script = f'[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; exec {RANK} "first try" 0.2 {FOREVER} 15'
    agent = job.start_script(script, "--max-restarts=1", **ON)
    assert agent.finish() == 0, agent.errors
    assert re.search(r"\[cohort\] warning: restarting the workers, restart 1 of 1: rank 0 \(pid \d+\) on node 0 \(\S+\) failed with "
                     r'signal 15 \(SIGTERM\): block "first try" overran its timer\n', agent.errors), agent.errors


@pytest.mark.tier_all
def test_a_given_path_and_events(job):
    agent = job.start("--event-log-handler=console", "--no-python", RANK, "x", 5, FOREVER, **ON,
                      TORCHELASTIC_TIMER_FILE=str(job.folder / "pipe"))
    agent.wait_for_output("rank 0 is inside")
    assert (job.folder / "pipe").is_fifo()
    assert agent.finish() == 1
    assert not (job.folder / "pipe").exists()
    for event in ("timer expired", "kill worker process"):
        assert re.search(rf'"metadata":"{{.*\\"scope_id\\":\\"x\\",\\"signal\\":\\"9\\",\\"watchdog_event\\":\\"{event}\\"', agent.errors)


def test_a_killed_launcher_leaves_no_pipe(job):
    agent = job.start("--no-python", RANK, "x", FOREVER, FOREVER, **ON)
    agent.wait_for_output("rank 0 is inside")
    assert list(job.temporary.glob("torchelastic_timer_*/pipe"))
    agent.kill()
    agent.finish()
    job.check_nothing_left()


@pytest.mark.tier_all
def test_without_a_launcher_that_watches(job, tmp_path):
    agent = job.start("--no-python", RANK, "x", 0.001, 0.1, AFTERWARDS="0")
    assert agent.finish() == 0, agent.errors
    assert ("[cohort] warning: cohort::Expires: TORCHELASTIC_TIMER_FILE is not set, so no launcher watches these blocks\n"
            in agent.errors)
    missing = tmp_path / "missing"
    agent = job.start("--no-python", RANK, "x", 1, 0, TORCHELASTIC_TIMER_FILE=str(missing))
    assert agent.finish() == 1
    assert agent.output == (
        f'[cohort] the launcher does not take timers at TORCHELASTIC_TIMER_FILE="{missing}": No such file or directory (ENOENT)\n'
        "  hint: start the job with TORCHELASTIC_ENABLE_FILE_TIMER=1, or unset TORCHELASTIC_TIMER_FILE\n")
    agent = job.start("--no-python", RANK, "x" * 5000, 1, 0, **ON)
    assert agent.finish() == 1
    assert re.fullmatch(r"\[cohort\] a timer's scope is too long: its request has 5\d\d\d bytes, and at most 4096 can be sent\n", agent.output)
