// cohort-ckpt verify: checks a file, down to its checksums.
#include <fmt/format.h>

#include <filesystem>

#include "cohort/base/text/text.h"
#include "cohort/files/checkpoints/checkpoint_list.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/sources/open_source.h"
#include "cohort/files/tensors/sources/pt_checksums.h"
#include "tools/cohort-ckpt/commands.h"
#include "tools/cohort-ckpt/run_folder.h"
#include "tools/cohort-ckpt/texts.h"

namespace cohort::ckpt_cli {
namespace {

struct Verdict {
  std::string path;
  /// Empty if the file is complete and undamaged.
  std::string problem;
  /// A summary: "12 files, 1.2 GiB, all with checksums".
  std::string what = {};
};

Verdict verdict_on_checkpoint(const std::string& folder) {
  const auto manifest = files::check_checkpoint(folder, files::CheckpointCheck::kChecksums);
  if (!manifest) return {folder, manifest.error().describe()};
  return {
      folder, "",
      fmt::format("{}, {}, compared with checksums", count_text(static_cast<int64_t>(manifest->files.size()), "file"),
                  base::format_bytes(manifest->num_bytes()))};
}

Verdict verdict_on_pt(const std::string& path, const files::TensorSource& source) {
  const auto checked = files::check_pt_checksums(source.path());
  if (!checked) return {path, checked.error().describe()};
  int64_t num_bytes = 0;
  for (const auto& tensor : source.tensors()) num_bytes += tensor.num_bytes();
  return {path, "",
          fmt::format("{}, {}, {} compared with checksums",
                      count_text(static_cast<int64_t>(source.tensors().size()), "tensor"),
                      base::format_bytes(num_bytes), base::format_bytes(*checked))};
}

Verdict verdict_on_file(const std::string& path) {
  const auto source = files::open_tensor_source(path);
  if (!source) return {path, source.error().describe()};
  if ((*source)->format().starts_with("PyTorch")) return verdict_on_pt(path, **source);
  const auto report = files::verify_sharded((*source)->path());
  if (!report) return {path, report.error().describe()};
  return {
      path, "",
      fmt::format("{}, {}, {} compared with checksums", count_text(static_cast<int64_t>(report->num_tensors), "tensor"),
                  base::format_bytes(report->num_bytes), base::format_bytes(report->num_checked_bytes))};
}

base::Result<std::vector<Verdict>> verdicts_on(const std::string& path) {
  std::error_code error;  // an error here comes again, with its reason, when the file is opened
  if (std::filesystem::exists(path + "/" + files::kManifestName, error))
    return std::vector{verdict_on_checkpoint(path)};
  if (!is_run_folder(path)) return std::vector{verdict_on_file(path)};
  const auto list = files::list_checkpoints(path, files::CheckpointCheck::kSizes);
  if (!list) return list.error();
  std::vector<Verdict> verdicts;
  for (const auto& found : list->checkpoints) verdicts.push_back(verdict_on_checkpoint(path + "/" + found.name));
  return verdicts;
}

}  // namespace

int verify_command(const ReadFlags& flags) {
  int exit_code = 0;
  Json json = Json::array();
  for (const auto& path : flags.paths) {
    const auto verdicts = verdicts_on(path);
    if (!verdicts) return fail(verdicts.error(), kFault);
    for (const auto& verdict : *verdicts) {
      const bool is_whole = verdict.problem.empty();
      if (!is_whole) exit_code = kFault;
      json.push_back({{"path", verdict.path},
                      {"whole", is_whole},
                      {is_whole ? "what" : "problem", is_whole ? verdict.what : verdict.problem}});
      if (!flags.json)
        print(
            fmt::format("{}: {}\n", verdict.path, is_whole ? "whole: " + verdict.what : "damaged: " + verdict.problem));
    }
  }
  if (flags.json) print_json(json);
  return exit_code;
}

}  // namespace cohort::ckpt_cli
