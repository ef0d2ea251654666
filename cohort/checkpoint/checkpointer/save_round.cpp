#include "cohort/checkpoint/checkpointer/save_round.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "cohort/base/log/log.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/files/checkpoints/checkpoint_draft.h"
#include "cohort/files/checkpoints/checkpoint_name.h"

namespace cohort::checkpoint {
namespace {

using comm::RankExchange;
using comm::StepResult;

constexpr const char* kSharedFolderHint =
    "all ranks need the same folder: give one on a file system that all hosts share, by its absolute path";

// Returns "rank 1 (node7): cannot write ..."; for a process alone the text itself.
std::string with_rank(const RankExchange& ranks, const std::string& text) {
  if (ranks.size() == 1) return text;
  return fmt::format("rank {} ({}): {}", ranks.rank(), base::host_name(), text);
}

std::string failed(const SaveRequest& request, const comm::RankFailures& causes) {
  std::string text = fmt::format("[cohort] Checkpointer: cannot save step {} in \"{}\"", request.step, request.root);
  bool is_full = false;
  bool is_too_large = false;
  for (const auto& [rank, cause] : causes) {
    text += "\n  caused by: " + cause;
    is_full = is_full || cause.find("(ENOSPC)") != std::string::npos || cause.find("(EDQUOT)") != std::string::npos;
    is_too_large = is_too_large || cause.find("(EFBIG)") != std::string::npos;
  }
  text += "\n  hint: the checkpoints that were there are untouched";
  if (is_too_large) text += "; raise the limit on the size of files (ulimit -f)";
  return is_full ? text + "; free some space, or keep fewer of them (keep_last)" : text;
}

void remove_old_ones(const SaveRequest& request) {
  const auto list = files::list_checkpoints(request.root, files::CheckpointCheck::kSizes);
  if (!list) return base::log_warning("Checkpointer: " + list.error().describe());
  std::vector<files::SavedStep> saved;
  for (const auto& found : list->checkpoints) {
    if (found.manifest) saved.push_back({.step = found.step, .metric = found.manifest->metric});
  }
  for (const int64_t step : files::steps_to_remove(std::move(saved), request.rules)) {
    const auto removed = files::remove_checkpoint(request.root, step);
    if (!removed) base::log_warning("Checkpointer: an old checkpoint stays: " + removed.error().describe());
  }
}

class SaveRound {
 public:
  SaveRound(const RankExchange& ranks, const CheckpointFormat& format, const SaveRequest& request)
      : ranks_(ranks), format_(format), request_(request) {}

  std::string run() {
    const auto begun = ranks_.from_first(ranks_.is_first() ? begin() : std::string());
    if (!begun) return failed(request_, {{0, begun.error().describe()}});
    const std::string folder = request_.root + "/" + *begun;
    auto problems = comm::failures_of(ranks_.all(look_at(folder)));
    if (!problems.empty()) return failed(request_, problems) + "\n  hint: " + kSharedFolderHint;
    const auto manifests = ranks_.all(write(folder));
    problems = comm::failures_of(manifests);
    if (!problems.empty()) return failed(request_, problems);
    const auto published = ranks_.from_first(ranks_.is_first() ? publish(manifests) : std::string());
    return published ? "" : failed(request_, {{0, published.error().describe()}});
  }

 private:
  base::Error problem(const std::string& text) const { return base::Error(with_rank(ranks_, text)); }

  // Returns the folder's name.
  StepResult begin() {
    if (const auto locked = request_.lock->take(); !locked) return problem(locked.error().describe());
    auto draft = files::CheckpointDraft::begin(request_.root, request_.step);
    if (!draft) return problem(draft.error().describe());
    draft_.emplace(std::move(*draft));
    return std::filesystem::path(draft_->folder()).filename().string();
  }

  // Checks that this rank saves the same step and sees the folder that rank 0 has made.
  StepResult look_at(const std::string& folder) const {
    const auto name = std::filesystem::path(folder).filename().string();
    const auto step_text = files::checkpoint_name(request_.step);
    if (!name.starts_with(std::string(files::kSavingPrefix) + step_text + "-")) {
      return problem(fmt::format("saves step {}, but rank 0 another one", request_.step));
    }
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) return std::string();
    return problem(fmt::format("does not see \"{}\", which rank 0 has made", folder));
  }

  // Returns the manifest of this rank's files.
  StepResult write(const std::string& folder) const {
    const auto written = comm::attempt([&] {
      files::Manifest manifest;
      for (const std::string& name : format_.save(*request_.state, folder, ranks_.group())) {
        manifest.files.push_back(comm::or_throw(files::seal_file(folder, name)));
      }
      return files::format_manifest(manifest);
    });
    return written ? written : problem(written.error().describe());
  }

