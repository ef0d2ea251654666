"""cohort::spawn(..., join=false) beside torch.multiprocessing: results of join, errors and their fields, in the same scenarios."""
import subprocess

SCENARIOS = '''
import os, pathlib, signal, sys, time
import torch.multiprocessing as mp

folder = pathlib.Path(sys.argv[1])


def touch(name):
    (folder / name).touch()


def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.001)


def pause_for_ever():
    while True:
        signal.pause()


def start(fn, nprocs):
    return mp.start_processes(fn, nprocs=nprocs, join=False, start_method="fork")


def in_words(context, **limits):
    try:
        return str(context.join(**limits))
    except mp.ProcessExitedException as error:
        pid = "its pid" if error.error_pid == context.pids()[error.error_index] else "another pid"
        return (f"ProcessExitedException | {error} | {error.error_index} | {pid} | {int(error.exit_code)} | "
                f"{error.signal_name}")
    except mp.ProcessRaisedException as error:
        lines = str(error).strip().splitlines()
        return f"ProcessRaisedException | {lines[0]} | {lines[-1].removeprefix('RuntimeError: ')} | {error.error_index}"


def run(name, fn, nprocs, grace=None):
    context, last = start(fn, nprocs), None
    while last != "True":
        last = in_words(context, grace_period=grace)
        if last != "False":
            print(f"{name}: {last}", flush=True)


def one_by_one():
    context = start(lambda rank: wait_for(f"go{rank}"), 2)

    def say(timeout):
        print("one by one:", in_words(context, timeout=timeout), flush=True)

    print("one by one:", len(context.pids()), "pids", flush=True)
    say(0), say(0.02), touch("go0"), say(None), say(0.02), touch("go1"), say(None), say(0)


def stubborn(rank):
    if rank == 1:
        wait_for("deaf")
        os._exit(4)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    touch("deaf")
    pause_for_ever()


def polite(rank):
    if rank == 1:
        os._exit(5)
    wait_for("polite")


def raised(rank):
    if rank == 0:
        raise RuntimeError("no more data")
    pause_for_ever()


def kill_self(number):
    os.kill(os.getpid(), number)


one_by_one()
run("exit code", lambda rank: os._exit(3) if rank == 1 else pause_for_ever(), 3)
run("signal", lambda rank: kill_self(9) if rank == 0 else pause_for_ever(), 2)
run("unknown signal", lambda rank: kill_self(40), 1)
run("first real-time signal", lambda rank: kill_self(signal.SIGRTMIN), 1)
run("raised", raised, 2)
run("stubborn", stubborn, 2, grace=0.3)
touch("polite")
run("polite", polite, 2, grace=20)
run("no grace", lambda rank: os._exit(6) if rank == 1 else pause_for_ever(), 2, grace=0)
'''

EXPECTED = """\
one by one: 2 pids
one by one: False
one by one: False
one by one: False
one by one: False
one by one: True
one by one: True
exit code: ProcessExitedException | process 1 terminated with exit code 3 | 1 | its pid | 3 | None
exit code: ProcessExitedException | process 0 terminated with signal SIGTERM | 0 | its pid | -15 | SIGTERM
exit code: ProcessExitedException | process 2 terminated with signal SIGTERM | 2 | its pid | -15 | SIGTERM
exit code: True
signal: ProcessExitedException | process 0 terminated with signal SIGKILL | 0 | its pid | -9 | SIGKILL
signal: ProcessExitedException | process 1 terminated with signal SIGTERM | 1 | its pid | -15 | SIGTERM
signal: True
unknown signal: ProcessExitedException | process 0 terminated with signal <Unknown signal 40> | 0 | its pid | -40 | <Unknown signal 40>
unknown signal: True
first real-time signal: ProcessExitedException | process 0 terminated with signal SIGRTMIN | 0 | its pid | -34 | SIGRTMIN
first real-time signal: True
raised: ProcessRaisedException | -- Process 0 terminated with the following error: | no more data | 0
raised: ProcessExitedException | process 1 terminated with signal SIGTERM | 1 | its pid | -15 | SIGTERM
raised: True
stubborn: ProcessExitedException | process 1 terminated with exit code 4 | 1 | its pid | 4 | None
stubborn: ProcessExitedException | process 0 terminated with signal SIGKILL | 0 | its pid | -9 | SIGKILL
stubborn: True
polite: ProcessExitedException | process 1 terminated with exit code 5 | 1 | its pid | 5 | None
polite: True
no grace: ProcessExitedException | process 1 terminated with exit code 6 | 1 | its pid | 6 | None
no grace: ProcessExitedException | process 0 terminated with signal SIGTERM | 0 | its pid | -15 | SIGTERM
no grace: True
"""


def test_contexts_behave_alike(programs, python, tmp_path):
    outputs = {}
    for name, command in {"torch": [python, "-c", SCENARIOS], "cohort": [programs / "spawn_scenarios"]}.items():
        (tmp_path / name).mkdir()
        done = subprocess.run([*command, tmp_path / name], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        outputs[name] = done.stdout
    assert outputs["torch"].splitlines() == EXPECTED.splitlines()
    assert outputs["cohort"].splitlines() == EXPECTED.splitlines()
