#include "cohort/elastic/plan/worker_command.h"

#include <fmt/format.h>

#include <filesystem>

#include "cohort/base/process/process.h"
#include "cohort/base/system/env.h"
#include "cohort/elastic/output/substitution.h"
#include "cohort/elastic/plan/packaged_python.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

std::string default_interpreter() {
  const auto chosen = base::get_env("PYTHON_EXEC");
  if (chosen && !chosen->empty()) return *chosen;
  std::error_code error;
  const auto launcher = std::filesystem::read_symlink("/proc/self/exe", error);
  if (const std::optional<std::string> packaged = packaged_python(launcher)) return *packaged;
  return base::find_program("python3") ? "python3" : "python";
}

bool is_script(const std::string& name) {
  if (name.ends_with(".py")) return true;
  std::error_code error;
  if (!std::filesystem::is_regular_file(name, error)) return false;
  // A program of the current folder is not found in PATH; the error then says how to write it.
  const bool has_slash = name.find('/') != std::string::npos;
  return !base::find_program(name) && !base::find_program(has_slash ? name : fmt::format("./{}", name));
}

}  // namespace

Result<void> check_program(const WorkerProgram& program) {
  if (program.as_module && program.without_python) {
    return Error("Don't use both the '--no-python' flag and the '--module' flag at the same time.");
  }
  return {};
}

Result<std::vector<std::string>> worker_command(const WorkerProgram& program, int local_rank) {
  return worker_command(program, local_rank, default_interpreter());
}

Result<std::vector<std::string>> worker_command(const WorkerProgram& program, int local_rank,
                                                const std::string& interpreter) {
  if (Result<void> checked = check_program(program); !checked) return checked.error();
  const std::map<std::string, std::string> values = {{"local_rank", std::to_string(local_rank)}};
  std::vector<std::string> command;
  const bool with_python = program.as_module || program.as_path || (!program.without_python && is_script(program.name));
  if (with_python) {
    command = {interpreter, "-u"};
    if (program.as_module) command.push_back("-m");
    command.push_back(substitute(program.name, values));
  } else {
    command = {program.name};
  }
  if (program.adds_local_rank) command.push_back(fmt::format("--local-rank={}", local_rank));
  for (const std::string& argument : program.arguments) command.push_back(substitute(argument, values));
  if (Result<std::string> found = base::find_program(command.front()); !found) return found.error();
  return command;
}

}  // namespace cohort::elastic
