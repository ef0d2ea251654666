/// Makes TensorBoard's messages: each function makes a Summary with one value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/images/image_format.h"
#include "cohort/extras/report/events/histogram.h"
#include "cohort/extras/report/events/proto_message.h"
#include "cohort/report/records/run_record.h"

namespace cohort::report {

using files::ImageLayout;
using files::ImageView;

/// Stored as a 32-bit number, the default of torch.utils.tensorboard.
ProtoMessage scalar_summary(std::string_view tag, double value);
ProtoMessage histogram_summary(std::string_view tag, const Histogram& histogram);
/// Stored as a PNG file.
base::Result<ProtoMessage> image_summary(std::string_view tag, const ImageView& image);
ProtoMessage text_summary(std::string_view tag, std::string_view text);

/// A chart of the page CUSTOM SCALARS: tags that are shown together.
struct ScalarChart {
  std::string title;
  /// If true, the tags are value, lower and upper bound; if false, each tag is a line.
  bool is_margin = false;
  std::vector<std::string> tags;
};
using ScalarLayout = std::vector<std::pair<std::string, std::vector<ScalarChart>>>;
ProtoMessage layout_summary(const ScalarLayout& layout);

/// The hyper-parameters and metrics that the page HPARAMS can show.
ProtoMessage experiment_summary(const HyperparameterList& values, const std::vector<std::string>& metrics);
/// The values of one run; without a time if it is absent.
ProtoMessage session_start_summary(const HyperparameterList& values, std::optional<double> time = {});
ProtoMessage session_end_summary(std::optional<double> time = {});

struct EventHeader {
  double wall_time = 0.0;  ///< seconds since 1970
  int64_t step = 0;
};
ProtoMessage summary_event(const EventHeader& header, const ProtoMessage& summary);
ProtoMessage file_version_event(const EventHeader& header);
/// Tells TensorBoard to ignore this step and later ones.
ProtoMessage session_start_event(const EventHeader& header);

}  // namespace cohort::report
