// cohort-ckpt ls: lists the content of a file, or of a run's folder.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/text/text.h"
#include "cohort/files/checkpoints/checkpoint_list.h"
#include "cohort/files/tensors/sources/open_source.h"
#include "tools/cohort-ckpt/commands.h"
#include "tools/cohort-ckpt/run_folder.h"
#include "tools/cohort-ckpt/texts.h"

namespace cohort::ckpt_cli {
namespace {

Json json_of_run(const std::string& path, const files::CheckpointList& list) {
  Json json{{"path", path}, {"format", "checkpoints of a run"}};
  json["checkpoints"] = Json::array();
  for (const auto& found : list.checkpoints) {
    Json item{{"name", found.name}, {"step", found.step}, {"whole", found.manifest.has_value()}};
    if (found.manifest) {
      item["saved_at"] = found.manifest->saved_at;
      item["num_bytes"] = found.manifest->num_bytes();
      item["num_files"] = found.manifest->files.size();
      item["num_ranks"] = found.manifest->num_ranks;
      if (found.manifest->metric) item["metric"] = *found.manifest->metric;
      item["metadata"] = found.manifest->metadata;
    } else {
      item["problem"] = found.problem;
    }
    json["checkpoints"].push_back(std::move(item));
  }
  json["temporary"] = list.temporary;
  return json;
}

std::string text_of_run(const std::string& path, const files::CheckpointList& list) {
  std::vector<std::vector<std::string>> rows{{"checkpoint", "step", "saved", "size", "ranks", "metric", "state"}};
  for (const auto& found : list.checkpoints) {
    const auto& manifest = found.manifest;
    rows.push_back({found.name, std::to_string(found.step), manifest ? time_text(manifest->saved_at) : "-",
                    manifest ? base::format_bytes(manifest->num_bytes()) : "-",
                    manifest ? std::to_string(manifest->num_ranks) : "-",
                    manifest && manifest->metric ? number_text(*manifest->metric) : "-",
                    manifest ? "whole" : "damaged: " + found.problem});
  }
  std::string text = fmt::format("{}: {}\n\n{}", path,
                                 count_text(static_cast<int64_t>(list.checkpoints.size()), "checkpoint"), table(rows));
  for (const auto& name : list.temporary) text += fmt::format("{}: a save that is running, or was interrupted\n", name);
  return text;
}

Json json_of_file(const files::TensorSource& source) {
  Json json{{"path", source.path()}, {"format", source.format()}};
  json["tensors"] = Json::array();
  int64_t num_bytes = 0;
  for (const auto& tensor : source.tensors()) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", files::info_of(tensor.dtype).torch_name},
                               {"shape", tensor.shape},
                               {"num_bytes", tensor.num_bytes()}});
    num_bytes += tensor.num_bytes();
  }
  json["num_bytes"] = num_bytes;
  json["values"] = Json::array();
  for (const auto& entry : source.contents().values) json["values"].push_back(entry.name);
  json["metadata"] = source.contents().metadata;
  return json;
}

std::string text_of_file(const files::TensorSource& source) {
  std::vector<std::vector<std::string>> rows{{"name", "dtype", "shape", "size"}};
  int64_t num_bytes = 0, num_elements = 0;
  for (const auto& tensor : source.tensors()) {
    rows.push_back({name_text(tensor.name), std::string(files::info_of(tensor.dtype).torch_name),
                    shape_text(tensor.shape), base::format_bytes(tensor.num_bytes())});
    num_bytes += tensor.num_bytes();
    num_elements += tensor.num_elements();
  }
  const auto num_tensors = static_cast<int64_t>(source.tensors().size());
  std::string text = fmt::format("{}: {}\n", source.path(), source.format());
  if (num_tensors > 0) text += "\n" + table(rows);
  text += fmt::format("\n{}, {}, {}", count_text(num_tensors, "tensor"), count_text(num_elements, "element"),
                      base::format_bytes(num_bytes));
  const auto num_values = static_cast<int64_t>(source.contents().values.size());
  if (num_values > 0) text += fmt::format("; {} (see show)", count_text(num_values, "other value"));
  return text + "\n";
}

// Prints the content, or returns an error.
base::Result<void> list_one(const std::string& path, bool json, bool is_first) {
  if (is_run_folder(path)) {
    const auto list = files::list_checkpoints(path, files::CheckpointCheck::kSizes);
    if (!list) return list.error();
    json ? print_json(json_of_run(path, *list)) : print((is_first ? "" : "\n") + text_of_run(path, *list));
    return {};
  }
  const auto source = files::open_tensor_source(path);
  if (!source) return source.error();
  json ? print_json(json_of_file(**source)) : print((is_first ? "" : "\n") + text_of_file(**source));
  return {};
}

}  // namespace

int list_command(const ReadFlags& flags) {
  int exit_code = 0;
  for (const auto& path : flags.paths) {
    const auto listed = list_one(path, flags.json, path == flags.paths.front());
    if (!listed) exit_code = fail(listed.error(), kFault);
  }
  return exit_code;
}

}  // namespace cohort::ckpt_cli
