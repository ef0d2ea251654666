"""Runs the tests of one mode and world size, several side by side, each in a process of its own with a process per rank."""
import dataclasses
import os
import re
import signal
import sys
import tempfile
import time
import unittest
from multiprocessing import connection, get_context

FORK = get_context("fork")
# How the suite tells what a rank has raised; the text of one ends where the next begins.
RANK_RAISED = re.compile(r"^(?:RuntimeError: )?Process \d+ exited with error code -?\d+ and exception:\n", re.MULTILINE)
NOISE = ("To execute this test", "    python ", "This message can be suppressed")


@dataclasses.dataclass
class Outcome:
    test: str
    result: str  # passed, failed, skipped
    text: str = ""  # of a failed test: its end; of a skipped one: the reason
    seconds: float = 0.0
    errors: tuple = ()  # of a failed test: what each rank says that failed, or the test's one error


def result_of(result):
    """(result, text) of a unittest.TestResult after one test."""
    for _, text in result.errors + result.failures:
        return "failed", text
    for _, reason in result.skipped:
        return "skipped", reason
    if result.testsRun != 1 or not result.wasSuccessful() or result.expectedFailures:
        return "failed", f"neither passed nor skipped: {result}"
    return "passed", ""


def run_test(cases, test, output, answer):
    """In the test's process, which leads a process group: so all of its ranks can be ended."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    sys.stdout = sys.stderr = output
    result = unittest.TestResult()
    cases(test).run(result)
    output.flush()
    answer.send(result_of(result))


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.join()


def last_lines(text, count):
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(NOISE)]
    return "\n".join(lines[-count:])


def errors_of(text):
    return tuple(RANK_RAISED.split(text)[1:]) or (text,)


class RunningTest:
    def __init__(self, cases, test, limit):
        self.test, self.limit, self.begin = test, limit, time.monotonic()
        self.output = tempfile.TemporaryFile(mode="w+", errors="replace")
        self.answer, theirs = FORK.Pipe(duplex=False)
        self.process = FORK.Process(target=run_test, args=(cases, test, self.output, theirs))
        self.process.start()
        theirs.close()

    @property
    def deadline(self):
        return self.begin + self.limit

    @property
    def is_over(self):
        return not self.process.is_alive() or time.monotonic() >= self.deadline

    def finish(self):
        hangs = self.process.is_alive()
        kill_group(self.process)
        result, text = self.received()
        if hangs:
            result, text = "failed", f"not done after {self.limit:g} s"
        errors = ()
        if result == "failed":
            self.output.seek(0)
            errors = errors_of(text)
            text = last_lines(f"{self.output.read()}\n{text}", 10)
        self.output.close()
        return Outcome(self.test, result, text, round(time.monotonic() - self.begin, 2), errors)

    def received(self):
        try:
            return self.answer.recv()
        except EOFError:
            return "failed", f"its process ended with exit code {self.process.exitcode}"


def run_tests(cases, tests, jobs, limit):
    """Yields the outcomes as the tests end."""
    waiting, running = list(tests), []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(RunningTest(cases, waiting.pop(0), limit))
            first_deadline = min(each.deadline for each in running)
            connection.wait([each.process.sentinel for each in running], max(0, first_deadline - time.monotonic()))
            for each in [each for each in running if each.is_over]:
                running.remove(each)
                yield each.finish()
    finally:
        for each in running:
            kill_group(each.process)
