/// Which program a worker runs: a Python script by the interpreter, anything else directly.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::elastic {

struct WorkerProgram {
  /// Path of a script or program; a module's name with as_module.
  std::string name;
  std::vector<std::string> arguments;
  bool as_module = false;
  /// Never start an interpreter, whatever the name looks like.
  bool without_python = false;
  /// --run-path: always start one. Python's own rules for paths (scripts, folders, archives) apply.
  bool as_path = false;
  /// As `python -m torch.distributed.launch` without --use-env: `--local-rank=N` stands before the arguments.
  bool adds_local_rank = false;
};

/// Errors: flags that contradict each other, in torchrun's words.
base::Result<void> check_program(const WorkerProgram& program);

/// Returns the command line of one worker, `${local_rank}` substituted.
/// `.py` files, modules and files that are not executable go to `interpreter`: PYTHON_EXEC if set, else the one
/// that the launcher was installed into (packaged_python.h), else python3.
base::Result<std::vector<std::string>> worker_command(const WorkerProgram& program, int local_rank);

/// The same with the interpreter named, for tests.
base::Result<std::vector<std::string>> worker_command(const WorkerProgram& program, int local_rank,
                                                      const std::string& interpreter);

}  // namespace cohort::elastic
