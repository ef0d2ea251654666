"""Which selections there are, and how many tests run and pass in each: what docs/parity/behaviors.md tells readers is
what a run must find.

An entry's text has parts such as `88 of 91 pass at 2 ranks` and `88 of 91 at 3`: of the tests that Gloo runs, instead of skipping
them, so many pass. Fewer that run would mean that ours were skipped silently.
"""
import pathlib
import re

# (mode, world size). At 8 ranks the suite runs 21 more tests of subgroups; of those for CUDA hardly any.
SELECTIONS = {
    "fast": [("cpu", 2), ("cpu", 3), ("cuda-as-cpu", 2)],
    "full": [("cpu", 2), ("cpu", 3), ("cpu", 8), ("cuda-as-cpu", 2), ("cuda-as-cpu", 3)],
}
PARITY = pathlib.Path(__file__).resolve().parents[2] / "docs/parity/behaviors.md"
RELEASE = "2.13."  # of PyTorch, whose numbers these are
ITEMS = {"cpu": "PyTorch's own backend tests on CPU (`make torch-suite`)",
         "cuda-as-cpu": "Its CUDA tests with devices mapped to CPU"}
COUNT = re.compile(r"(\d+) of (\d+) (?:pass )?at (\d+)")


def read(path=PARITY):
    """{(mode, world size): (passed, ran)}"""
    stated = {}
    entries = " ".join(path.read_text().split()).split(" - **")
    for mode, item in ITEMS.items():
        texts = [entry for entry in entries if entry.startswith(f"{item}**")]
        if len(texts) != 1 or not COUNT.search(texts[0]):
            raise SystemExit(f"{path.name}: needs one entry {item!r} with parts like `88 of 91 pass at 2 ranks`, has {texts}")
        stated |= {(mode, int(size)): (int(passed), int(ran)) for passed, ran, size in COUNT.findall(texts[0])}
    return stated


def complaint(stated, mode, world_size, passed, ran):
    """A sentence if a run has found other numbers. `passed`: None where it is not our backend that ran."""
    if (mode, world_size) not in stated:
        return ""
    wanted_passed, wanted_ran = stated[mode, world_size]
    if ran == wanted_ran and passed in (wanted_passed, None):
        return ""
    found = f"{ran} tests ran" if passed is None else f"{passed} of {ran} tests passed"
    wanted = f"{wanted_ran} run" if passed is None else f"{wanted_passed} of {wanted_ran} do"
    return f"{mode} at {world_size} ranks: {found}; {PARITY.name} says that {wanted}"
