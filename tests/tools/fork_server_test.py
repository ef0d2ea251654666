"""cohort_run_test: what a test program does is the same whether a fork server has it ready or not, and nothing is left behind."""
import os
import pathlib
import shutil
import signal
import subprocess
import time
import uuid

import pytest

BINARIES = pathlib.Path(os.environ["COHORT_BINARY_DIR"]) / "bin"
RUN_TEST, PROGRAM = BINARIES / "cohort_run_test", BINARIES / "cohort_base_test"
FOREVER = ["--gtest_filter=Result.*", "--gtest_repeat=-1", "--gtest_brief=1"]


class Servers:
    """Those that this test has started, told by a variable of their environment."""

    def __init__(self):
        self.environment = os.environ | {"COHORT_TEST_OF_SERVERS": uuid.uuid4().hex}
        self.environment.pop("COHORT_TEST_FORK_SERVER", None)

    def processes(self):
        """{pid: arguments}, the servers and all that they have forked."""
        mark = self.environment["COHORT_TEST_OF_SERVERS"].encode()
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes() and "--fork-server=" in (text := (folder / "cmdline").read_text()):
                    found[int(folder.name)] = text
            except OSError:
                pass  # it has ended
        return found

    def heads(self):
        return [pid for pid in self.processes() if parent_of(pid) not in self.processes()]

    def command(self, *arguments, program=PROGRAM):
        return [str(RUN_TEST), str(program), *arguments]

    def run(self, *arguments, **options):
        return subprocess.run(self.command(*arguments, **options), env=self.environment, capture_output=True, text=True, timeout=60)

    def start(self, *arguments):
        return subprocess.Popen(self.command(*arguments), env=self.environment, stdout=subprocess.DEVNULL)

    def forked(self):
        """The pid of the one process that a server runs."""
        return wait_for(lambda: [pid for pid in self.processes() if pid not in self.heads()])[0]


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it has not come"
        time.sleep(0.02)
    return value


@pytest.fixture
def servers():
    servers = Servers()
    yield servers
    for pid in servers.processes():
        os.kill(pid, signal.SIGKILL)


def test_output_and_exit_code_are_those_of_the_program(servers):
    for arguments in (["--worker=nobody"], ["--gtest_filter=Result.*"], ["--gtest_filter=Result.*", "--gtest_list_tests"]):
        expected = subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, timeout=60)
        got = servers.run(*arguments)
        assert (got.returncode, got.stderr) == (expected.returncode, expected.stderr)
        assert [line for line in got.stdout.splitlines() if "ms" not in line] == [line for line in expected.stdout.splitlines() if "ms" not in line]
    assert servers.run("--worker=nobody").returncode == 2
    assert len(servers.heads()) == 1


def test_working_directory_and_environment_are_those_of_the_caller(servers):
    ours = subprocess.Popen(servers.command(*FOREVER), env=servers.environment, stdout=subprocess.DEVNULL, cwd="/")
    assert os.readlink(f"/proc/{servers.forked()}/cwd") == "/"
    ours.kill()
    ours.wait()
    other = servers.environment | {"COHORT_TEST_OTHER": "1"}
    subprocess.run(servers.command("--worker=nobody"), env=other, capture_output=True, timeout=60, check=False)
    assert len(servers.heads()) == 2, "another environment needs another server"


def test_a_signal_that_ends_the_program_ends_the_caller(servers):
    ours = servers.start(*FOREVER)
    os.kill(servers.forked(), signal.SIGSEGV)
    assert ours.wait(60) == -signal.SIGSEGV


def test_nothing_is_left_of_a_caller_that_is_killed(servers):
    ours = servers.start(*FOREVER)
    forked = servers.forked()
    ours.kill()
    ours.wait()
    wait_for(lambda: forked not in servers.processes())


def test_a_program_that_has_changed_is_loaded_anew(servers, tmp_path):
    program = tmp_path / "program"
    shutil.copy(PROGRAM, program)
    servers.run("--worker=nobody", program=program)
    program.touch()
    servers.run("--worker=nobody", program=program)
    assert len(servers.heads()) == 2


def test_a_server_ends_when_nobody_needs_it(servers):
    servers.run("--worker=nobody")
    assert servers.heads()
    wait_for(lambda: not servers.processes())


def test_without_a_server_the_program_is_started(servers):
    servers.environment["COHORT_TEST_FORK_SERVER"] = "0"
    assert servers.run("--worker=nobody").returncode == 2
    assert not servers.processes()


def test_a_program_that_is_missing_message(servers):
    got = servers.run(program="/no/such/program")
    assert (got.returncode, got.stderr) == (127, "/no/such/program: No such file or directory\n")
