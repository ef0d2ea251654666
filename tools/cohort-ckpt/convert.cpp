// cohort-ckpt convert, average, consolidate: make files and folders of tensors from others.
#include <fmt/format.h>

#include <filesystem>

#include "cohort/files/tensors/dcp/dcp_folder.h"
#include "cohort/files/tensors/dcp/pt_checkpoint.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/sources/average_source.h"
#include "cohort/files/tensors/sources/open_source.h"
#include "cohort/files/tensors/sources/write_source.h"
#include "tools/cohort-ckpt/commands.h"
#include "tools/cohort-ckpt/texts.h"

namespace cohort::ckpt_cli {
namespace {

using files::TensorSource;

enum class Target { kPt, kSafetensors, kFolder };

Target target_of(const std::string& path) {
  for (const char* ending : {".pt", ".pth", ".bin"}) {
    if (path.ends_with(ending)) return Target::kPt;
  }
  return path.ends_with(".safetensors") ? Target::kSafetensors : Target::kFolder;
}

base::Result<void> check_target(const ConvertFlags& flags) {
  std::error_code error;  // an error here comes again, with its reason, when the file is written
  if (!std::filesystem::exists(flags.to, error) || flags.force) return {};
  return base::Error(fmt::format("\"{}\" exists already", flags.to)).with_hint("use --force to replace it");
}

base::Result<void> write(const TensorSource& source, const std::string& to) {
  switch (target_of(to)) {
    case Target::kPt:
      return files::write_pt(source, to);
    case Target::kSafetensors:
      return files::write_safetensors(source, to);
    default:
      return files::write_sharded_folder(source, to);
  }
}

// If both formats support it, nested dicts stay nested.
base::Result<void> convert(const TensorSource& source, const ConvertFlags& flags) {
  const bool is_pt = source.format().starts_with("PyTorch");
  const Target target = target_of(flags.to);
  const bool keeps_nesting = flags.dcp || target == Target::kPt || (target == Target::kSafetensors && !is_pt);
  if (!keeps_nesting) return write(source, flags.to);
  const auto stored = is_pt ? files::open_pt_checkpoint(source.path()) : files::open_stored_checkpoint(source.path());
  if (!stored) return stored.error();
  return flags.dcp ? files::write_dcp_folder(*stored, flags.to) : files::consolidate(*stored, flags.to);
}

int finish(const base::Result<void>& written, const TensorSource& source, const std::string& to) {
  if (!written) return fail(written.error(), kFault);
  print(fmt::format("{}: {}\n", to, count_text(static_cast<int64_t>(source.tensors().size()), "tensor")));
  return 0;
}

}  // namespace

int convert_command(const ConvertFlags& flags) {
  const auto source = files::open_tensor_source(flags.from.front());
  if (!source) return fail(source.error(), kFault);
  const auto checked = check_target(flags);
  return finish(checked ? convert(**source, flags) : checked, **source, flags.to);
}

int average_command(const ConvertFlags& flags) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  for (const auto& path : flags.from) {
    auto source = files::open_tensor_source(path);
    if (!source) return fail(source.error(), kFault);
    sources.push_back(std::move(*source));
  }
  const auto average = files::AverageSource::open(std::move(sources));
  if (!average) return fail(average.error(), kFault);
  const auto checked = check_target(flags);
  return finish(checked ? write(**average, flags.to) : checked, **average, flags.to);
}

int consolidate_command(const ConvertFlags& flags) {
  if (target_of(flags.to) == Target::kFolder) {
    return fail(
        base::Error(fmt::format("consolidate writes one file, but \"{}\" is not the name of a .pt or .safetensors file",
                                flags.to))
            .with_hint("give a name that ends in .pt or .safetensors"),
        kUsageError);
  }
  return convert_command(flags);
}

}  // namespace cohort::ckpt_cli
