// compile-time: how long a user waits for the compiler, without a precompiled header and without a compiler cache.
#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "build_facts.h"

namespace cohort::bench {
namespace {

constexpr double kBudgetSeconds = 25;

Row compile(const std::string& case_name, const std::string& source, int repetitions) {
  const ScratchFolder folder;
  const std::string root = kSourceDir;
  const std::string torch = kTorchRoot;
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    times.push_back(
        time_program({kCompiler, "-std=c++20", "-O2", "-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO", "-I" + root, "-isystem",
                      torch + "/include", "-isystem", torch + "/include/torch/csrc/api/include", "-c",
                      root + "/benchmarks/compile_time/" + source, "-o", folder.path() + "/hello.o"}));
  }
  Row row;
  row.case_name = case_name;
  row.ours = median(times);
  row.rival = kBudgetSeconds;
  row.rival_name = "budget";
  row.unit = "s";
  row.ratio = kBudgetSeconds / *row.ours;
  return row;
}

}  // namespace

std::vector<Row> run_compile_time(const Settings& settings) {
  std::vector<Row> rows{compile("hello-ddp/narrow-headers", "hello_ddp.cpp", settings.is_quick ? 1 : 3)};
  if (!settings.is_quick) rows.push_back(compile("hello-ddp/cohort.h", "hello_ddp_umbrella.cpp", 3));
  return rows;
}

}  // namespace cohort::bench
