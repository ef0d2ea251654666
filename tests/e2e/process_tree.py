"""A process and all that it has started: what is there, and how it is ended. Agents of PyTorch's, shells and mpirun leave their
children behind when they are killed.
"""
import os
import pathlib
import signal
import subprocess
import time


def read_process(pid, name):
    try:
        return pathlib.Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""


def state_of(pid):
    """(letter, parent) as in /proc/PID/stat; None if the process is gone."""
    stat = read_process(pid, "stat").decode(errors="replace")
    return (stat.rpartition(") ")[2].split()[0], int(stat.rpartition(") ")[2].split()[1])) if stat else None


def children_of(pid):
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and (state_of(entry) or ("", 0))[1] == pid]


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_tree(root):
    """Ends them in whatever sessions they are. Each is stopped before its children are looked for, so that it starts no more."""
    tree = [root]
    for pid in tree:
        send(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while (state_of(pid) or "Z")[0] not in "TtZX" and time.monotonic() < deadline:
            time.sleep(0.001)
        tree += children_of(pid)
    for pid in tree:
        send(pid, signal.SIGKILL)


def run(command, timeout, **options):
    """subprocess.run() with captured text, of which nothing is left after a timeout."""
    command = [str(word) for word in command]
    return finish(subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options), timeout)


def finish(process, timeout):
    """The same for a process that has been started with pipes for its output."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            kill_tree(process.pid)
            process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
