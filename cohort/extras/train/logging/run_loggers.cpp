#include "cohort/extras/train/logging/run_loggers.h"

#include <c10/util/Exception.h>

#include "cohort/base/log/log_writer.h"
#include "cohort/extras/train/logging/csv_logger.h"
#include "cohort/extras/train/logging/plot.h"
#include "cohort/extras/train/logging/summary_writer.h"
#include "cohort/train/logging/folder_loggers.h"
#include "cohort/train/logging/json_lines_logger.h"
#include "cohort/train/logging/old_logs.h"

namespace cohort::train {
namespace {

std::shared_ptr<Logger> loggers_of_trainer(const std::string& folder, int64_t first_step, bool plot) {
  return run_loggers(folder, first_step, {.plot = plot});
}

// When this library is loaded, the Trainer's log_folder gets all of these logs.
const bool is_loaded = [] {
  detail::set_folder_loggers(&loggers_of_trainer);
  base::set_log_writer(&detail::write_log_lines);
  return true;
}();

}  // namespace

std::shared_ptr<Logger> run_loggers(const std::string& folder, int64_t first_step, const RunLoggersOptions& options) {
  TORCH_CHECK_VALUE(options.json_lines || !options.plot,
                    "[cohort] run_loggers: a plot takes the curves of earlier runs from metrics.jsonl, which "
                    "json_lines = false leaves out");
  if (first_step <= 1) {
    std::vector<std::string> paths;
    for (const char* const name : {"events", "metrics.csv", "metrics.jsonl", "curves.svg", "curves.png"}) {
      paths.push_back(folder + "/" + name);
    }
    detail::keep_old_logs("run_loggers", paths);
  }
  auto loggers = std::make_shared<LoggerList>();
  if (options.tensorboard) {
    loggers->add(
        std::make_shared<TensorBoardLogger>(folder + "/events", SummaryWriterOptions{.purge_step = first_step}));
  }
  if (options.csv) {
    loggers->add(std::make_shared<CsvLogger>(folder + "/metrics.csv", LoggerOptions{.purge_step = first_step}));
  }
  const auto history = folder + "/metrics.jsonl";
  if (options.json_lines) {
    loggers->add(std::make_shared<JsonLinesLogger>(history, LoggerOptions{.purge_step = first_step}));
  }
  if (options.plot) {
    for (const char* const name : {"/curves.svg", "/curves.png"}) {
      loggers->add(
          std::make_shared<PlotLogger>(folder + name, PlotLoggerOptions{.history = history, .purge_step = first_step}));
    }
  }
  return loggers;
}

}  // namespace cohort::train
