/// SummaryWriter: writes event files for TensorBoard, as torch.utils.tensorboard.SummaryWriter, with its names.
///
///     cohort::train::SummaryWriter writer("runs/first");
///     writer.add_scalar("train/loss", loss, step);
///     writer.add_histogram("weights", model->fc->weight, step);
///     writer.close();
///
/// The folder contains events.out.tfevents.<seconds>.<host>.<pid>.<number>; only the owner can read it and its files. Records
/// wait in memory until there are max_queue of them, or until the first call after flush_secs have passed. They are written at
/// once and whole, so a killed program leaves no incomplete record.
///
/// Tensors may have any dtype and device. Defaults for steps and times: step 0, the current time.
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
  /// Appended to the folder's name if none is given.
  std::string comment = {};
  /// TensorBoard hides earlier records of this step and later ones. Use the first step that a resumed run repeats.
  std::optional<int64_t> purge_step = {};
  int64_t max_queue = 10;
  std::chrono::seconds flush_secs{120};
  std::string filename_suffix = {};
};

/// A chart of add_custom_scalars: several tags as lines, or value, lower and upper bound as a line with a band.
struct CustomChart {
  enum class Kind { kMultiline, kMargin };
  std::string title;
  Kind kind = Kind::kMultiline;
  /// For kMultiline regular expressions, for kMargin exactly three tags.
  std::vector<std::string> tags;
};
/// Categories with their charts.
using CustomLayout = std::vector<std::pair<std::string, std::vector<CustomChart>>>;

class COHORT_API SummaryWriter {
 public:
  using Step = std::optional<int64_t>;
  /// Seconds since 1970.
  using WallTime = std::optional<double>;

  /// If `log_dir` is empty: runs/<month><day>_<time>_<host><comment>, as in Python.
  explicit SummaryWriter(const std::string& log_dir = {}, const SummaryWriterOptions& options = {});
  ~SummaryWriter();
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  const std::string& get_logdir() const;

  void add_scalar(const std::string& tag, double value, Step global_step = {}, WallTime walltime = {});
  /// `value`: a tensor of one element.
  void add_scalar(const std::string& tag, const at::Tensor& value, Step global_step = {}, WallTime walltime = {});
  /// Writes each value to a folder of its own, <log_dir>/<main_tag>_<name>, so that one chart shows all.
  void add_scalars(const std::string& main_tag, const Metrics& values, Step global_step = {}, WallTime walltime = {});
  /// Uses Python's bins="tensorflow": from 1e-12 to 1e20 in steps of a tenth. Needs at least one element, all finite; max_bins as
  /// in Python.
  void add_histogram(const std::string& tag, const at::Tensor& values, Step global_step = {},
                     std::optional<int64_t> max_bins = {}, WallTime walltime = {});
  /// Takes uint8 as 0 to 255, and other dtypes as 0 to 1, with 1, 3 or 4 channels. dataformats: any order of C, H and W, or of H
  /// and W.
  void add_image(const std::string& tag, const at::Tensor& image, Step global_step = {},
                 const std::string& dataformats = "CHW", WallTime walltime = {});
  /// Puts images of 1 or 3 channels side by side, up to eight per row. dataformats: any order of N, C, H and W.
  void add_images(const std::string& tag, const at::Tensor& images, Step global_step = {},
                  const std::string& dataformats = "NCHW", WallTime walltime = {});
  /// `text`: Markdown.
  void add_text(const std::string& tag, const std::string& text, Step global_step = {}, WallTime walltime = {});
  /// Writes to the folder <log_dir>/<run_name>. If `run_name` is empty, to the current time.
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

/// A SummaryWriter with the interface of Logger. Its hyper-parameters are those of the whole run: TensorBoard's page HPARAMS
/// compares runs by them and by their logged metrics.
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
