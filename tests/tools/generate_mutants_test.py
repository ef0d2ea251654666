"""tools/dev/generate_mutants.py and survivors.py: what is changed in a source, what is not, and what a change does when it runs."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))
import generate_mutants
import survivors
from mutants import SWITCH, Problem


def changes(text, kind=None):
    return [change for change in generate_mutants.Generator("cohort/base/a.cpp", text, frozenset({"give_up"})).all() if kind in (None, change.kind)]


def shown(body, kind=None, head="void f()"):
    return [change.shown() for change in changes(f"{head} {{\n{body}\n}}\n", kind)]


@pytest.mark.parametrize("body, kind, expected", [
    ("if (a < b + 1) g();", "bound", ["a < b + 1 -> a <= b + 1"]),
    ("if (a < b) g();", "condition", ["a < b -> !(a < b)", "a < b -> false", "a < b -> true"]),
    ("if (a == b) g();", "condition", ["a == b -> false", "a == b -> true"]),
    ("if (const auto a = g(); !a) g();", "condition", ["!a -> !(!a)", "!a -> false", "!a -> true"]),
    ("for (int i = 0; i < n; ++i) g(i);", "condition", ["i < n -> !(i < n)", "i < n -> false"]),
    ("x = a && b || c;", "connective", ["a && b -> (a) || (b)", "a && b || c -> (a && b) && (c)"]),
    ("x = h(a)[i + 1] - b;", "sign", ["h(a)[i + 1] - b -> h(a)[i + 1] + b", "i + 1 -> i - 1"]),
    ("x = i + 1;", "off by one", ["i + 1 -> i"]),
    ("x = std::min<int>(a, b);", "extreme", ["std::min<int>(a, b) -> std::max<int>(a, b)"]),
    ("int rank = 0, size = 1; use(rank);", "name", ["rank -> size"]),
    ("use(group.rank(), group.size());", "name", ["group.rank() -> group.size()", "group.size() -> group.rank()"]),
    ("use(list.front());", "name", ["list.front() -> list.back()"]),
    ("a.g(b);\nelse_();\n", "call", ["a.g(b); -> (nothing)", "else_(); -> (nothing)"]),
    ("switch (a) { case 1: g(); }", "call", ["g(); -> (nothing)"]),
    ("return true;", "result", ["true -> false"]),
])
def test_kinds(body, kind, expected):
    assert shown(body, kind) == expected


def test_a_result_of_bool_is_negated_except_in_lambdas():
    assert shown("return g(a);", "result", "bool f(int a)") == ["g(a) -> !(g(a))"]
    assert shown("h([](int b) { return g(b); });", "result", "bool f(int a)") == []
    assert shown("return g(a);", "result", "Result<bool> f(int a)") == []


@pytest.mark.parametrize("body", [
    'x = "a < b && c";', "// if (a < b) g();", "/* a < b */", 'x = R"(if (a < b) g();)";', "x = '<';",
    "std::vector<int> a;", "const base::Fd a(b);", "T* a = b;", "auto& c = d;", "const auto f = std::is_same_v<A, B>;",
    "static_assert(a < b);", "constexpr int a = b + 1;", "int a[b + 1];", "std::array<int, b - 1> a;", "using A = B<c + 1>;", "x = sizeof(a + b);",
    "log(a);", "log_warning(a);", "give_up();", "a.reserve(b);", "static_cast<void>(a);", "COHORT_DO(a);", "std::abort();",
    "x = name + text;", 'x = a + "b";', "g = [a](int b = c + 1) {};", "while (true) {}",
    "#if A < B", "#define A(b) if (b < 1) g();"])
def test_what_is_not_changed(body):
    assert shown(body) == []


@pytest.mark.parametrize("text", [
    "constexpr int f() { return true; }", "const int a = b < c;", "struct A { int a = b < c; };", "enum class A { b = c + 1 };",
    "int a[] = {b + 1};", "template <int a = b + 1> struct A;", "bool f(int a = b < c);", "A::A() : a_(b < c), d_{e + 1} {}"])
def test_what_is_outside_of_functions_is_not_changed(text):
    assert [change.shown() for change in changes(text)] == []


def test_bodies_in_classes_lambdas_and_constructors_are_changed():
    text = "namespace a {\nstruct B {\n  B() : c_{d} { g(); }\n  bool h() const { return true; }\n};\n}\nauto e() {\n  return [&](int i) { return i < 1; };\n}\n"
    assert [(change.line, change.kind) for change in changes(text)] == [(3, "call"), (4, "result"), (8, "bound")]


def test_a_new_text_is_one_line_without_comments():
    change, = changes("void f() {\n  x = a <  // not more\n      b;\n}\n", "bound")
    assert (change.new, change.line, change.line_text) == ("a <= b", 2, "x = a <  // not more")


TOY = """bool f(int rank, int size) {
  int sum = 0;
  for (int i = 0; i < size; ++i) {
    if (i == rank || i > 5) continue;
    sum += i - 1;
  }
  return sum > 3;
}
"""


def test_a_switched_source_compiles_and_behaves_as_said(tmp_path):
    own = {number: change for number, change in enumerate(changes(TOY), 1) if change.shown() in ("i > 5 -> i >= 5", "i - 1 -> i + 1", "sum > 3 -> !(sum > 3)")}
    text = TOY
    for number, change in sorted(own.items(), reverse=True):
        text = text[:change.begin] + change.choice(f"::cohort_mutant({number})") + text[change.end:]
    main = f"#include <cstdio>\n#include \"{SWITCH}\"\n{text}\nint main() {{ std::printf(\"%d%d%d\", f(0, 4), f(1, 4), f(0, 7)); }}\n"
    (tmp_path / "toy.cpp").write_text(main)
    subprocess.run(["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", tmp_path / "toy.cpp", "-o", tmp_path / "toy"], check=True)

    def run(number):
        mark = tmp_path / "reached"
        mark.write_bytes(bytes(100))
        done = subprocess.run([tmp_path / "toy"], capture_output=True, text=True, check=True,
                              env={"COHORT_MUTANT": str(number), "COHORT_MUTANT_REACHED": str(mark)})
        return done.stdout, {i for i, byte in enumerate(mark.read_bytes()) if byte}
    numbers = {change.shown(): number for number, change in own.items()}
    assert run(0) == ("001", set(own))
    assert run(numbers["sum > 3 -> !(sum > 3)"])[0] == "110"
    assert run(numbers["i - 1 -> i + 1"])[0] == "111"
    assert run(numbers["i > 5 -> i >= 5"])[0] == "001"


SURVIVOR = "cohort/base/a.cpp\n  line   if (a > 0) text += b;\n  change a > 0 -> a >= 0\n  reason equivalent: a is never 0\n"


def test_a_survivor_is_found_again_wherever_its_line_is(tmp_path):
    (tmp_path / "cohort/base").mkdir(parents=True)
    source = tmp_path / "cohort/base/a.cpp"
    source.write_text("void f() {\n\n\n  if (a > 0)  text += b;\n  if (a > 0) text += b;\n}\n")
    known = survivors.parse("# a comment\n\n" + SURVIVOR)
    assert survivors.stale(tmp_path, known) == []
    assert [change.line for change in generate_mutants.changes_of(tmp_path, "cohort/base/a.cpp") if known[0].is_change(change)] == [5]
    source.write_text("void f() {\n  if (a > 1) text += b;\n}\n")
    assert survivors.stale(tmp_path, known) == [
        "tests/mutants/survivors.txt:3: cohort/base/a.cpp has no such line, or nothing changes it so: remove it or bring it up to date"]


@pytest.mark.parametrize("text, message", [
    ("  line a\n", "tests/mutants/survivors.txt:1: needs line, change or reason below the name of a file"),
    (SURVIVOR.replace("equivalent", "somehow"),
     "tests/mutants/survivors.txt:1: needs a line, a change, and a reason that begins with equivalent, speed only, message only, untestable here and a colon"),
])
def test_lists_of_survivors_that_cannot_work_message(text, message):
    with pytest.raises(Problem) as refused:
        survivors.parse(text)
    assert str(refused.value) == message


def test_the_projects_own_survivors_fit_its_sources():
    assert survivors.stale(ROOT, survivors.read(ROOT)) == []
