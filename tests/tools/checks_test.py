"""The checks of `make check` can fail: each is shown a project with one fault, and the same project without it."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE = "cohort_test(base SOURCES base/text_test.cpp)\n"
GROUP = "#pragma once\nnamespace cohort { COHORT_API void start(); }\n"
PUBLIC_HEADERS = """set(COHORT_PUBLIC_HEADERS cohort/cohort.h
    cohort/comm/group/group.h)  # one each
set(COHORT_NARROW_HEADERS cohort/models/gpt.h cohort/all.h)
"""
ALL = """#include "cohort/cohort.h"
#include "cohort/comm/group/group.h"
#include "cohort/models/gpt.h"
"""
ENGLISH = """/// Returns the index; -1 if there
/// is no line. It is no longer than 80, and this function is no slower than "What is it".
/// It is

/// no line.
const char* text = "it is";  // none. What follows is not documentation.
auto size = 1'000;  // it is
// nothing.
"""
TEST = 'TEST(Text, JoinsLines) { EXPECT_EQ(1, 1); }\n'
OPTIONS = """struct NetOptions {
  NetOptions() { int x = 0; (void)x; }
  bool is_b() const { return b; }
  std::function<int(int c)> a = {};
  std::vector<int64_t> b = {1, 2};  // int c;
  size_t d = size_t{512} << 10;
  int e, f = 2;
};
"""
NAMES = "# PyTorch's\noptim:: torch.optim\nstart torch.distributed.init_process_group\n"
DECLARATIONS = """#include <string>
#define COHORT_DONE(x) struct x {}
struct ssl_st;
namespace cohort {
template <class T, int n = (1 > 0)>
class COHORT_API Task final : public Base<T> { [[deprecated]] void run() { int local = 0; } };
enum class Kind : int { kOne };
using Tasks = std::vector<Task<int>>;
using base::or_throw;
inline constexpr int kLimits[] = {1, 2};
[[nodiscard]] COHORT_API std::vector<std::string> run(const Task<int>& task = {}, int (*call)(int) = nullptr) noexcept;
inline std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out; }
void Task<int>::run();
template <>
struct Task<int> {};
TORCH_MODULE(Net);
using Old [[deprecated("use cohort::comm::New")]] = comm::New;
class NetImpl;
namespace { int hidden; }
namespace fs = std::filesystem;
}  // namespace cohort

