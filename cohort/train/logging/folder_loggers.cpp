#include "cohort/train/logging/folder_loggers.h"

#include <c10/util/Exception.h>

#include <atomic>

#include "cohort/base/log/log_writer.h"
#include "cohort/train/logging/json_lines_logger.h"

namespace cohort::train::detail {
namespace {

std::atomic<FolderLoggers> extras_loggers{nullptr};

}  // namespace

void set_folder_loggers(FolderLoggers make) { extras_loggers.store(make); }

std::shared_ptr<Logger> folder_loggers(const std::string& folder, int64_t first_step, bool plot) {
  if (const FolderLoggers make = extras_loggers.load()) return make(folder, first_step, plot);
  TORCH_CHECK_VALUE(
      !plot,
      "[cohort] Trainer: plot = true needs Cohort's extras; link the program with cohort::extras, or leave "
      "it out");
  return std::make_shared<JsonLinesLogger>(folder + "/metrics.jsonl", LoggerOptions{.purge_step = first_step});
}

void write_log_lines(std::string_view lines) { base::write_log_lines(lines); }

}  // namespace cohort::train::detail
