// cohort-ckpt show: prints values, and statistics of tensors.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cohort/base/text/text.h"
#include "cohort/files/tensors/elements/elements.h"
#include "cohort/files/tensors/elements/plain_json.h"
#include "cohort/files/tensors/sources/open_source.h"
#include "cohort/files/tensors/sources/tensor_statistics.h"
#include "tools/cohort-ckpt/commands.h"
#include "tools/cohort-ckpt/texts.h"

namespace cohort::ckpt_cli {
namespace {

using files::TensorSource;

Json json_of_value(const base::PickleValue& value) {
  const auto json = files::plain_json(value);
  return json ? Json::parse(json->dump(-1, ' ', false, files::Json::error_handler_t::replace))
              : Json(value_text(value));
}

base::Error unknown_name(const TensorSource& source, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& tensor : source.tensors()) names.push_back(tensor.name);
  for (const auto& entry : source.contents().values) names.push_back(entry.name);
  return base::Error(fmt::format("\"{}\" has no tensor or value \"{}\"{}", source.path(), name,
                                 base::did_you_mean(name, names)))
      .with_hint(fmt::format("run cohort ckpt ls {} to list the tensors", source.path()));
}

base::Result<std::vector<double>> first_numbers(const TensorSource& source, size_t tensor, int64_t count) {
  const auto& info = source.tensors()[tensor];
  std::vector<char> bytes(std::min(count, info.num_elements()) * files::info_of(info.dtype).size);
  std::vector<double> numbers;
  if (auto read = source.read(tensor, 0, bytes); !read) return read.error();
  files::append_numbers(info.dtype, {bytes.data(), bytes.size()}, numbers);
  return numbers;
}

// Keeps integers as integers.
Json json_element(const files::TensorInfo& info, double number) {
  return files::is_inexact(info.dtype) ? json_number(number) : Json(static_cast<int64_t>(number));
}

Json json_of(const files::TensorInfo& info, const files::TensorStatistics& statistics,
             const std::vector<double>& numbers) {
  Json json{{"name", info.name},
            {"dtype", files::info_of(info.dtype).torch_name},
            {"shape", info.shape},
            {"min", json_element(info, statistics.min)},
            {"max", json_element(info, statistics.max)},
            {"mean", json_number(statistics.mean)},
            {"norm", json_number(statistics.norm)},
            {"num_nan", statistics.num_nan},
            {"num_infinite", statistics.num_infinite}};
  if (!numbers.empty()) {
    json["elements"] = Json::array();
    for (const double number : numbers) json["elements"].push_back(json_element(info, number));
  }
  return json;
}

std::string text_of(const files::TensorInfo& info, const files::TensorStatistics& statistics,
                    const std::vector<double>& numbers) {
  std::string text =
      fmt::format("{}: {} {}\n", name_text(info.name), files::info_of(info.dtype).torch_name, shape_text(info.shape));
  text += fmt::format("  min {}, max {}, mean {}, norm {}", number_text(statistics.min), number_text(statistics.max),
                      number_text(statistics.mean), number_text(statistics.norm));
  if (statistics.num_nan > 0) text += fmt::format(", {} NaN", statistics.num_nan);
  if (statistics.num_infinite > 0) text += fmt::format(", {} infinite", statistics.num_infinite);
  text += "\n";
  if (numbers.empty()) return text;
  text += "  [";
  const size_t step = files::components_of(info.dtype);
  for (size_t i = 0; i < numbers.size(); i += step) {
    text += i > 0 ? ", " : "";
    text += step == 1 ? number_text(numbers[i]) : fmt::format("{}{:+.6g}j", number_text(numbers[i]), numbers[i + 1]);
  }
  const bool is_all = static_cast<int64_t>(numbers.size() / step) == info.num_elements();
  return text + (is_all ? "]\n" : ", ...]\n");
}

base::Result<Json> show_tensor(const TensorSource& source, size_t tensor, const ShowFlags& flags) {
  const auto statistics = files::statistics_of(source, tensor);
  if (!statistics) return statistics.error();
  const auto numbers = first_numbers(source, tensor, flags.elements);
  if (!numbers) return numbers.error();
  if (!flags.json) print(text_of(source.tensors()[tensor], *statistics, *numbers));
  return json_of(source.tensors()[tensor], *statistics, *numbers);
}

Json show_value(const files::PlainEntry& entry, bool json) {
  if (!json) print(fmt::format("{} = {}\n", name_text(entry.name), value_text(entry.value)));
  return {{"name", entry.name}, {"value", json_of_value(entry.value)}};
}

base::Result<Json> show_name(const TensorSource& source, const std::string& name, const ShowFlags& flags) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    if (source.tensors()[i].name == name) return show_tensor(source, i, flags);
  }
  for (const auto& entry : source.contents().values) {
    if (entry.name == name) return show_value(entry, flags.json);
  }
  return unknown_name(source, name);
}

void show_everything(const TensorSource& source, bool json) {
  Json shown{{"path", source.path()}, {"format", source.format()}, {"metadata", source.contents().metadata}};
  shown["values"] = Json::array();
  if (!json) {
    print(fmt::format("{}: {}, {}\n", source.path(), source.format(),
                      count_text(static_cast<int64_t>(source.tensors().size()), "tensor")));
    for (const auto& [key, text] : source.contents().metadata) print(fmt::format("{}: {}\n", key, text));
  }
  for (const auto& entry : source.contents().values) shown["values"].push_back(show_value(entry, json));
  if (json) print_json(shown);
}

}  // namespace

int show_command(const ShowFlags& flags) {
  const auto source = files::open_tensor_source(flags.path);
  if (!source) return fail(source.error(), kFault);
  if (flags.names.empty()) {
    show_everything(**source, flags.json);
    return 0;
  }
  Json all = Json::array();
  for (const auto& name : flags.names) {
    auto shown = show_name(**source, name, flags);
    if (!shown) return fail(shown.error(), kFault);
    all.push_back(std::move(*shown));
  }
  if (flags.json) print_json(all);
  return 0;
}

}  // namespace cohort::ckpt_cli
