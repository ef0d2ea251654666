#include "cohort/elastic/plan/packaged_python.h"

#include <filesystem>
#include <vector>

#include "cohort/base/process/process.h"

namespace cohort::elastic {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    found.push_back(entry->path());
  }
  return found;
}

bool has_record(const fs::path& packages) {
  for (const fs::path& entry : entries(packages)) {
    const std::string name = entry.filename();
    if (name.starts_with("torchcohort-") && name.ends_with(".dist-info")) return true;
  }
  return false;
}

// Finds the packages of the newest Python that has torchcohort: lib/python3.11/site-packages beside bin/cohort. Empty if absent.
fs::path packages_beside(const std::string& launcher) {
  const fs::path bin = fs::path(launcher).parent_path();
  if (bin.filename() != "bin") return {};
  std::string newest;  // python3.9 does not occur: the package needs 3.10, so names sort by version
  fs::path found;
  for (const fs::path& entry : entries(bin.parent_path() / "lib")) {
    const std::string name = entry.filename();
    if (!name.starts_with("python3.") || name <= newest) continue;
    for (const char* packages : {"dist-packages", "site-packages"}) {
      if (!has_record(entry / packages)) continue;
      newest = name;
      found = entry / packages;
    }
  }
  return found;
}

}  // namespace

std::optional<std::string> packaged_python(const std::string& launcher) {
  const fs::path packages = packages_beside(launcher);
  if (packages.empty()) return std::nullopt;
  std::string name = packages.parent_path().filename();
  if (std::string beside = fs::path(launcher).parent_path() / name; base::find_program(beside)) return beside;
  if (base::find_program(name)) return name;
  return std::nullopt;
}

std::optional<std::string> packaged_program(const std::string& launcher, const std::string& program) {
  const fs::path packages = packages_beside(launcher);
  if (packages.empty()) return std::nullopt;
  std::string path = packages / "torchcohort/bin" / program;
  if (!base::find_program(path)) return std::nullopt;
  return path;
}

}  // namespace cohort::elastic
