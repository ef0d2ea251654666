// cohort-ckpt diff: shows the differences of two files.
#include <fmt/format.h>

#include "cohort/files/tensors/sources/open_source.h"
#include "cohort/files/tensors/sources/source_comparison.h"
#include "tools/cohort-ckpt/commands.h"
#include "tools/cohort-ckpt/texts.h"

namespace cohort::ckpt_cli {
namespace {

using files::SourceComparison;
using files::TensorPair;

std::string dtype_text(const files::TensorInfo& info) { return std::string(files::info_of(info.dtype).torch_name); }

std::string text_of_pair(const TensorPair& pair) {
  std::string text = name_text(pair.first.name) + ":";
  if (!pair.same_shape()) {
    return text + fmt::format(" shape {} and {}\n", shape_text(pair.first.shape), shape_text(pair.second.shape));
  }
  if (!pair.same_dtype()) text += fmt::format(" {} and {};", dtype_text(pair.first), dtype_text(pair.second));
  return text + fmt::format(" {} of {} elements differ, by at most {}\n", pair.num_different, pair.first.num_elements(),
                            number_text(pair.max_difference));
}

std::string text_of(const SourceComparison& comparison, const DiffFlags& flags) {
  std::string text;
  for (const auto& name : comparison.only_in_first)
    text += fmt::format("{}: only in {}\n", name_text(name), flags.first);
  for (const auto& name : comparison.only_in_second)
    text += fmt::format("{}: only in {}\n", name_text(name), flags.second);
  for (const auto& pair : comparison.tensors) text += text_of_pair(pair);
  for (const auto& pair : comparison.values)
    text += fmt::format("{}: {} and {}\n", name_text(pair.name), pair.first, pair.second);
  return text + (comparison.num_same == 1 ? "1 entry alike\n" : fmt::format("{} entries alike\n", comparison.num_same));
}

Json json_of(const SourceComparison& comparison) {
  Json json{{"same", comparison.is_same()},
            {"num_same", comparison.num_same},
            {"only_in_first", comparison.only_in_first},
            {"only_in_second", comparison.only_in_second}};
  json["tensors"] = Json::array();
  for (const auto& pair : comparison.tensors) {
    json["tensors"].push_back({{"name", pair.first.name},
                               {"shapes", {pair.first.shape, pair.second.shape}},
                               {"dtypes", {dtype_text(pair.first), dtype_text(pair.second)}},
                               {"num_different", pair.num_different},
                               {"max_difference", json_number(pair.max_difference)}});
  }
  json["values"] = Json::array();
  for (const auto& pair : comparison.values) {
    json["values"].push_back({{"name", pair.name}, {"first", pair.first}, {"second", pair.second}});
  }
  return json;
}

// Removes differences up to `tolerance`.
void forgive(SourceComparison& comparison, double tolerance) {
  const auto is_forgiven = [&](const TensorPair& pair) {
    return pair.same_shape() && pair.same_dtype() && pair.num_not_finite == 0 && pair.max_difference <= tolerance;
  };
  comparison.num_same += static_cast<int64_t>(std::erase_if(comparison.tensors, is_forgiven));
}

}  // namespace

int diff_command(const DiffFlags& flags) {
  const auto first = files::open_tensor_source(flags.first);
  if (!first) return fail(first.error(), kUsageError);
  const auto second = files::open_tensor_source(flags.second);
  if (!second) return fail(second.error(), kUsageError);
  auto comparison = files::compare_sources(**first, **second);
  if (!comparison) return fail(comparison.error(), kUsageError);
  if (flags.tolerance > 0) forgive(*comparison, flags.tolerance);
  flags.json ? print_json(json_of(*comparison)) : print(text_of(*comparison, flags));
  return comparison->is_same() ? 0 : kFault;
}

}  // namespace cohort::ckpt_cli
