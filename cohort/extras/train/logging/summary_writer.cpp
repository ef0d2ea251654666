#include "cohort/extras/train/logging/summary_writer.h"

#include <c10/util/Exception.h>

#include <ctime>
#include <map>
#include <span>

#include "cohort/base/system/host.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/report/events/event_file.h"
#include "cohort/extras/report/events/summaries.h"
#include "cohort/extras/train/logging/image_tensors.h"
#include "cohort/train/logging/close_quietly.h"

namespace cohort::train {
namespace {

constexpr const char* kSummaryWriter = "SummaryWriter";

std::string default_folder(const std::string& comment) {
  const std::time_t now = std::time(nullptr);
  struct tm local {};
  char text[32];
  std::strftime(text, sizeof text, "%b%d_%H-%M-%S", ::localtime_r(&now, &local));
  return "runs/" + std::string(text) + "_" + base::host_name() + comment;
}

report::ProtoMessage image_summary_of(const std::string& tag, const at::Tensor& picture) {
  const auto side = [&](int64_t dim) { return static_cast<uint32_t>(picture.size(dim)); };
  const report::ImageView view{
      picture.const_data_ptr<uint8_t>(), {side(0), side(1), side(2)}, report::ImageLayout::kInterleaved};
  return comm::or_throw(report::image_summary(tag, view), kSummaryWriter);
}

}  // namespace

// The event file of the run's folder, and the files of the folders that add_scalars makes.
class SummaryWriter::Files {
 public:
  Files(std::string folder, SummaryWriterOptions options) : folder_(std::move(folder)), options_(std::move(options)) {
    open("", options_.purge_step);
  }

  const std::string& folder() const { return folder_; }

  void add(const report::ProtoMessage& summary, Step step, WallTime time, const std::string& subfolder = "") {
    const report::EventHeader header{.wall_time = time.value_or(report::wall_time_now()), .step = step.value_or(0)};
    auto found = files_.find(subfolder);
    // The file is closed, or does not exist yet. As in Python the writer continues in a new file.
    if (found == files_.end()) found = open(subfolder, std::nullopt);
    comm::or_throw(found->second.add(report::summary_event(header, summary)), kSummaryWriter);
  }

  void flush() {
    for (auto& [name, file] : files_) comm::or_throw(file.flush(), kSummaryWriter);
  }

  // Closes every file, even if one cannot be written.
  void close() {
    std::map<std::string, report::EventFile> files;
    files.swap(files_);
    base::Result<void> result;
    for (auto& [name, file] : files) {
      if (auto flushed = file.flush(); !flushed) result = flushed.error();
    }
    comm::or_throw(std::move(result), kSummaryWriter);
  }

 private:
  std::map<std::string, report::EventFile>::iterator open(const std::string& subfolder, std::optional<int64_t> purge) {
    const report::EventFileOptions options{.max_queue = options_.max_queue,
                                           .flush_interval = options_.flush_secs,
                                           .filename_suffix = options_.filename_suffix,
                                           .purge_step = purge};
    const std::string path = subfolder.empty() ? folder_ : folder_ + "/" + subfolder;
    return files_.emplace(subfolder, comm::or_throw(report::EventFile::create(path, options), kSummaryWriter)).first;
  }

