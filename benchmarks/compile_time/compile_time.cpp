// compile-time: the time to compile a user's first program, alone and with the precompiled header of cohort_precompile_headers(),
// which is compiled once. Without a compiler cache.
#include <functional>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turn_order.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"

namespace cohort::bench {
namespace {

constexpr double kBudgetSeconds = 25;
constexpr const char* kNarrow = "hello-ddp/narrow-headers";
constexpr const char* kUmbrella = "hello-ddp/cohort.h";
constexpr const char* kPrecompiled = "hello-ddp/precompiled";

// Returns the seconds of one run of the compiler, called as in a user's project.
double time_compiler(const std::vector<std::string>& more) {
  const std::string torch = std::string(kTorchRoot) + "/include";
  std::vector<std::string> command = {kCompiler,
                                      "-std=c++20",
                                      "-O2",
                                      "-DUSE_DISTRIBUTED",
                                      "-DUSE_C10D_GLOO",
                                      "-I",
                                      kSourceDir,
                                      "-isystem",
                                      torch,
                                      "-isystem",
                                      torch + "/torch/csrc/api/include"};
  command.insert(command.end(), more.begin(), more.end());
  return time_program(command);
}

std::string in_sources(const std::string& path) { return std::string(kSourceDir) + "/" + path; }

class Compiler {
 public:
  // Reads LibTorch's headers into the page cache.
  void read_headers() const { time_compiler({"-E", in_sources("cmake/user_precompiled.h"), "-o", "/dev/null"}); }
  double compile(const std::string& source, std::vector<std::string> flags = {}) const {
    flags.insert(flags.end(),
                 {"-c", in_sources("benchmarks/compile_time/" + source), "-o", folder_.path() + "/hello.o"});
    return time_compiler(flags);
  }
  double precompile() const {
    return time_compiler({"-x", "c++-header", in_sources("cmake/user_precompiled.h"), "-o", header() + ".gch"});
  }
  double compile_with_header(const std::string& source) const {
    return compile(source, {"-Werror=invalid-pch", "-include", header()});
  }

 private:
  std::string header() const { return folder_.path() + "/user_precompiled.h"; }
  ScratchFolder folder_;
};

Row beside_budget(const std::string& case_name, const std::vector<double>& seconds) {
  Row row;
  row.case_name = case_name;
  row.ours = median(seconds);
  row.rival = kBudgetSeconds;
  row.rival_name = "budget";
  row.unit = "s";
  row.ratio = kBudgetSeconds / *row.ours;
  return row;
}

Row beside_narrow(const std::string& part, const std::vector<double>& ours, const std::vector<double>& narrow) {
  Row row = compare_times(ours, narrow);
  row.case_name = kPrecompiled + part;
  row.rival_name = "without";
  row.unit = "s";
  return row;
}

}  // namespace

std::vector<Row> run_compile_time(const Settings& settings) {
  check_case(settings.only_case, {kNarrow, kUmbrella, kPrecompiled});
  const auto wants = [&](const char* name) { return settings.only_case.empty() || settings.only_case == name; };
  const bool wants_umbrella = wants(kUmbrella) && (!settings.is_quick || !settings.only_case.empty());
  const int num_rounds = settings.is_quick ? 1 : 3;
  const Compiler compiler;
  if (wants(kPrecompiled)) compiler.read_headers();
  std::vector<double> header;
  for (int i = 0; wants(kPrecompiled) && i < num_rounds; ++i) header.push_back(compiler.precompile());
  std::vector<std::function<double()>> sides = {[&] { return compiler.compile("hello_ddp.cpp"); }};
  if (wants(kPrecompiled)) sides.push_back([&] { return compiler.compile_with_header("hello_ddp.cpp"); });
  if (wants_umbrella) sides.push_back([&] { return compiler.compile("hello_ddp_umbrella.cpp"); });
  const auto seconds = measure_in_turns(sides, num_rounds);

  std::vector<Row> rows;
  if (wants(kNarrow)) rows.push_back(beside_budget(kNarrow, seconds.front()));
  if (wants_umbrella) rows.push_back(beside_budget(kUmbrella, seconds.back()));
  if (wants(kPrecompiled)) {
    const std::vector<double>& edit = seconds[1];
    std::vector<double> first_build;
    for (size_t i = 0; i < edit.size(); ++i) first_build.push_back(header[i] + edit[i]);
    rows.push_back(beside_narrow("/first-build", first_build, seconds.front()));
    rows.push_back(beside_narrow("/edit", edit, seconds.front()));
  }
  return rows;
}

}  // namespace cohort::bench
