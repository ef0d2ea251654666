"""tools/dev/mutants.py: what it refuses, how it changes sources, and its verdicts on a small project."""
import argparse
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))
import mutants

pytestmark = pytest.mark.tier_all  # it builds small projects

SOURCE = """#include <cstdlib>
#include <unistd.h>
int times(int a, int b) {
  int product = 0;
  for (int i = 0; i < b; ++i) product += a;
  if (product == 42) return 0;
  return product;
}
int never() { return 1; }
void end() { alarm(0); }
"""
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(times CXX)
enable_testing()
add_executable(times_test tests/times_test.cpp cohort/base/times.cpp)
target_include_directories(times_test PRIVATE "${PROJECT_SOURCE_DIR}")
add_test(NAME base.Times COMMAND times_test)
add_test(NAME base.TimesThatFails COMMAND times_test wrong)
"""
TEST = """int times(int a, int b);
void end();
int main(int argc, char**) {
  const bool is_right = times(3, 4) == 12 && argc == 1;
  end();
  return is_right ? 0 : 1;
}
"""


def block(name, old, new, tests="  ctest base\\.Times$"):
    return f"{name}\n  file cohort/base/times.cpp\n  old {old}\n  new {new}\n{tests}\n"


def refusal(text, source=SOURCE):
    with pytest.raises(mutants.Problem) as refused:
        mutants.with_switches(source, mutants.read_list(text))
    return str(refused.value).replace(mutants.LIST, "LIST")


def test_an_expression_and_a_statement_become_choices_where_they_were():
    listed = mutants.read_list("# a comment\n" + block("base.one", "a + b", "a - b") + block("base.two", "count(a); count(b);", ""))
    assert mutants.with_switches("void f() {\n  count(a);\n  count(b);\n}\nint g() { return a  + b; }\n", listed) == (
        '#include "tests/mutants/switch.h"\n#line 1\n'
        'void f() {\n  { if (::cohort_mutant("base.two")) {  } else { count(a);\n  count(b); } }\n}\n'
        'int g() { return (::cohort_mutant("base.one") ? (a - b) : (a  + b)); }\n')


@pytest.mark.parametrize("text, message", [
    (block("base.a", "product += b", "0"), "LIST:1: base.a: its old text must be in cohort/base/times.cpp once, but is not there"),
    (block("base.a", "product", "0"), "LIST:1: base.a: its old text must be in cohort/base/times.cpp once, but is there 4 times"),
    (block("base.a", "i < b", "i > b") + block("base.b", "for (int i = 0; i < b; ++i) product += a;", ""),
     "LIST:1: base.a changes what base.b changes"),
    (block("base.a", "return product;", "0"),
     "LIST:1: base.a: a statement (it ends in a semicolon) is replaced by one or by nothing, an expression by another"),
    (block("base.a", "i < b", ""),
     "LIST:1: base.a: a statement (it ends in a semicolon) is replaced by one or by nothing, an expression by another"),
    (block("base.a", "1;", "2;"),
     "LIST:1: base.a: its old text is only the end of a statement in cohort/base/times.cpp: take all of it"),
    (block("base.a", "i < b", "i < b"), "LIST:1: base.a changes nothing"),
    (block("base.a", "i < b", "i > b", ""), "LIST:1: base.a needs a file, an old text, and the tests that must notice"),
    (block("base.a", "i < b", "i > b") * 2, 'LIST:6: there is a mutant "base.a" already'),
    (block("base.a", "i < b", "i > b", "  gtest base"), "LIST:5: needs file, old, new, ctest or pytest below the name of a mutant"),
    ("Base A\n", 'LIST:1: "Base A" is not a name of small letters, digits, points and hyphens'),
])
def test_lists_that_cannot_work_message(text, message):
    assert refusal(text) == message


@pytest.mark.parametrize("text", [
    "(a, b)", "f(a, {b, c})[d]", "std::min<int, long>(a, b)", "a ? b : std::c", "a == ',' || b == \"(\"", "[&](int a) { b; c; }", "--a", "iffy",
    "if (a) b;", "return a ? b : c;", "f(a); g(b);", "a++", ";", ""])
def test_takes_what_is_whole(text):
    assert not mutants.is_part(text)


@pytest.mark.parametrize("text", [
    "a, b", "a; b", "f(a", "a) + b", "a ? b", "b : c", '!a, "', "a &&", "if (a) b", "const bool a = b", "auto* const a = b", "return a",
    "f(a;", "if (a) { b;", "a); b;"])
def test_a_part_message(text):
    assert refusal(block("base.a", text, text + " ;" if text.endswith(";") else "a")) == (
        f'LIST:1: base.a: "{text}" is only a part: take a whole expression or statement, for it becomes a branch of a choice')


@pytest.mark.parametrize("text", ["int a = b;", "const auto a = b;", "std::vector<int> a;", "base::Fd a(b);", "auto& [a, b] = c;", "T* a = b;"])
def test_a_declaration_message(text):
    assert refusal(block("base.a", text, text + " ;")) == (
        f'LIST:1: base.a: "{text}" is a declaration, whose name would end with the branch of a choice: take its value')


@pytest.mark.parametrize("text", ["a = b;", "f(a);", "a.b = c;", "return a;", "++a;", "a[b] = c;", "throw a;", "delete a;", "a->b(c);", "a += b;"])
def test_what_is_no_declaration(text):
    assert [mutant.old for mutant in mutants.read_list(block("base.a", text, ""))] == [text]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """(exit code, output without times, errors) of the command for a list of mutants."""
    root = tmp_path_factory.mktemp("project")
    switch = (ROOT / mutants.SWITCH).read_text()
    for name, text in {"CMakeLists.txt": CMAKE, "tests/times_test.cpp": TEST, "cohort/base/times.cpp": SOURCE,
                       mutants.SWITCH: switch}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    def run(text, *options):
        (root / mutants.LIST).write_text(text)
        done = subprocess.run([sys.executable, ROOT / "tools/dev/mutants.py", "--root", root, *options], capture_output=True,
                              text=True, env={**os.environ, "GIT_DIR": "/nonexistent"})
        lines = [re.sub(r" +\d+\.\d s", " TIME", line) for line in done.stdout.splitlines() if not re.match(r"\[|ninja:", line)]
        return done.returncode, lines, done.stderr.replace(str(root), "ROOT").replace(mutants.LIST, "LIST")
    run.root = root
    return run


LISTED = (block("base.off-by-one", "i < b", "i <= b") + block("base.dropped", "product += a;", "") +
          block("base.unlucky", "product == 42", "product == 43") + block("base.unreached", "return 1;", "return 2;") +
          block("base.hangs", "alarm(0);", 'std::system("setsid sleep 600 &"); for (;;) pause();'))


def left_of_the_hanging_test(root):
    mark = f"COHORT_MUTANT_REACHED={root}/build/mutants/reached/base.hangs".encode()

    def is_left(process):
        try:
            return ((process / "cmdline").read_bytes() == b"sleep\x00600\x00"
                    and mark in (process / "environ").read_bytes())
        except OSError:  # it has just ended
            return False
    return [process for process in pathlib.Path("/proc").glob("[0-9]*") if is_left(process)]


def test_verdicts_of_a_project_that_misses_two(project):
    code, lines, errors = project(LISTED, "--limit", "10")
    assert (code, lines) == (1, [
        "trying the tests of 5 mutants without any",
        "killed   base.off-by-one TIME  base.Times",
        "killed   base.dropped TIME  base.Times",
        "survived base.unlucky TIME",
        "survived base.unreached TIME  none of its tests comes by its place",
        "killed   base.hangs TIME  no end within 10 s",
        "",
        "5 mutants: 3 killed, 2 survived",
        "not killed: base.unlucky (cohort/base/times.cpp)",
        "not killed: base.unreached (cohort/base/times.cpp)",
    ]), errors
    assert left_of_the_hanging_test(project.root) == []


def test_what_is_slow_without_a_mutant_has_more_time_with_one():
    runner = mutants.Runner.__new__(mutants.Runner)
    runner.limit, runner.usual = 60, {"base.Slow/1  # GetParam() = 1": 20.0, "base.Times": 1.0, "pytest": 90.0}

    def limit(**tests):
        return runner.limit_of(mutants.Mutant("base.a", 1, **tests))
    assert limit(ctest=["base\\.Times"]) == 60
    assert limit(ctest=["base\\.Times", "base\\.Slow/"]) == 105
    assert limit(pytest=["tests/a_test.py"]) == 90


def test_ends_with_zero_where_all_are_killed(project):
    code, lines, errors = project(LISTED, "--only", "off|dropped", "--layers", "base", "--no-torch", "--jobs", "1")
    assert (code, lines[-1]) == (0, "2 mutants: 2 killed"), errors


def test_removes_segments_and_leaves_folders():
    before = mutants.shared_memory()
    segment, folder = (pathlib.Path(f"/dev/shm/cohort_{what}_of_mutants_test_{os.getpid()}") for what in ("segment", "folder"))
    segment.touch()
    folder.mkdir()
    try:
        mutants.remove_segments(before)
        assert not segment.exists() and folder.exists()
    finally:
        folder.rmdir()


def test_patterns_may_have_more_parentheses_than_ctest_reads(project):
    code, lines, errors = project(block("base.off-by-one", "i < b", "i <= b", f"  ctest base\\.{'(' * 40}Times${')' * 40}"))
    assert (code, lines[-1]) == (0, "1 mutants: 1 killed"), errors


def test_without_torch_nothing_is_chosen_whose_tests_need_it():
    listed = mutants.read_list(block("base.a", "a", "b") + block("base.b", "b", "c", "  ctest parallel\\.B") + block("parallel.c", "c", "d").replace(
        "cohort/base", "cohort/parallel"))
    given = argparse.Namespace(only="", layers="", no_torch=True)
    assert [mutant.name for mutant in mutants.choose(listed, given)] == ["base.a"]


@pytest.mark.parametrize("text, options, error", [
    (block("base.a", "i < b", "i > b", "  ctest base\\.TimesThat"), [],
     "a test fails without any mutant, so its verdicts mean nothing: base.TimesThatFails (ROOT/build/mutants/logs/none.txt)"),
    (block("base.a", "i < b", "i > b", "  ctest base\\.Nothing"), [],
     "LIST:1: base.a: ctest knows no test that begins with base\\.Nothing"),
    (block("base.a", "i < b", "i > b").replace("times.cpp", "gone.cpp"), [],
     "LIST:1: base.a: there is no file cohort/base/gone.cpp"),
    (block("base.a", "i < b", "j < b"), [],
     "the copy of the sources cannot be built: see what the compiler says; not every place can be a choice at run time"),
    (LISTED, ["--layers", "base,soup"], "no mutant is in layer soup"),
    (LISTED, ["--only", "soup"], "no mutant is chosen"),
])
def test_without_a_verdict_message(project, text, options, error):
    code, _, errors = project(text, *options)
    assert (code, errors.splitlines()[-1]) == (2, "error: " + error)


def test_the_projects_own_list_fits_its_sources():
    listed = mutants.read_list((ROOT / mutants.LIST).read_text())
    mutants.check_places(ROOT, listed)
    assert len(listed) >= 80


def test_check_tells_all_that_does_not_fit(project):
    lost = block("base.lost", "a - b", "a + b").replace("times.cpp", "lost.cpp")
    text = (block("base.gone", "a - b", "a + b") + block("base.twice", "= 0", "= 1") + lost +
            block("base.within", "product += a;", "", "  pytest tests/gone.py::test_a") + block("base.across", "for (int i = 0; i < b; ++i) product += a;", ""))
    code, _, errors = project(text, "--check")
    assert (code, errors.splitlines()) == (2, [
        'error: LIST:1: base.gone: its old text must be in cohort/base/times.cpp once, but is not there',
        'LIST:6: base.twice: its old text must be in cohort/base/times.cpp once, but is there 2 times',
        'LIST:16: base.within changes what base.across changes',
        'LIST:11: base.lost: there is no file cohort/base/lost.cpp',
        'LIST:16: base.within: there is no test tests/gone.py::test_a'])
    assert project(LISTED, "--check") == (0, ["mutants: 5, their places are there"], "")


def test_the_projects_own_list_names_tests_that_are_there():
    listed = mutants.read_list((ROOT / mutants.LIST).read_text())
    build = os.environ.get("COHORT_BINARY_DIR", ROOT / "build")
    names = re.findall(r"Test +#\d+: (.*)", subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True).stdout)
    assert [(mutant.name, pattern) for mutant in listed for pattern in mutant.ctest
            if not any(re.match(pattern, name) for name in names)] == []