  std::string folder_;
  SummaryWriterOptions options_;
  std::map<std::string, report::EventFile> files_;
};

SummaryWriter::SummaryWriter(const std::string& log_dir, const SummaryWriterOptions& options) {
  TORCH_CHECK_VALUE(options.max_queue > 0, "[cohort] SummaryWriter: max_queue is at least 1, but got ",
                    options.max_queue);
  TORCH_CHECK_VALUE(options.filename_suffix.find('/') == std::string::npos,
                    "[cohort] SummaryWriter: filename_suffix ends the name of a file and has no \"/\", but got \"",
                    options.filename_suffix, "\"");
  files_ = std::make_unique<Files>(log_dir.empty() ? default_folder(options.comment) : log_dir, options);
}

SummaryWriter::~SummaryWriter() {
  detail::close_quietly([this] { close(); });
}

const std::string& SummaryWriter::get_logdir() const { return files_->folder(); }

void SummaryWriter::add_scalar(const std::string& tag, double value, Step global_step, WallTime walltime) {
  files_->add(report::scalar_summary(tag, value), global_step, walltime);
}

void SummaryWriter::add_scalar(const std::string& tag, const at::Tensor& value, Step global_step, WallTime walltime) {
  TORCH_CHECK_VALUE(value.numel() == 1, "[cohort] SummaryWriter.add_scalar: \"", tag,
                    "\" must be one number, but the tensor has the shape ", value.sizes());
  add_scalar(tag, value.detach().to(at::kDouble).item<double>(), global_step, walltime);
}

void SummaryWriter::add_scalars(const std::string& main_tag, const Metrics& values, Step global_step,
                                WallTime walltime) {
  std::string prefix = main_tag;
  for (char& letter : prefix) letter = letter == '/' ? '_' : letter;
  const double time = walltime.value_or(report::wall_time_now());
  for (const auto& [name, value] : values) {
    files_->add(report::scalar_summary(main_tag, value), global_step, time, prefix + "_" + name);
  }
}

void SummaryWriter::add_histogram(const std::string& tag, const at::Tensor& values, Step global_step,
                                  std::optional<int64_t> max_bins, WallTime walltime) {
  TORCH_CHECK_VALUE(values.numel() > 0, "[cohort] SummaryWriter.add_histogram: \"", tag, "\" has no elements");
  TORCH_CHECK_VALUE(!max_bins || *max_bins > 0,
                    "[cohort] SummaryWriter.add_histogram: max_bins is at least 1, but got ", max_bins.value_or(0));
  const at::Tensor numbers = values.detach().to(at::kCPU, at::kDouble).contiguous();
  const std::span<const double> all(numbers.const_data_ptr<double>(), static_cast<size_t>(numbers.numel()));
  const report::Histogram histogram =
      comm::or_throw_value(report::make_histogram(all, report::default_bin_edges(), max_bins),
                           "SummaryWriter.add_histogram: \"" + tag + "\"");
  files_->add(report::histogram_summary(tag, histogram), global_step, walltime);
}

void SummaryWriter::add_image(const std::string& tag, const at::Tensor& image, Step global_step,
                              const std::string& dataformats, WallTime walltime) {
  files_->add(image_summary_of(tag, detail::picture_of(image, dataformats)), global_step, walltime);
}

void SummaryWriter::add_images(const std::string& tag, const at::Tensor& images, Step global_step,
                               const std::string& dataformats, WallTime walltime) {
  files_->add(image_summary_of(tag, detail::picture_of_all(images, dataformats)), global_step, walltime);
}

void SummaryWriter::add_text(const std::string& tag, const std::string& text, Step global_step, WallTime walltime) {
  files_->add(report::text_summary(tag, text), global_step, walltime);
}

void SummaryWriter::add_hparams(const Hyperparameters& hyperparameters, const Metrics& metrics,
                                const std::string& run_name, Step global_step) {
  const std::string name = run_name.empty() ? std::to_string(report::wall_time_now()) : run_name;
  std::vector<std::string> names;
  for (const auto& [metric, value] : metrics) names.push_back(metric);
  SummaryWriter run(get_logdir() + "/" + name);
  run.files_->add(report::experiment_summary(hyperparameters, names), global_step, {});
  run.files_->add(report::session_start_summary(hyperparameters), global_step, {});
  run.files_->add(report::session_end_summary(), global_step, {});
  for (const auto& [metric, value] : metrics) run.add_scalar(metric, value, global_step);
  run.close();
}

void SummaryWriter::add_custom_scalars(const CustomLayout& layout) {
  report::ScalarLayout plain;
  for (const auto& [category, charts] : layout) {
    plain.emplace_back(category, std::vector<report::ScalarChart>());
    for (const CustomChart& chart : charts) {
      const bool is_margin = chart.kind == CustomChart::Kind::kMargin;
      TORCH_CHECK_VALUE(!is_margin || chart.tags.size() == 3, "[cohort] SummaryWriter.add_custom_scalars: the chart \"",
                        chart.title, "\" shows a margin and needs three tags (value, lower, upper), but has ",
                        chart.tags.size());
      plain.back().second.push_back({chart.title, is_margin, chart.tags});
    }
  }
  files_->add(report::layout_summary(plain), {}, {});
}

void SummaryWriter::flush() { files_->flush(); }
void SummaryWriter::close() { files_->close(); }

TensorBoardLogger::TensorBoardLogger(const std::string& log_dir, const SummaryWriterOptions& options)
    : writer_(log_dir, options) {}

TensorBoardLogger::~TensorBoardLogger() {
  detail::close_quietly([this] { close(); });
}

void TensorBoardLogger::log_hyperparameters(const Hyperparameters& values) {
  writer_.files_->add(report::session_start_summary(values, report::wall_time_now()), {}, {});
  has_session_ = true;
}

void TensorBoardLogger::log_metrics(int64_t step, const Metrics& values) {
  TORCH_CHECK_VALUE(step >= 0, "[cohort] TensorBoardLogger: a step is not negative, but got ", step);
  const double time = report::wall_time_now();
  for (const auto& [name, value] : values) writer_.add_scalar(name, value, step, time);
}

void TensorBoardLogger::flush() { writer_.flush(); }

void TensorBoardLogger::close() {
  if (has_session_) writer_.files_->add(report::session_end_summary(report::wall_time_now()), {}, {});
  has_session_ = false;
  writer_.close();
}

}  // namespace cohort::train
