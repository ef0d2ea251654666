#include "cohort/elastic/plan/worker_allocator.h"

#include <fmt/format.h>

#include <filesystem>

#include "cohort/base/text/text.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

struct Preloaded {
  const char* name;
  std::vector<std::string> files;
  const char* package;
};

// Debian's packages have no plain ".so"; only the development packages have it.
const std::vector<Preloaded>& preloaded_allocators() {
  static const std::vector<Preloaded> all = {
      {"tcmalloc",
       {"libtcmalloc.so", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc_minimal.so.4"},
       "libtcmalloc-minimal4"},
      {"jemalloc", {"libjemalloc.so", "libjemalloc.so.2"}, "libjemalloc2"}};
  return all;
}

std::string find_library(const std::vector<std::string>& files, const std::vector<std::string>& folders) {
  std::error_code ignored;
  for (const auto& folder : folders) {
    for (const auto& file : files) {
      if (std::filesystem::exists(folder + "/" + file, ignored)) return folder + "/" + file;
    }
  }
  return "";
}

std::string value_of(const std::map<std::string, std::string>& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace

std::vector<std::string> library_folders(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> folders;
  for (const char* prefix : {"CONDA_PREFIX", "VIRTUAL_ENV"}) {
    if (const auto folder = value_of(environment, prefix); !folder.empty()) folders.push_back(folder + "/lib");
  }
  if (const auto home = value_of(environment, "HOME"); !home.empty()) folders.push_back(home + "/.local/lib");
  for (const char* folder : {"/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64",
                             "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"}) {
    folders.emplace_back(folder);
  }
  return folders;
}

Result<std::map<std::string, std::string>> allocator_variables(const std::string& name,
                                                               const std::map<std::string, std::string>& environment,
                                                               const std::vector<std::string>& folders) {
  std::map<std::string, std::string> variables;
  if (name == "default") return variables;
  if (name == "shared") {
    variables["COHORT_SHARED_ALLOCATOR"] = "1";
    return variables;
  }
  std::vector<std::string> names = {"default", "shared"};
  for (const auto& allocator : preloaded_allocators()) {
    names.emplace_back(allocator.name);
    if (name != allocator.name) continue;
    const auto library = find_library(allocator.files, folders);
    if (library.empty()) {
      return Error(fmt::format("--allocator={}: there is no {} in {}", name, base::join(allocator.files, " or "),
                               base::join(folders, ", ")))
          .with_hint(fmt::format("install it (Debian's package is {}), or set LD_PRELOAD yourself", allocator.package));
    }
    const auto earlier = value_of(environment, "LD_PRELOAD");
    variables["LD_PRELOAD"] = earlier.empty() ? library : library + ":" + earlier;
    if (name == "jemalloc" && !environment.contains("MALLOC_CONF")) {
      variables["MALLOC_CONF"] = "oversize_threshold:1,background_thread:true,metadata_thp:auto";
    }
    return variables;
  }
  return Error(fmt::format("--allocator={} must be one of {}{}", name, base::join(names, ", "),
                           base::did_you_mean(name, names)));
}

}  // namespace cohort::elastic
