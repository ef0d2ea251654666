#include "cohort/elastic/packaged_python.h"

#include <filesystem>
#include <vector>

#include "cohort/base/process.h"

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

}  // namespace

std::optional<std::string> packaged_python(const std::string& launcher) {
  const fs::path bin = fs::path(launcher).parent_path();
  if (bin.filename() != "bin") return std::nullopt;
  std::string newest;  // python3.9 does not occur: the package needs 3.10, so text order is number order
  for (const fs::path& entry : entries(bin.parent_path() / "lib")) {
    const std::string name = entry.filename();
    if (!name.starts_with("python3.") || name <= newest) continue;
    if (has_record(entry / "site-packages") || has_record(entry / "dist-packages")) newest = name;
  }
  if (newest.empty()) return std::nullopt;
  if (const std::string beside = bin / newest; base::find_program(beside)) return beside;
  if (base::find_program(newest)) return newest;
  return std::nullopt;
}

}  // namespace cohort::elastic