// Old names, until the next release.
namespace cohort {
using comm::run_all;
}
"""
PARITY = "# 1. Texts\n\n- **a** (1.2): b (c).\n  Status: "


def golden(checksum=hashlib.sha256(b"import torch\n").hexdigest(), more=""):
    """The file of a golden, whose one tensor is empty; of 512 bytes and their number, so that it is text."""
    text = json.dumps({"origin": {"release": "2.13.0", "arguments": [], "scripts": {"net_python_rank.py": checksum}}, "index": {"a": [["float32", 0]]}})
    header = json.dumps({"__metadata__": {"golden": text}, "float32": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    assert len(header) <= 512
    return (512).to_bytes(8, "little").decode() + header.ljust(512) + more


PICTURE = subprocess.run([sys.executable, str(ROOT / "tools/dev/check_layers.py"), "--picture"], capture_output=True, text=True, check=True).stdout


def options_page(*rows):
    return "| `x::NetOptions::` | default |\n|---|---|\n" + "".join(f"| {row} | 1 |\n" for row in rows)


def options_list(*items):
    return "Fields of `x::NetOptions`, with their defaults:\n\n" + "".join(f"- {item}\n" for item in items)


@pytest.fixture
def project(tmp_path):
    """A small project that passes every check."""
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("cohort/base/text/text.h", "#pragma once\n#include <string>\n")
    write("cohort/cohort.h", '#pragma once\n#include "cohort/comm/group/group.h"\n')
    write("cohort/all.h", ALL)
    write("cohort/comm/group/group.h", GROUP)
    write("cohort/models/gpt.h", "#pragma once\n#include <torch/nn/module.h>\nnamespace cohort::models {\n" + OPTIONS + "}\n")
    write("docs/guide.md", options_page("`a`, `b`"))
    write("HACKING.md", "A picture:\n\n" + PICTURE)
    write("cohort/base/README.md", "`text/`: `text.h`; `system/`, `file/`\n")
    write("cohort/comm/README.md", "`group/`: begin with `group.h`, `base/text/text.h` and `tests/base/text_test.cpp`\n")
    write("cohort/models/README.md", "GPT\n")
    write("cmake/public_headers.cmake", PUBLIC_HEADERS)
    write("cohort/base/file/lines.cpp", ENGLISH)
    write("cohort/comm/group/group.cpp", '#include <torch/nn/module.h>\n#include "cohort/base/text/text.h"\n')
    write("tests/CMakeLists.txt", CMAKE)
    write("tests/base/text_test.cpp", TEST)
    write("tests/e2e/demo_test.py", "def test_runs():\n    assert True\n")
    write("tests/e2e/mesh/net_test.py", "def test_runs(golden):\n    golden(__file__)\n")
    write("tests/e2e/mesh/net_python_rank.py", "import torch\n")
    write("tests/e2e/mesh/goldens/net_test.safetensors", golden())
    write("tools/dev/setup.sh", "torch_version=2.13.0\n")
    write("tools/dev/budgets_allowed.txt", "# none\n")
    write("tools/dev/pytorch_names.txt", NAMES)
    write("docs/environment_variables.md", "`RANK`\n")
    write("cohort/base/system/env_use.cpp", 'auto a = get_env("RANK");\n')
    write("docs/parity.md", "1. [Texts](parity/texts.md)\n")
    write("docs/parity/texts.md", PARITY + "partly: not 1.0. Tests: `Text.JoinsLines`,\n  `tests/e2e/demo_test.py::test_runs`\n"
          "- **c** (1)\n  Status: not yet.\n")
    return write, tmp_path


def check(name, root, *options):
    result = subprocess.run([sys.executable, str(ROOT / f"tools/dev/check_{name}.py"), str(root), *options],
                            capture_output=True, text=True, env={**os.environ, "GIT_DIR": "/nonexistent"})
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["layers", "public_headers", "namespaces", "options", "budgets", "registered", "environment", "devices", "overrides", "errors",
                                  "english", "parity", "goldens", "docs"])
def test_sound_project_passes(project, name):
    assert check(name, project[1])[0] == 0


@pytest.mark.parametrize("name, path, text, message", [
    ("layers", "cohort/base/text/text.cpp", '#include "cohort/comm/group/group.h"\n', "layer base must not include comm"),
    ("layers", "cohort/base/text/text.cpp", "#include <ATen/core/Tensor.h>\n", "base knows no LibTorch"),
    ("layers", "cohort/comm/group/a.cpp", '#include "cohort/cohort.h"\n', "is for users"),
    ("layers", "cohort/comm/a.cpp", "\n", "not in a subfolder of comm"),
    ("layers", "cohort/comm/soup/a.cpp", "\n", "not in a subfolder of comm"),
    ("layers", "cohort/comm/start/a.cpp", '#include "cohort/comm/group/world.h"\n',
     "subfolder comm/start must not include comm/group"),
    ("layers", "cohort/comm/gloo/a.cpp", '#include "cohort/comm/shm/shm_work.h"\n',
     "subfolder comm/gloo must not include comm/shm"),
    ("layers", "cohort/train/a.cpp", '#include "cohort/extras/train/logging/plot.h"\n', "layer train must not include extras/train"),
    ("layers", "cohort/extras/soup/a.cpp", "\n", "'extras/soup' is not a layer"),
    ("layers", "cohort/soup/a.cpp", "\n", "'soup' is not a layer"),
    ("layers", "tools/cohort/main.cpp", '#include "cohort/comm/group/group.h"\n', "layer tools/cohort must not include comm"),
    ("layers", "tools/cohort-data/main.cpp", '#include "cohort/store/keys/store.h"\n', "layer tools/cohort-data must not include store"),
    ("layers", "HACKING.md", PICTURE.replace("data*", "date*"), "HACKING.md:1: its picture of the layers is not that of"),
    ("public_headers", "cohort/comm/group/group.h", GROUP + '#include "cohort/base/text/text.h"\n',
     "cohort/comm/group/group.h:3: a public header includes cohort/base/text/text.h"),
    ("public_headers", "cohort/cohort.h", '#include "cohort/comm/group/group.h"\n#include "cohort/models/gpt.h"\n',
     "reaches cohort/models/gpt.h, which"),
    ("public_headers", "cohort/cohort.h", "#pragma once\n", "cohort/cohort.h does not reach it"),
    ("public_headers", "cohort/all.h", ALL.replace('#include "cohort/models/gpt.h"\n', ""),
     "cohort/all.h:1: does not include cohort/models/gpt.h, which"),
    ("public_headers", "cohort/all.h", ALL + '#include "cohort/base/text/text.h"\n',
     "cohort/all.h:1: includes cohort/base/text/text.h, which cmake/public_headers.cmake does not list for users"),
    ("public_headers", "cmake/public_headers.cmake", PUBLIC_HEADERS.replace(" cohort/all.h", ""), "does not list cohort/all.h"),
    ("public_headers", "cmake/public_headers.cmake", PUBLIC_HEADERS + "set(COHORT_EXTRAS_HEADERS cohort/models/gpt.h)\n",
     "does not list cohort/extras/all.h"),
    ("public_headers", "cohort/comm/group/group.h", "/// Private to this folder.\n" + GROUP, "says that it is private"),
    ("public_headers", "cohort/models/gpt.h", "#include <torch/torch.h>\n", "must not include <torch/torch.h>"),
    ("public_headers", "cohort/comm/group/group.h", "#include <nlohmann/json.hpp>\n", "must not include <nlohmann/json.hpp>"),
    ("public_headers", "cohort/base/text/text.h", "COHORT_API void trim();\n", "cohort/base/text/text.h:1: COHORT_API, but"),
    ("public_headers", "cohort/comm/group/group.h", "COHORT_TEST_API void start();\n", "export its names with COHORT_API"),
    ("public_headers", "cmake/public_headers.cmake", PUBLIC_HEADERS.replace("gpt.h", "gone.h"), "there is no such file"),
    ("public_headers", "cmake/public_headers.cmake", PUBLIC_HEADERS.replace("gpt.h", "gpt.h cohort/cohort.h"), "listed twice"),
    ("options", "docs/guide.md", options_page("`b`", "`a`"), "docs/guide.md:4: NetOptions declares a before b\n"),
    ("options", "docs/guide.md", options_page("`b`, `a`"), "docs/guide.md:3: NetOptions declares a before b\n"),
    ("options", "docs/guide.md", options_page("`e`, `d`"), "docs/guide.md:3: NetOptions declares d before e\n"),
    ("options", "docs/guide.md", options_page("`f`, `e`"), "docs/guide.md:3: NetOptions declares e before f\n"),
    ("options", "docs/guide.md", options_page("`c`"), "docs/guide.md:3: NetOptions has no member c\n"),
    ("options", "docs/guide.md", options_list("`b`: `a`,\n  or more", "`a` (1): x"), "docs/guide.md:5: NetOptions declares a before b\n"),
    ("options", "docs/guide.md", options_list("`b`, `a` (1): x"), "docs/guide.md:3: NetOptions declares a before b\n"),
    ("options", "docs/guide.md", options_list("`a`: 1") + options_list("`c`: 1"), "docs/guide.md:6: NetOptions has no member c\n"),
    ("budgets", "tests/base/wide_test.cpp", "#include <torch/nn.h>\n", "tests/base/wide_test.cpp:1: takes seconds to compile"),
    ("budgets", "cohort/base/wide.h", "class Wide {\n" + "".join(f"  int n{i}_ = 0;\n" for i in range(21)) + "};\n",
     "cohort/base/wide.h:1: Wide has 21 data members, a class may have 20"),
    ("budgets", "cohort/base/wide.h", "struct A {\n  int a[2], b{1}, c = f(1, 2);\n  struct {\n" + "    int d;\n" * 18 + "  } e;\n};\n",
     "A has 21 data members"),
    ("docs", "README.md", "\n" * 201, "README.md:1: 201 lines, it may have 200"),
    ("budgets", "cohort/base/long.cpp", "void f() {\n" + "g();\n" * 70 + "}\n", "f has 72 lines"),
    ("budgets", "cohort/base/wide.cpp", "int f(int a, int b, int c, int d, int e, int g, int h) { return a; }\n",
     "f takes 7 parameters"),
    ("budgets", "cohort/base/wide.cpp", "//" + "x" * 140 + "\n", "142 columns"),
    ("budgets", "tools/dev/budgets_allowed.txt", "cohort/base/text/text.h source 300 long\n", "needs `path kind limit reason`"),
    ("registered", "tests/base/other_test.cpp", TEST, "tests/base/other_test.cpp:1: no CMakeLists.txt"),
    ("registered", "tests/CMakeLists.txt", "# " + CMAKE, "tests/base/text_test.cpp:1: no CMakeLists.txt"),
    ("registered", "tests/e2e/demo.py", "def test_runs():\n    pass\n", "pytest collects *_test.py only"),
    ("registered", "tests/e2e/store/demo_test.py", "def test_other():\n    pass\n", "tests/e2e/demo_test.py has the same name"),
    ("environment", "cohort/base/a.cpp", 'auto a = base::env_int("WORLD_SIZE", 1);\n', "WORLD_SIZE is not in docs"),
    ("devices", "cohort/comm/group/a.cpp", "bool f() { return x.is_cuda(); }\n", "cohort/comm/group/a.cpp:1: is_cuda is for one type"),
    ("devices", "cohort/comm/group/a.h", "#pragma once\nconst auto kWhere = c10::DeviceType::CUDA;\n", "a.h:2: DeviceType::CUDA is for one"),
    ("overrides", "cohort/comm/group/a.cpp", "torch::Library library(torch::Library::IMPL, \"aten\", key, __FILE__, __LINE__);\n",
     "cohort/comm/group/a.cpp:1: torch::Library is for cohort/comm/overrides/ alone"),
    ("overrides", "cohort/comm/group/a.cpp", "\nvoid f() { c10::SetCPUAllocator(ours); }\n", "a.cpp:2: SetCPUAllocator is for cohort/comm/memory/"),
    ("overrides", "cohort/comm/group/a.cpp", 'auto f = [] { override_kernel("X", "aten::tanh", key, g); };\n',
     "cohort/comm/group/a.cpp:1: the operator tanh is not in docs/design/libtorch_overrides.md"),
    ("errors", "cohort/comm/group/a.cpp", 'void f() {\n  TORCH_CHECK_VALUE(size.ok(), "[cohort] f: ",\n    size.error().describe());\n}\n',
     "cohort/comm/group/a.cpp:2: TORCH_CHECK_VALUE with the text of an Error; use or_throw, or_throw_value or throw_error"),
    ("errors", "cohort/comm/group/a.h", "#pragma once\ninline void f() { C10_THROW_ERROR(ValueError, error.message()); }\n",
     "cohort/comm/group/a.h:2: C10_THROW_ERROR with the text of an Error"),
    ("errors", "cohort/comm/group/a.cpp", "void f() { if (!size) throw std::runtime_error(size.error().describe()); }\n",
     "cohort/comm/group/a.cpp:1: throw with the text of an Error"),
    ("english", "cohort/base/a.h", "/// Lines.\n\nstruct A {\n  /// The size. Returns:\n  /// What it has.\n  int b;\n};\n",
     'cohort/base/a.h:5: a /// sentence begins with "What": begin with its verb or noun'),
    ("english", "cohort/base/a.h", "/// What it has.\n", 'a.h:1: a /// sentence begins with "What"'),
    ("english", "cohort/base/a.h", "// Refuses what is\n// no number.\n", 'a.h:1: "is no": write "is not a ..." or "there is no ..."'),
    ("english", "cohort/base/a.h", "/* Null:\n * there is one, or it is\n * none. */\n", 'a.h:2: "is none": write "If absent, ..." or "there is none"'),
    ("english", "cohort/base/a.cpp", 'auto a = text("\'",\n  "a file" " is"\n  " no pipe");\n', 'cohort/base/a.cpp:2: "is no": write'),
    ("english", "tools/dev/a.py", 'import a\n\n# If b is\n# none.\n', 'tools/dev/a.py:3: "is none": write'),
    ("english", "tools/dev/a.py", '"""Text.\n\nThis is no text."""\n', 'tools/dev/a.py:3: "is no": write'),
    ("english", "tools/dev/a.sh", 'true\n# This is no script.\n', 'tools/dev/a.sh:2: "is no": write'),
    ("english", "examples/a.cpp", "// A\n// a\n// a\n// it is\n// none of\n", 'examples/a.cpp:4: "is none": write'),
    ("english", "docs/guide/a.md", "# Title\n\nThe folder is\nno mesh.\n", 'docs/guide/a.md:3: "is no": write'),
    ("english", "README.md", "Is no framework.\n", 'README.md:1: "Is no": write "is not a ..." or "there is no ..."'),
    ("environment", "cohort/base/a.h", 'inline constexpr const char* kSizeVariable = "WORLD_SIZE";\n', "WORLD_SIZE is not in docs"),
    ("environment", "cohort/base/a.cpp", 'auto a = std::getenv("RANK");\n', "through cohort/base/system/env.h"),
    ("goldens", "tests/e2e/mesh/net_python_rank.py", "import os\n",
     "tests/e2e/mesh/goldens/net_test.safetensors: changed since: net_python_rank.py. Write it anew: tools/dev/write_goldens.py\n"),
    ("goldens", "tools/dev/setup.sh", "torch_version=2.14.0\n", "it is of PyTorch 2.13.0, not 2.14.0. Write it anew"),
    ("goldens", "tests/e2e/mesh/goldens/net_test.safetensors", golden("other"), "changed since: net_python_rank.py"),
    ("goldens", "tests/e2e/mesh/goldens/net_test.safetensors", golden(more=" "), "net_test.safetensors is no whole golden. Write it anew"),
    ("goldens", "tests/e2e/mesh/goldens/gone_test.safetensors", golden(), "there is no gone_test.py that it could be of"),
    ("goldens", "tests/e2e/mesh/goldens/net_test.safetensors", golden().replace("rank.py", "gone.py"), "there is no net_python_gone.py any more"),
    ("goldens", "tests/e2e/mesh/other_test.py", "golden(__file__)\n", "other_test.py:1: it has no golden. Write it: tools/dev/write_goldens.py\n"),
    ("docs", "cohort/mesh/mesh.h", "#pragma once\n", "cohort/mesh/README.md:1: there is none"),
    ("docs", "cohort/comm/start/start.h", "#pragma once\n", "cohort/comm/README.md:1: does not name `start/`\n"),
    ("docs", "cohort/comm/group/parts/part.h", "#pragma once\n", "cohort/comm/README.md:1: does not name `group/parts/`\n"),
    ("docs", "cohort/comm/group/README.md", "Of `parts/`.\n", "cohort/comm/group/README.md:1: there is no `parts/`\n"),
    ("namespaces", "cohort/base/text/text.h", "namespace cohort {\nstruct Text;\n}\n", "cohort/base/text/text.h:2: Text is in namespace cohort, but "
     "tools/dev/pytorch_names.txt does not list it: move it into cohort::base\n"),
    ("namespaces", "cohort/base/text/text.h", "namespace cohort::comm {\nint trim(int a);\n}\n",
     "cohort/base/text/text.h:2: trim is in cohort::comm, but its folder's namespace is cohort::base\n"),
    ("namespaces", "cohort/base/text/text.h", "namespace cohort::base {\nnamespace text {\nint a;\n}\n}\n",
     "cohort/base/text/text.h:3: a is in cohort::base::text, which is more than one level below cohort\n"),
    ("namespaces", "cohort/base/text/text.h", "struct Text {};\n", "cohort/base/text/text.h:1: Text is outside namespace cohort\n"),
    ("namespaces", "cohort/comm/group/group.h", "#pragma once\n", "tools/dev/pytorch_names.txt:1: no header declares start in namespace cohort"),
    ("namespaces", "tools/dev/pytorch_names.txt", NAMES + "start = a\n", 'tools/dev/pytorch_names.txt:4: a line is "NAME torch.NAME"'),
    ("namespaces", "tools/dev/pytorch_names.txt", NAMES + "Options argument of stop\n", "Options is an argument of stop, which is not listed\n"),
    ("docs", "cohort/comm/README.md", "\n`group/`: `gone.h`\n", "cohort/comm/README.md:2: there is no `gone.h`\n"),
    ("docs", "cohort/comm/README.md", "`group/`: `base/gone.h`\n", "cohort/comm/README.md:1: there is no `base/gone.h`\n"),
    ("docs", "cohort/comm/README.md", "`group/`\n" + "\n" * 25, "cohort/comm/README.md:1: 26 lines, it may have 25\n"),
    ("docs", "HACKING.md", PICTURE + "\n" * 80, "lines, it may have 80\n"),
    ("docs", "docs/guide.md", "\n" + "x" * 131 + "\n", "docs/guide.md:2: 131 columns, a line may have 130\n"),
    ("parity", "docs/parity/texts.md", PARITY + "yes. Tests: `Text.JoinsLines`,\n  `Text.Gone`\n", "docs/parity/texts.md:3: no test is called Text.Gone\n"),
    ("parity", "docs/parity/texts.md", PARITY + "yes.\n", 'status "yes" with 0 tests'),
    ("parity", "docs/parity/texts.md", PARITY + "not yet. Tests: `Text.JoinsLines`\n", 'status "not yet" with 1 tests'),
    ("parity", "docs/parity/texts.md", PARITY + "maybe.\n", 'status "maybe"'),
    ("parity", "docs/parity/texts.md", PARITY + "yes\n", "an entry is `- **item** (1): what we have. Status: yes. Tests: ...`"),
    ("parity", "docs/parity/texts.md", PARITY.replace("1.2", "2.1") + "not yet.\n", "docs/parity/texts.md:3: an entry is"),
    ("parity", "docs/parity.md", "1. [Texts](parity/gone.md)\n", "docs/parity.md:1: does not list parity/texts.md\n"),
    ("parity", "tests/base/text_test.cpp", "// " + TEST, "no test is called Text.JoinsLines"),
])
def test_fault_is_reported(project, name, path, text, message):
    write, root = project
    write(path, text)
    status, output = check(name, root)
    assert status == 1
    assert message in output


def test_every_kind_of_name_is_seen(project):
    write, root = project
    write("cohort/comm/group/names.h", DECLARATIONS)
    status, output = check("namespaces", root)
    assert status == 1
    assert re.findall(r"names.h:(\d+): (\S+) is in namespace cohort", output) == [
        ("6", "Task"), ("7", "Kind"), ("8", "Tasks"), ("9", "base::or_throw"), ("10", "kLimits"), ("11", "run"), ("16", "Net"), ("18", "NetImpl"),
        ("20", "fs")]


@pytest.mark.parametrize("path", ["parallel/zero/zero.h", "extras/parallel/zero/zero.h"])
def test_rooms_of_parallel_and_modules_of_pytorch_have_namespaces(project, path):
    write, root = project
    write(f"cohort/{path}", "namespace cohort::zero {\nint a;\n}\nnamespace cohort::parallel::detail {\nint b;\n}\n"
          "namespace cohort::optim {\nint c;\n}\n")
    assert check("namespaces", root) == (0, "namespaces: 6 headers, 1 names of PyTorch, ok\n")


def test_installed_headers_are_compared_with_the_list(project, tmp_path_factory):
    write, root = project
    folder = tmp_path_factory.mktemp("include")
    for name in ["cohort/cohort.h", "cohort/all.h", "cohort/comm/group/group.h", "cohort/models/gpt.h"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
    assert check("public_headers", root, "--installed", str(folder))[0] == 0
    (folder / "cohort/models/gpt.h").rename(folder / "cohort/comm/secret.h")
    status, output = check("public_headers", root, "--installed", str(folder))
    assert status == 1
    assert "cohort/comm/secret.h: is installed, but" in output
    assert "cohort/models/gpt.h: cmake/public_headers.cmake lists it, but it is not installed" in output


CLASS = """template <class T>
class COHORT_API Small final : public Base<T> {{
 public:
  Small() : a_{{1}} {{ int local = 0; }}
  static constexpr int kNone = 0;
  using Call = std::function<void(int, int)>;
  struct Other {{
    int a, b;
  }};
  enum class Kind {{ kOne, kTwo }};
  bool operator==(const Small& other) const = default;
  virtual void run(int a = 1) = 0;
  const Call& call() const {{ return call_; }}

