/// SummaryWriter: event files that TensorBoard shows, as torch.utils.tensorboard.SummaryWriter writes them, with its names.
///
///     cohort::train::SummaryWriter writer("runs/first");
///     writer.add_scalar("train/loss", loss, step);
///     writer.add_histogram("weights", model->fc->weight, step);
///     writer.close();
///
/// The folder holds events.out.tfevents.<seconds>.<host>.<pid>.<number>; it and the files in it can be read by their owner only.
/// Records wait in memory until there are max_queue of them or flush_secs have passed, which the next call finds out; they are
/// written whole, in one write, so a killed program leaves no half of one.
///
/// Tensors may be of any dtype and on any device. Steps and times that are not given: step 0, the present time.
/// Errors: c10::ValueError for arguments; c10::Error for files. The destructor closes and warns instead of throwing.
/// Thread-safety: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/logging/logger.h"

namespace cohort::train {

struct SummaryWriterOptions {
  /// Appended to the folder's name where none is given.
  std::string comment = {};
  /// TensorBoard hides what was written before for this step and later ones: the first step that a resumed run makes again.
  std::optional<int64_t> purge_step = {};
  int64_t max_queue = 10;
  std::chrono::seconds flush_secs{120};
  std::string filename_suffix = {};
};

/// One chart of add_custom_scalars: several tags as lines, or value, lower and upper as a line with a band.
struct CustomChart {
  enum class Kind { kMultiline, kMargin };
  std::string title;
  Kind kind = Kind::kMultiline;
  /// kMultiline: regular expressions; kMargin: exactly three tags.
  std::vector<std::string> tags;
};
/// Categories, each with its charts.
using CustomLayout = std::vector<std::pair<std::string, std::vector<CustomChart>>>;

class COHORT_API SummaryWriter {
 public:
  using Step = std::optional<int64_t>;
  /// Seconds since 1970.
  using WallTime = std::optional<double>;

  /// "": runs/<month><day>_<time>_<host><comment>, as in Python.
  explicit SummaryWriter(const std::string& log_dir = {}, const SummaryWriterOptions& options = {});
  ~SummaryWriter();
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  const std::string& get_logdir() const;

  void add_scalar(const std::string& tag, double value, Step global_step = {}, WallTime walltime = {});
  /// A tensor of one element.
  void add_scalar(const std::string& tag, const at::Tensor& value, Step global_step = {}, WallTime walltime = {});
  /// Each in a folder of its own, <log_dir>/<main_tag>_<name>, so that one chart shows all.
  void add_scalars(const std::string& main_tag, const Metrics& values, Step global_step = {}, WallTime walltime = {});
  /// Python's bins="tensorflow": from 1e-12 to 1e20 in steps of a tenth. At least one element, all finite; max_bins as there.
  void add_histogram(const std::string& tag, const at::Tensor& values, Step global_step = {},
                     std::optional<int64_t> max_bins = {}, WallTime walltime = {});
  /// uint8 is 0 to 255; anything else 0 to 1. 1, 3 or 4 channels; dataformats: any order of C, H and W, or of H and W.
  void add_image(const std::string& tag, const at::Tensor& image, Step global_step = {},
                 const std::string& dataformats = "CHW", WallTime walltime = {});
  /// 1 or 3 channels, side by side, up to eight in a row. dataformats: any order of N, C, H and W.
  void add_images(const std::string& tag, const at::Tensor& images, Step global_step = {},
                  const std::string& dataformats = "NCHW", WallTime walltime = {});
  /// Markdown.
  void add_text(const std::string& tag, const std::string& text, Step global_step = {}, WallTime walltime = {});
  /// In the folder <log_dir>/<run_name>; "": the present time.
  void add_hparams(const Hyperparameters& hyperparameters, const Metrics& metrics, const std::string& run_name = {},
                   Step global_step = {});
  void add_custom_scalars(const CustomLayout& layout);

  void flush();
  void close();

 private:
  friend class TensorBoardLogger;
  class Files;
  std::unique_ptr<Files> files_;
};

/// A SummaryWriter behind the interface of all loggers. Hyper-parameters are those of the whole run: TensorBoard's page HPARAMS
/// compares runs by them and by the metrics that they log.
class COHORT_API TensorBoardLogger : public Logger {
 public:
  explicit TensorBoardLogger(const std::string& log_dir, const SummaryWriterOptions& options = {});
  ~TensorBoardLogger() override;
  SummaryWriter& writer() { return writer_; }
  void log_hyperparameters(const Hyperparameters& values) override;
  void log_metrics(int64_t step, const Metrics& values) override;
  void flush() override;
  void close() override;

 private:
  SummaryWriter writer_;
  bool has_session_ = false;
};

}  // namespace cohort::train
