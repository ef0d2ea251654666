"""write_examples.py: which code in the comments of public headers is compiled, and what it refuses."""
import pytest
import write_examples


def written(root, comment, given=""):
    """Returns what is written for a header with this comment."""
    (root / "cmake").mkdir(parents=True)
    (root / "cohort/data").mkdir(parents=True)
    (root / "tests/headers/context").mkdir(parents=True)
    (root / "cmake/public_headers.cmake").write_text("set(COHORT_PUBLIC_HEADERS\n    cohort/data/list.h)\n")
    (root / "cohort/data/list.h").write_text(f"{comment}\nnamespace cohort::data {{\n}}\n")
    (root / "tests/headers/context/data.inc").write_text(given)
    write_examples.main(root / "out.d", root / "out.cpp", root=root)
    return (root / "out.cpp").read_text().replace(f"{root}/", "")


def test_a_block_becomes_a_function_in_its_headers_namespace(tmp_path):
    text = written(tmp_path, "/// A list:\n///\n///     List list;\n///     for (auto& item : list) ...\n///\n/// More.",
                   "// cohort/data/list.h\nstruct List;\n")
    assert text == """\
#include "cohort/data/list.h"
#include "tests/headers/context/common.h"

namespace cohort::data::cohort_data_list_h {
using namespace cohort::given;
using cohort::given::mesh;  // before namespace cohort::mesh
#line 1 "tests/headers/context/data.inc"
// cohort/data/list.h
struct List;
#line 3 "cohort/data/list.h"
  void block_3() {
#line 3
     List list;
     for (auto& item : list) ;

}
}  // namespace cohort::data::cohort_data_list_h

"""
    assert (tmp_path / "out.d").read_text().startswith(f"{tmp_path}/out.cpp: {tmp_path}/cmake/public_headers.cmake")


@pytest.mark.parametrize("comment, code", [
    ("///     for (...) step();  // ...", "for (;;) step();  // ..."),
    ("///     ... train ...\n///     log(\"...\");", "     ;\n     log(\"...\");"),
    ("///     template <class... T>\n///     void f(T&&... t);", "     template <class... T>\n     void f(T&&... t);"),
    ("///     struct Net {};", "#line 1 \"cohort/data/list.h\"\n     struct Net {};"),
    ("///     int run(int count) {\n///       return count;\n///     }", "#line 1 \"cohort/data/list.h\"\n     int run(int count) {\n"),
    ("///     step();\n///     $ make {", "     step();\n\n"),
    ("/// ```cpp\n/// step();\n/// ```", "#line 2\n step();\n"),
])
def test_code(tmp_path, comment, code):
    assert code in written(tmp_path, comment)


@pytest.mark.parametrize("comment", ["/// ```text\n/// a -> b\n/// ```", "///     $ make test", "/// Text.\n///   - a list"])
def test_what_is_not_code_is_left_out(tmp_path, comment):
    assert "namespace" not in written(tmp_path, comment)


@pytest.mark.parametrize("comment, error", [
    ("/// Text:\n/// ```\n/// step();\n/// ```",
     "2: error: a fence that names no language; write ```cpp, or ```text for what is not C++"),
    ("/// ```cpp\n/// step();", "1: error: a fence without an end"),
    ("//     step();", "1: error: code in a // comment; write ///"),
    ("///\n///     {\n///       step();", '2: error: a block with 1 "{" and 0 "}"'),
])
def test_a_block_that_cannot_be_taken_out(tmp_path, comment, error):
    with pytest.raises(SystemExit) as raised:
        written(tmp_path, comment)
    assert str(raised.value) == f"{tmp_path}/cohort/data/list.h:{error}"


def test_names_for_a_header_without_a_block(tmp_path):
    with pytest.raises(SystemExit) as raised:
        written(tmp_path, "/// Text.", "// cohort/data/list.h\nextern int x;\n")
    assert str(raised.value) == f"{tmp_path}/tests/headers/context: error: sections of headers without a block: cohort/data/list.h"
