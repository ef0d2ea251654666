"""Generated mutants that no test can or need kill: tests/mutants/survivors.txt, each with the reason.

A block is a file, unindented, and below it, indented, `line` (its text, which finds it again), `change` (old -> new, as the sample
prints it) and `reason`.
"""
import dataclasses

from generate_mutants import changes_of
from mutants import Problem

LIST = "tests/mutants/survivors.txt"
REASONS = ("equivalent", "speed only", "message only", "untestable here")


@dataclasses.dataclass
class Survivor:
    number: int  # of its line in the list
    file: str
    line: str = ""
    change: str = ""
    reason: str = ""

    def is_change(self, change):
        return (change.file, change.line_text, change.shown()) == (self.file, self.line, self.change)


def read(root):
    path = root / LIST
    return parse(path.read_text()) if path.exists() else []


def parse(text):
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not line[0].isspace():
            found.append(Survivor(number, line.strip()))
            continue
        key, _, value = line.strip().partition(" ")
        if not found or key not in ("line", "change", "reason"):
            raise Problem(f"{LIST}:{number}: needs line, change or reason below the name of a file")
        setattr(found[-1], key, value.strip())
    for survivor in found:
        if not survivor.line or not survivor.change or survivor.reason.split(":")[0] not in REASONS:
            raise Problem(f"{LIST}:{survivor.number}: needs a line, a change, and a reason that begins with {', '.join(REASONS)} and a colon")
    return found


def stale(root, survivors):
    """Returns an error for each that no longer fits a change of its file."""
    errors = []
    for survivor in survivors:
        changes = changes_of(root, survivor.file) if (root / survivor.file).is_file() else []
        if not any(survivor.is_change(change) for change in changes):
            errors.append(f"{LIST}:{survivor.number}: {survivor.file} has no such line, or nothing changes it so: remove it or bring it up to date")
    return errors
