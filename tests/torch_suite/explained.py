"""explained.txt: the tests that need not pass, each with its reason."""
import dataclasses

STATES = ("fails", "left-out")


@dataclasses.dataclass
class Explanation:
    test: str
    backends: str  # comma-separated, or "*", as the next two
    modes: str
    world_sizes: str
    state: str  # one of STATES; a test that is left out isn't run
    reason: str
    line: int

    def covers(self, test, backend, mode, world_size):
        return self.test == test and all(
            wanted == "*" or str(value) in wanted.split(",")
            for wanted, value in ((self.backends, backend), (self.modes, mode), (self.world_sizes, world_size)))


def read(path):
    explanations = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fields = line.split(None, 5)
        if not fields or line.startswith("#"):
            continue
        if len(fields) < 6 or fields[4] not in STATES:
            raise SystemExit(f"{path.name}:{number}: needs `test backends modes ranks {'|'.join(STATES)} reason`, got: {line}")
        explanations.append(Explanation(*fields, number))
    return explanations


def find(explanations, test, backend, mode, world_size):
    return next((each for each in explanations if each.covers(test, backend, mode, world_size)), None)


def judge(outcome, explanation):
    """(verdict, text): the outcome of a test in the light of its explanation, if it has one."""
    if explanation and outcome.result == "passed":
        return "failed", f"explained.txt:{explanation.line} says that it fails, but it passed: remove the line"
    if explanation and outcome.result == "failed":
        return "explained", explanation.reason
    return outcome.result, outcome.text
