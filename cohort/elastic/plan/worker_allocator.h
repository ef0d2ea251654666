/// Selects the allocator of the workers: --allocator, as variables of their environment.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::elastic {

/// Returns the folders in which PyTorch's launcher for CPUs (torch/backends/xeon/run_cpu.py) looks for libraries to preload.
std::vector<std::string> library_folders(const std::map<std::string, std::string>& environment);

/// Returns the variables for an allocator. `name` is "default" (no variables), "shared" (Cohort's own, for every
/// init_process_group), "tcmalloc" or "jemalloc". The last two are preloaded from the first of `folders` that has them, before
/// what `environment` preloads; jemalloc gets the settings of PyTorch's launcher, unless MALLOC_CONF is set. Errors name the flag
/// and say what to install.
base::Result<std::map<std::string, std::string>> allocator_variables(
    const std::string& name, const std::map<std::string, std::string>& environment,
    const std::vector<std::string>& folders);

}  // namespace cohort::elastic
