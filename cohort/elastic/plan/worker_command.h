/// The command of a worker: a Python script runs with the interpreter, any other program directly.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::elastic {

struct WorkerProgram {
  /// The path of a script or program; with as_module, a module's name.
  std::string name;
  std::vector<std::string> arguments;
  bool as_module = false;
  /// Never use an interpreter, whatever the name looks like.
  bool without_python = false;
  /// Always use an interpreter (--run-path). Python's own rules for paths (scripts, folders, archives) apply.
  bool as_path = false;
  /// Put `--local-rank=N` before the arguments, as `python -m torch.distributed.launch` does without --use-env.
  bool adds_local_rank = false;
};

/// Checks for flags that contradict each other. Errors have torchrun's words.
base::Result<void> check_program(const WorkerProgram& program);

/// Returns the command line of one worker with `${local_rank}` substituted. `.py` files, modules and files that are not
/// executable run with the interpreter: PYTHON_EXEC if set, else the one of the Python that the launcher was installed into
/// (packaged_python.h), else python3.
base::Result<std::vector<std::string>> worker_command(const WorkerProgram& program, int local_rank);

/// Uses the given interpreter, for tests.
base::Result<std::vector<std::string>> worker_command(const WorkerProgram& program, int local_rank,
                                                      const std::string& interpreter);

}  // namespace cohort::elastic