 private:
  friend class Large;
  Call call_;  // int comment_;
  [[maybe_unused]] alignas(64) std::atomic<int> a_{{0}};
  decltype(f(g())) made_ = f(g());
  void (*pointer_)(int);
  std::map<std::string, std::vector<int>, std::less<>> map_;
{}}};
"""


@pytest.mark.parametrize("more, is_too_many", [(15, False), (16, True)])
def test_members_are_counted_without_functions_statics_and_types(project, more, is_too_many):
    write, root = project
    write("cohort/base/small.h", CLASS.format("  int x_ = 1;\n" * more))
    status, output = check("budgets", root)
    assert status == (1 if is_too_many else 0)
    assert ("small.h:2: Small has 21 data members" in output) == is_too_many


def test_folders_are_to_be_divided_and_files_may_be_long(project):
    write, root = project
    for i in range(25):
        write(f"cohort/base/text/a{i}.h", "\n" * 600)  # besides one of the project
    status, output = check("budgets", root)
    assert status == 1
    assert output == "budgets: 1 errors\ncohort/base/text: 26 source files, a folder may have 25: divide it into folders\n"


@pytest.mark.parametrize("limit, message", [
    (26, ""), (25, "cohort/base/text: 26 source files, a folder may have 25"),
    (27, "tools/dev/budgets_allowed.txt:1: cohort/base/text has 26 files now: write 26 in place of 27\n")])
def test_limit_is_what_there_is(project, limit, message):
    write, root = project
    for i in range(25):
        write(f"cohort/base/text/a{i}.h", "\n")
    write("tools/dev/budgets_allowed.txt", f"cohort/base/text files {limit} to be divided\n")
    status, output = check("budgets", root)
    assert status == (1 if message else 0)
    assert message in output


def test_limit_that_is_not_needed_is_removed(project):
    write, root = project
    write("tools/dev/budgets_allowed.txt", "cohort/base/text/text.h members 25 state\n")
    status, output = check("budgets", root)
    assert status == 1
    assert "tools/dev/budgets_allowed.txt:1: cohort/base/text/text.h has 0 members now: remove the line\n" in output


@pytest.mark.skipif(not shutil.which("clang-format"), reason="clang-format is not installed")
def test_format_names_the_file(tmp_path):
    (tmp_path / "tools/dev").mkdir(parents=True)
    shutil.copy(ROOT / "tools/dev/format.sh", tmp_path / "tools/dev")
    shutil.copy(ROOT / ".clang-format", tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    source = tmp_path / "a.cpp"
    command = [str(tmp_path / "tools/dev/format.sh"), "--check"]
    source.write_text("int main() { return 0; }\n")
    assert subprocess.run(command, capture_output=True).returncode == 0
    source.write_text("int main( ){return 0;}\n")
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "a.cpp: not formatted" in result.stderr