  StepResult publish(const std::vector<StepResult>& manifests) {
    files::Manifest manifest{.saved_at = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()),
                             .num_ranks = ranks_.size(),
                             .metric = request_.info.metric,
                             .metadata = request_.info.metadata};
    for (const auto& text : manifests) {
      const auto part = files::parse_manifest(*text);
      if (!part) return problem(part.error().describe());
      manifest.files.insert(manifest.files.end(), part->files.begin(), part->files.end());
    }
    const auto published = draft_->publish(std::move(manifest));
    if (!published) return problem(published.error().describe());
    remove_old_ones(request_);
    return std::string();
  }

  const RankExchange& ranks_;
  const CheckpointFormat& format_;
  const SaveRequest& request_;
  std::optional<files::CheckpointDraft> draft_;  // rank 0 only
};

// Rank 0's list of checkpoints, the newest first.
class Candidates {
 public:
  Candidates(const std::string& root, std::optional<int64_t> step) : root_(root) {
    auto list = files::list_checkpoints(root, files::CheckpointCheck::kSizes);
    if (!list) {
      error_ = list.error().describe();
      return;
    }
    for (auto& found : list->checkpoints) {
      if (!step || found.step == *step) found_.push_back(std::move(found));
    }
  }

  // Returns the manifest of the next checkpoint; empty after the last one.
  StepResult next() {
    if (!error_.empty()) return base::Error(error_);
    for (; index_ < found_.size(); ++index_) {
      const auto& found = found_[index_];
      if (found.manifest) return files::format_manifest(*found.manifest);
      skip(found.problem);
    }
    return std::string();
  }

  void skip(const std::string& problem) {
    base::log_warning(fmt::format("Checkpointer: skips \"{}/{}\": {}", root_, found_[index_].name, problem));
  }
  void advance() { ++index_; }

 private:
  const std::string root_;
  std::vector<files::FoundCheckpoint> found_;
  std::string error_;
  size_t index_ = 0;
};

// Checks that this rank sees the same manifest.
StepResult compare_view(const RankExchange& ranks, const std::string& folder, const files::Manifest& manifest) {
  const auto own = files::read_manifest(folder);
  if (!own) return base::Error(with_rank(ranks, fmt::format("\"{}\": {}", folder, own.error().message())));
  if (*own == manifest) return std::string();
  return base::Error(with_rank(ranks, fmt::format("\"{}\" is another checkpoint than rank 0's", folder)));
}

// Checks this rank's share of the files.
StepResult check_share(const RankExchange& ranks, const std::string& folder, const files::Manifest& manifest,
                       files::CheckpointCheck check) {
  for (size_t i = ranks.rank(); i < manifest.files.size(); i += ranks.size()) {
    const auto checked = files::check_file(folder, manifest.files[i], check);
    if (!checked) return base::Error(checked.error().message());
  }
  return std::string();
}

}  // namespace

std::string save_together(const RankExchange& ranks, const CheckpointFormat& format, const SaveRequest& request) {
  try {
    return SaveRound(ranks, format, request).run();
  } catch (const std::exception& error) {
    return failed(request, {{ranks.rank(), with_rank(ranks, comm::text_of(error))}});
  }
}

std::optional<SavedCheckpoint> find_together(const RankExchange& ranks, const std::string& root,
                                             files::CheckpointCheck check, std::optional<int64_t> step) {
  std::optional<Candidates> candidates;
  if (ranks.is_first()) candidates.emplace(root, step);
  for (;; candidates ? candidates->advance() : void()) {
    const auto first =
        comm::or_throw(ranks.from_first(candidates ? candidates->next() : std::string()), "Checkpointer");
    if (first.empty()) return std::nullopt;
    auto manifest = files::parse_manifest(first);
    TORCH_CHECK(manifest.ok(), "[cohort] Checkpointer: rank 0's manifest did not arrive");
    const std::string folder = root + "/" + files::checkpoint_name(manifest->step);
    std::string causes;
    for (const auto& [rank, problem] : comm::failures_of(ranks.all(compare_view(ranks, folder, *manifest)))) {
      causes += "\n  caused by: " + problem;
    }
    TORCH_CHECK(causes.empty(), "[cohort] Checkpointer: not all ranks see the same checkpoints in \"", root, "\"",
                causes, "\n  hint: ", kSharedFolderHint);
    const auto problems = comm::failures_of(ranks.all(check_share(ranks, folder, *manifest, check)));
    if (problems.empty()) {
      return SavedCheckpoint{manifest->step, folder, {manifest->metric, std::move(manifest->metadata)}};
    }
    if (candidates) candidates->skip(problems.begin()->second);
  }
}

}  // namespace cohort::checkpoint
