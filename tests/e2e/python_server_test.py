"""Ranks that python_server.py forks are as processes of their own, as far as a script and its test can see."""
import os
import select
import subprocess
import sys

import pytest
from harness import run_ranks

import forked_torchrun
import python_server
from jobs import wait_until

SCRIPT = """
import json, os, pathlib, sys
import helper_of_script, helper_in_path
if __name__ == "__main__":
    print(json.dumps([sys.argv, os.environ.get("RANK"), os.getcwd(), "HOME" in os.environ, helper_of_script.NAME, helper_in_path.NAME]))
    print("to the other stream", file=sys.stderr)
    if "fail" in sys.argv:
        raise KeyError("failed")
    sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "scripts" / "script.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    (path.parent / "helper_of_script.py").write_text("NAME = 'beside the script'\n")
    (tmp_path / "helper_in_path.py").write_text("NAME = 'in PYTHONPATH'\n")
    return path


def environment(tmp_path, **more):
    return dict(os.environ, RANK="7", PYTHONPATH=str(tmp_path), OMP_NUM_THREADS="1", **more)


def ended(process, limit=300):
    out, err = process.communicate(timeout=limit)
    return process.returncode, out, err


def test_a_served_script_sees_and_says_what_it_does_alone(script, tmp_path):
    env = environment(tmp_path)
    command = [sys.executable, str(script), "3"]
    assert python_server.can_serve(command, env)
    alone = subprocess.run([*command[:2], "x", "3"], env=env, capture_output=True, text=True)
    served = python_server.start([*command[:2], "x", "3"], env)
    assert ended(served) == (alone.returncode, alone.stdout, alone.stderr)
    assert alone.returncode == 3 and "to the other stream" in alone.stderr and "in PYTHONPATH" in alone.stdout


def test_an_exception_ends_it_with_1_and_its_text(script, tmp_path):
    code, _, err = ended(python_server.start([sys.executable, str(script), "fail"], environment(tmp_path)))
    assert code == 1 and err.endswith("KeyError: 'failed'\n")


def test_a_killed_one_tells_its_signal_and_leaves_the_others_alone(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text("import sys\nprint('waits', flush=True)\nimport time\ntime.sleep(float(sys.argv[1]))\n")
    killed, other = (python_server.start([sys.executable, str(script), seconds], environment(tmp_path)) for seconds in ("600", "0.5"))
    assert killed.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        killed.communicate(timeout=0.1)
    killed.kill()
    assert ended(killed)[0] == -9
    assert ended(other) == (0, "waits\n", "")


def test_what_is_read_at_the_start_is_not_served(script, tmp_path):
    env = environment(tmp_path)
    command = [sys.executable, str(script)]
    assert python_server.can_serve(command, env)
    for name, value in [("OMP_NUM_THREADS", "2"), ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"), ("LD_PRELOAD", "libx.so")]:
        assert not python_server.can_serve(command, dict(env, **{name: value})), name
    assert not python_server.can_serve(["/bin/true", "x.py"], env)
    assert not python_server.can_serve([sys.executable, "-c", "pass"], env)


def test_ranks_end_with_their_server(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text("import time\ntime.sleep(600)\n")
    starts = ("import sys, time\nimport python_server\n"
              "print(python_server.start([sys.executable, sys.argv[1]], dict(__import__('os').environ)).pid, flush=True)\ntime.sleep(600)\n")
    starter = subprocess.Popen([sys.executable, "-c", starts, str(script)], cwd=os.path.dirname(__file__), stdout=subprocess.PIPE, text=True)
    pid = int(starter.stdout.readline())
    descriptor = os.pidfd_open(pid)
    starter.kill()
    starter.wait()
    assert select.select([descriptor], [], [], 300)[0], "the rank goes on without the test that started it"
    os.close(descriptor)


def test_run_ranks_takes_it(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text("import os, sys\nprint(os.environ['RANK'], 'torch' in sys.modules)\n")
    assert run_ranks([[sys.executable, script]] * 2) == [(0, "0 True\n", ""), (0, "1 True\n", "")]


def test_nothing_is_left_of_a_torchrun_that_hangs(tmp_path, monkeypatch):
    found = tmp_path / "pid"
    script = f"echo $$$$ > {found}.part; mv {found}.part {found}; exec sleep 1000"
    agent = forked_torchrun.start(["--standalone", "--no-python", "sh", "-c", script], environment(tmp_path), tmp_path,
                                  tmp_path / "out", tmp_path / "err")
    wait_until(found.exists, lambda: (tmp_path / "err").read_text())
    worker = os.pidfd_open(int(found.read_text()))
    monkeypatch.setattr(forked_torchrun, "HANG_LIMIT", 0.1)
    with pytest.raises(subprocess.TimeoutExpired):
        forked_torchrun.wait(agent)
    assert select.select([worker], [], [], 300)[0], "the worker outlives its agent"
    os.close(worker)
