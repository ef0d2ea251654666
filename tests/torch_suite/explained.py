"""explained.txt: the tests that need not pass, each with its reason and with what it says when it fails."""
import dataclasses
import re

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
    says: str = ""  # a regular expression: a whole line of what each failed rank says

    def covers(self, test, backend, mode, world_size):
        return self.test == test and all(
            wanted == "*" or str(value) in wanted.split(",")
            for wanted, value in ((self.backends, backend), (self.modes, mode), (self.world_sizes, world_size)))

    def is_said_in(self, text):
        return any(re.fullmatch(self.says, line) for line in text.splitlines())


def complete(explanation, path):
    """Of a test that fails it must be known how."""
    if bool(explanation.says) != (explanation.state == "fails"):
        needs = "needs a line below it with" if explanation.state == "fails" else "is not run, and cannot have"
        raise SystemExit(f"{path.name}:{explanation.line}: {explanation.test} {needs} what it says when it fails")
    return explanation


def read(path):
    explanations = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            if not explanations or explanations[-1].says:
                raise SystemExit(f"{path.name}:{number}: belongs to no test: {line.strip()}")
            explanations[-1].says = line.strip()
            continue
        fields = line.split(None, 5)
        if len(fields) < 6 or fields[4] not in STATES:
            raise SystemExit(f"{path.name}:{number}: needs `test backends modes ranks {'|'.join(STATES)} reason`, got: {line}")
        explanations.append(Explanation(*fields, number))
    return [complete(each, path) for each in explanations]


def find(explanations, test, backend, mode, world_size):
    return next((each for each in explanations if each.covers(test, backend, mode, world_size)), None)


def judge(outcome, explanation):
    """(verdict, text): the outcome of a test in the light of its explanation, if it has one."""
    if explanation and outcome.result == "passed":
        return "failed", f"explained.txt:{explanation.line} says that it fails, but it passed: remove the line"
    if explanation and explanation.state == "left-out":
        return "explained", explanation.reason
    if explanation and outcome.result == "failed":
        for error in outcome.errors:
            if not explanation.is_said_in(error):
                return "failed", (f"explained.txt:{explanation.line} has no line {explanation.says!r} in what it says:\n"
                                  f"{error.strip()}")
        return "explained", explanation.reason
    return outcome.result, outcome.text
