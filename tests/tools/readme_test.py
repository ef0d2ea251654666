"""What the README shows is what the tests compile and run."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_program_is_the_one_of_the_packaging_tests():
    program = re.search(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    assert program == (ROOT / "tests/packaging/consumer/main.cpp").read_text()


def test_files_and_make_targets_named_in_documents_exist():
    for document in ["README.md", "HACKING.md", "CONTRIBUTING.md"]:
        text = (ROOT / document).read_text()
        for name in re.findall(r"`((?:cohort|cmake|docs|examples|tests|tools)/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{document} names {name}"
        for name in re.findall(r"`((?:base|checkpoint|comm|elastic|files|mesh|parallel|rendezvous|shm)/[\w./-]+)`", text):
            assert (ROOT / "cohort" / name).exists(), f"{document} names cohort/{name}"
        makefile = (ROOT / "Makefile").read_text()
        targets = {name for names in re.findall(r"(?m)^([\w -]+):", makefile) for name in names.split()}
        for target in re.findall(r"\bmake ([\w-]+)", text):
            if target not in ("test", "check", "demo", "bench", "asan", "asan-torch", "tsan", "compat", "format", "clean"):
                continue
            assert target in targets, f"{document} names make {target}"
