#include "cohort/extras/report/events/summaries.h"

#include "cohort/base/text/utf8.h"
#include "cohort/extras/files/images/image_writer.h"

namespace cohort::report {
namespace {

// Numbers of fields and enumerations: tensorboard/compat/proto/{event,summary,tensor,types}.proto and
// tensorboard/plugins/{hparams,custom_scalar}/*.proto. Fields with default values are left out, as in Protocol Buffers.
constexpr int kDtString = 7;
constexpr int kTypeString = 1, kTypeBool = 2, kTypeFloat64 = 3;
constexpr int kSessionStart = 1;
constexpr int kStatusSuccess = 1;

using base::valid_utf8;  // Protocol Buffers refuse a message with other strings

ProtoMessage one_value(const ProtoMessage& value) { return ProtoMessage().message(1, value); }

ProtoMessage tagged(std::string_view tag) {
  return tag.empty() ? ProtoMessage() : ProtoMessage().text(1, valid_utf8(tag));
}

ProtoMessage plugin_metadata(std::string_view plugin, std::string_view content = {}) {
  ProtoMessage data;
  data.text(1, plugin);
  if (!content.empty()) data.text(2, content);
  return ProtoMessage().message(1, data);
}

ProtoMessage text_tensor(const ProtoMessage& shape, std::string_view text) {
  return ProtoMessage().integer(1, kDtString).message(2, shape).text(8, text);
}

ProtoMessage hparams_summary(std::string_view tag, const ProtoMessage& content) {
  return one_value(ProtoMessage().text(1, tag).message(9, plugin_metadata("hparams", content.bytes())));
}

int type_of(const HyperparameterValue& value) {
  if (std::holds_alternative<bool>(value)) return kTypeBool;
  return std::holds_alternative<std::string>(value) ? kTypeString : kTypeFloat64;
}

ProtoMessage value_message(const HyperparameterValue& value) {
  ProtoMessage message;
  if (const auto* truth = std::get_if<bool>(&value)) return message.integer(4, *truth);
  if (const auto* text = std::get_if<std::string>(&value)) return message.text(3, valid_utf8(*text));
  if (const auto* integer = std::get_if<int64_t>(&value)) return message.number(2, static_cast<double>(*integer));
  return message.number(2, std::get<double>(value));
}

ProtoMessage event_message(const EventHeader& header) {
  ProtoMessage event;
  if (header.wall_time != 0.0) event.number(1, header.wall_time);
  if (header.step != 0) event.integer(2, header.step);
  return event;
}

ProtoMessage chart_message(const ScalarChart& chart) {
  ProtoMessage message;
  message.text(1, valid_utf8(chart.title));
  ProtoMessage content;
  if (!chart.is_margin) {
    for (const std::string& tag : chart.tags) content.text(1, valid_utf8(tag));
    return message.message(2, content);
  }
  ProtoMessage margin;
  for (int i = 0; i < 3; ++i) margin.text(i + 1, valid_utf8(chart.tags.at(static_cast<size_t>(i))));
  content.message(1, margin);
  return message.message(3, content);
}

}  // namespace

ProtoMessage scalar_summary(std::string_view tag, double value) {
  return one_value(tagged(tag).single(2, static_cast<float>(value)));
}

ProtoMessage histogram_summary(std::string_view tag, const Histogram& histogram) {
  ProtoMessage message;
  const double figures[] = {histogram.min, histogram.max, static_cast<double>(histogram.count), histogram.sum,
                            histogram.sum_of_squares};
  for (int i = 0; i < 5; ++i) {
    if (figures[i] != 0.0) message.number(i + 1, figures[i]);
  }
  message.numbers(6, histogram.bucket_limits).numbers(7, histogram.bucket_counts);
  return one_value(tagged(tag).message(5, message));
}

base::Result<ProtoMessage> image_summary(std::string_view tag, const ImageView& image) {
  const auto png = files::encode_png(image);
  if (!png) return png.error();
  ProtoMessage message;
  message.integer(1, image.shape.height).integer(2, image.shape.width).integer(3, image.shape.channels).text(4, *png);
  return one_value(tagged(tag).message(4, message));
}

ProtoMessage text_summary(std::string_view tag, std::string_view text) {
  const ProtoMessage shape = ProtoMessage().message(2, ProtoMessage().integer(1, 1));
  return one_value(ProtoMessage()
                       .text(1, valid_utf8(tag) + "/text_summary")
                       .message(8, text_tensor(shape, valid_utf8(text)))
                       .message(9, plugin_metadata("text")));
}

ProtoMessage layout_summary(const ScalarLayout& layout) {
  ProtoMessage message;
  for (const auto& [title, charts] : layout) {
    ProtoMessage category;
    category.text(1, valid_utf8(title));
    for (const ScalarChart& chart : charts) category.message(2, chart_message(chart));
    message.message(2, category);
  }
  return one_value(ProtoMessage()
                       .text(1, "custom_scalars__config__")
                       .message(8, text_tensor({}, message.bytes()))
                       .message(9, plugin_metadata("custom_scalars")));
}

ProtoMessage experiment_summary(const HyperparameterList& values, const std::vector<std::string>& metrics) {
  ProtoMessage experiment;
  for (const auto& [name, value] : values) {
    experiment.message(4, ProtoMessage().text(1, valid_utf8(name)).integer(4, type_of(value)));
  }
  for (const std::string& name : metrics) {
    experiment.message(5, ProtoMessage().message(1, ProtoMessage().text(2, valid_utf8(name))));
  }
  return hparams_summary("_hparams_/experiment", ProtoMessage().message(2, experiment));
}

ProtoMessage session_start_summary(const HyperparameterList& values, std::optional<double> time) {
  ProtoMessage start;
  for (const auto& [name, value] : values) {
    start.message(1, ProtoMessage().text(1, valid_utf8(name)).message(2, value_message(value)));
  }
  if (time) start.number(5, *time);
  return hparams_summary("_hparams_/session_start_info", ProtoMessage().message(3, start));
}

ProtoMessage session_end_summary(std::optional<double> time) {
  ProtoMessage end;
  end.integer(1, kStatusSuccess);
  if (time) end.number(2, *time);
  return hparams_summary("_hparams_/session_end_info", ProtoMessage().message(4, end));
}

ProtoMessage summary_event(const EventHeader& header, const ProtoMessage& summary) {
  return event_message(header).message(5, summary);
}

ProtoMessage file_version_event(const EventHeader& header) { return event_message(header).text(3, "brain.Event:2"); }

ProtoMessage session_start_event(const EventHeader& header) {
  return event_message(header).message(7, ProtoMessage().integer(1, kSessionStart));
}

}  // namespace cohort::report
