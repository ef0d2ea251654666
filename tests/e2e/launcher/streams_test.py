"""Standard streams that are closed, or that nobody reads: every tool still works, and ends when it is told to."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from harness import BUILD
from jobs import HANG_LIMIT, wait_until

CLOSE = {0: "<&-", 1: ">&-", 2: "2>&-"}
ECHO = "echo out of $RANK; echo err of $RANK >&2"


@contextlib.contextmanager
def unread(kind):
    """The end of a pipe or socket that takes no byte more."""
    if kind == "pipe":
        reader, writer = os.pipe()
    else:
        reader, writer = (end.detach() for end in socket.socketpair())
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(1 << 16))
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n")
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


def blocked_in_write(process):
    """True once the process waits for somebody to read what it writes."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process.pid}/syscall").read_text().startswith("1 0x1 ")
    return False


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_workers_of_a_launcher_without_standard_streams(job, closed):
    redirections = " ".join(CLOSE[number] for number in closed)
    agent = job.start_script(ECHO, "--nproc-per-node=2", "--tee=3", f"--log-dir={job.folder}/logs", wrapper=["sh", "-c", f'exec "$@" {redirections}', "sh"])
    assert agent.finish() == 0
    for number, text, shown in (1, "out", agent.output), (2, "err", agent.errors):
        expected = "" if number in closed else "".join(f"[default{rank}]:{text} of {rank}\n" for rank in range(2))
        assert sorted(shown.splitlines()) == sorted(expected.splitlines())
    job.check_nothing_left()


@pytest.mark.parametrize("words", [["cohort", "--help"], ["cohort", "store", "--port=0"], ["cohort-ckpt", "--help"], ["cohort-data", "list"]],
                         ids=" ".join)
def test_tools_have_no_other_file_as_a_closed_stream_and_end_when_nobody_reads(words):
    with unread("pipe") as pipe:
        process = subprocess.Popen(["sh", "-c", f'exec "$@" {CLOSE[0]} {CLOSE[2]}', "sh", str(BUILD / "bin" / words[0]), *words[1:]], stdout=pipe)
        try:
            wait_until(lambda: blocked_in_write(process), "a write to the full pipe")
            assert [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 2)] == ["/dev/null"] * 2
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANG_LIMIT) == -signal.SIGTERM
        finally:
            process.kill()


@pytest.mark.parametrize("stream", ["pipe", "socket"])
@pytest.mark.parametrize("flags", [[], ["--tee=3"]], ids=["inherited", "teed"])
def test_a_stream_that_nobody_reads_does_not_keep_a_job_from_its_end(job, stream, flags):
    """The workers end first, by SIGTERM; what is not read within the shutdown timeout is dropped."""
    ready = job.folder / "ready"
    script = f"exec > /dev/null 2>&1; trap 'echo stopped > {job.folder}/stopped; exit 0' TERM; echo > {ready}; while :; do sleep 0.1; done"
    with unread(stream) as end:
        agent = job.start_script(script, "--shutdown-timeout=3", f"--log-dir={job.folder}/logs", *flags, wrapper=["bash", "-c", f'exec "$@" >&{end} 2>&1', "sh"], pass_fds=(end,))
        wait_until(ready.exists, "a worker")
        agent.kill(signal.SIGTERM)
        wait_until((job.folder / "stopped").exists, "the worker's end")
        assert agent.finish() == 1
    job.check_nothing_left()


def test_output_of_a_job_that_has_ended_waits_for_its_reader(job):
    """A pager takes what it shows only when somebody turns the page."""
    with unread("pipe") as end:
        agent = job.start_script("echo a; exec echo b", "--tee=3", "--shutdown-timeout=0.1", f"--log-dir={job.folder}/logs", wrapper=["bash", "-c", f'exec "$@" >&{end}', "sh"],
                                 pass_fds=(end,))
        wait_until(lambda: not agent.workers(), "the workers' end")
        time.sleep(1)
        assert agent.process.poll() is None, "it did not wait"
        agent.kill(signal.SIGTERM)
        assert agent.finish() == 0
    job.check_nothing_left()
