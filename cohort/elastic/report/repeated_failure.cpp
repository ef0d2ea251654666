#include "cohort/elastic/report/repeated_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace cohort::elastic {
namespace {

/// Programs load libraries, meet and build models before they detect such an error.
constexpr std::chrono::seconds kEarly{30};
constexpr int kUsageError = 2;
constexpr std::string_view kLibTorch = "c10::";
constexpr std::string_view kKinds[] = {
    "ValueError",  "TypeError",        "NotImplementedError", "ImportError",    "ModuleNotFoundError",
    "SyntaxError", "IndentationError", "NameError",           "AttributeError", "std::invalid_argument"};

}  // namespace

bool is_of_the_program(const WorkerFailure& failure) {
  if (failure.error.empty()) return failure.status.code == kUsageError;
  // Parses "c10::ValueError: [cohort] Trainer: ..." or "ValueError: ...".
  std::string_view kind = std::string_view(failure.error).substr(0, failure.error.find(": "));
  if (kind.starts_with(kLibTorch)) kind.remove_prefix(kLibTorch.size());
  return std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
}

bool RepeatedFailure::is_it(const WorkerFailure& failure, std::chrono::steady_clock::duration age) {
  const bool counts = age < kEarly && is_of_the_program(failure);
  std::string now = counts ? fmt::format("{}: {}", failure.status.describe(), failure.error) : "";
  const bool is_again = counts && now == last_;
  last_ = std::move(now);
  return is_again;
}

}  // namespace cohort::elastic
