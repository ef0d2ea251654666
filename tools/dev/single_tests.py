"""CTest's tests of a build, one process each, and the mutants of a sample that each test reaches."""
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from mutants import end_processes, remove_segments, shared_memory
from sources import ROOT, files

sys.path.append(str(ROOT / "tests/support"))
from list_tests import TEST


@dataclasses.dataclass
class Test:
    name: str
    program: str
    command: list
    environment: dict
    source: str = ""  # its file, without folder: text_test
    seconds: float = 0
    reached: bytes = b""


def suites_of(root):
    """Returns {suite: its file's name without folder and ending}."""
    return {match[1]: path.stem for path in files(root, "tests/*_test.cpp")
            for match in map(TEST.match, path.read_text().splitlines()) if match}


def tests_of(root, folder, programs):
    """Returns all tests of these programs that CTest knows."""
    listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    suites, found = suites_of(root), []
    for test in json.loads(listed.stdout)["tests"]:
        program, _, rest = test["name"].partition(".")
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        if program not in programs or properties.get("DISABLED") or "command" not in test:
            continue
        environment = dict(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", []))
        environment.update(re.findall(r"(\w+)=set:(\w+)", " ".join(properties.get("ENVIRONMENT_MODIFICATION", []))))
        suite = [part for part in rest.split(".")[0].split("/") if not part.isdigit()][-1]
        found.append(Test(test["name"], program, test["command"], environment, suites.get(suite, "")))
    return found


class TestRunner:
    """Runs single tests with one mutant, or with none (0)."""

    def __init__(self, folder, work, count, limit):
        self.folder, self.work, self.count, self.limit = folder, pathlib.Path(work), count, limit
        for part in ("logs", "reached"):
            (self.work / part).mkdir(parents=True, exist_ok=True)

    def run(self, test, number, label):
        """Returns (whether it passed, seconds, which mutants it reached)."""
        mark = self.work / "reached" / label
        mark.write_bytes(bytes(self.count + 1))
        env = {**os.environ, **test.environment, "COHORT_MUTANT": str(number), "COHORT_MUTANT_REACHED": str(mark)}
        segments, begin = shared_memory(), time.monotonic()
        with open(self.work / "logs" / f"{label}.txt", "w") as log:
            print(test.name, file=log, flush=True)
            process = subprocess.Popen(test.command, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            try:
                passed = process.wait(max(self.limit, 5 * test.seconds)) == 0
            except subprocess.TimeoutExpired:
                passed = False
            finally:
                end_processes(str(mark))
                process.wait()
        remove_segments(segments)
        reached = mark.read_bytes()
        mark.unlink()
        return passed, time.monotonic() - begin, reached

    def look(self, test, label):
        """Returns whether a test passes without a mutant; notes its time and the mutants that it reaches."""
        passed, test.seconds, test.reached = self.run(test, 0, label)
        return passed
