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
HANG_LIMIT = 300


class Servers:
    """Those that this test has started, told by a variable of their environment."""

    def __init__(self):
        self.environment = os.environ | {"COHORT_TEST_OF_SERVERS": uuid.uuid4().hex}
        self.environment.pop("COHORT_TEST_FORK_SERVER", None)
        self.started = []

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
        return subprocess.run(self.command(*arguments, **options), env=self.environment, capture_output=True, text=True, timeout=HANG_LIMIT)

    def keep(self, program=PROGRAM, **options):
        """A server that stays, however slow the machine is: a program runs in it until the test's end. Returns that one's pid."""
        before = set(self.processes())
        self.started.append(subprocess.Popen(self.command(*FOREVER, program=program), stdout=subprocess.DEVNULL,
                                             **{"env": self.environment, **options}))
        return wait_for(lambda: [pid for pid in self.processes() if pid not in before and parent_of(pid) in self.processes()])[0]


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def wait_for(condition):
    end = time.monotonic() + HANG_LIMIT
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
    for process in servers.started:
        process.wait(HANG_LIMIT)


def test_output_and_exit_code_are_those_of_the_program(servers):
    servers.keep()
    for arguments in (["--worker=nobody"], ["--gtest_filter=Result.*"], ["--gtest_filter=Result.*", "--gtest_list_tests"]):
        expected = subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, timeout=HANG_LIMIT)
        got = servers.run(*arguments)
        assert (got.returncode, got.stderr) == (expected.returncode, expected.stderr)
        assert [line for line in got.stdout.splitlines() if "ms" not in line] == [line for line in expected.stdout.splitlines() if "ms" not in line]
    assert servers.run("--worker=nobody").returncode == 2
    assert len(servers.heads()) == 1


def test_working_directory_and_environment_are_those_of_the_caller(servers):
    assert os.readlink(f"/proc/{servers.keep(cwd='/')}/cwd") == "/"
    servers.keep(env=servers.environment | {"COHORT_TEST_OTHER": "1"})
    assert len(servers.heads()) == 2, "another environment needs another server"


def test_a_signal_that_ends_the_program_ends_the_caller(servers):
    os.kill(servers.keep(), signal.SIGSEGV)
    assert servers.started[-1].wait(HANG_LIMIT) == -signal.SIGSEGV


def test_nothing_is_left_of_a_caller_that_is_killed(servers):
    forked = servers.keep()
    servers.started[-1].kill()
    wait_for(lambda: forked not in servers.processes())


def test_a_program_that_has_changed_is_loaded_anew(servers, tmp_path):
    program = tmp_path / "program"
    shutil.copy(PROGRAM, program)
    servers.keep(program=program)
    program.touch()
    servers.keep(program=program)
    assert len(servers.heads()) == 2


def test_a_server_ends_when_nobody_needs_it(servers):
    forked = servers.keep()
    assert servers.heads()
    os.kill(forked, signal.SIGKILL)
    wait_for(lambda: not servers.processes())


def test_without_a_server_the_program_is_started(servers):
    servers.environment["COHORT_TEST_FORK_SERVER"] = "0"
    assert servers.run("--worker=nobody").returncode == 2
    assert not servers.processes()


def test_a_program_that_is_missing_message(servers):
    got = servers.run(program="/no/such/program")
    assert (got.returncode, got.stderr) == (127, "/no/such/program: No such file or directory\n")
