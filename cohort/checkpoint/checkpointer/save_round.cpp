#include "cohort/checkpoint/checkpointer/save_round.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "cohort/base/host.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/files/checkpoints/checkpoint_draft.h"
#include "cohort/files/checkpoints/checkpoint_name.h"

namespace cohort::checkpoint {
namespace {

// A word between ranks is a letter and a text.
constexpr char kFine = 'F', kProblem = 'P', kManifest = 'M';

constexpr const char* kSharedFolderHint =
    "all ranks need the same folder: give one on a file system that all hosts share, by its absolute path";

std::string word(char kind, const std::string& text = {}) { return kind + text; }
bool is_problem(const std::string& text) { return text.starts_with(kProblem); }

// Without the mark that our messages begin with, since they become a line of another one.
std::string as_cause(std::string text) {
  const std::string mark = "[cohort] ";
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

// "rank 1 (node7): cannot write ..."; of a process alone the text.
std::string with_rank(const RankTalk& talk, const std::string& text) {
  if (talk.size() == 1) return text;
  return fmt::format("rank {} ({}): {}", talk.rank(), base::host_name(), text);
}

std::string failed(const SaveRequest& request, const std::vector<std::string>& causes) {
  std::string text = fmt::format("[cohort] Checkpointer: cannot save step {} in \"{}\"", request.step, request.root);
  bool is_full = false;
  bool is_too_large = false;
  for (const std::string& cause : causes) {
    text += "\n  caused by: " + cause;
    is_full = is_full || cause.find("(ENOSPC)") != std::string::npos || cause.find("(EDQUOT)") != std::string::npos;
    is_too_large = is_too_large || cause.find("(EFBIG)") != std::string::npos;
  }
  text += "\n  hint: the checkpoints that were there are untouched";
  if (is_too_large) text += "; raise the limit on the size of files (ulimit -f)";
  return is_full ? text + "; free some space, or keep fewer of them (keep_last)" : text;
}

std::vector<std::string> problems_in(const std::vector<std::string>& words) {
  std::vector<std::string> problems;
  for (const std::string& text : words) {
    if (is_problem(text)) problems.push_back(text.substr(1));
  }
  return problems;
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
  SaveRound(const RankTalk& talk, const CheckpointFormat& format, const SaveRequest& request)
      : talk_(talk), format_(format), request_(request) {}

  std::string run() {
    const std::string begun = talk_.from_first(talk_.rank() == 0 ? begin() : "");
    if (is_problem(begun)) return failed(request_, {begun.substr(1)});
    const std::string folder = request_.root + "/" + begun.substr(1);
    auto problems = problems_in(talk_.from_all(look_at(folder)));
    if (!problems.empty()) {
      return failed(request_, problems) + "\n  hint: " + kSharedFolderHint;
    }
    const auto words = talk_.from_all(write(folder));
    problems = problems_in(words);
    if (!problems.empty()) return failed(request_, problems);
    const std::string published = talk_.from_first(talk_.rank() == 0 ? publish(words) : "");
    return is_problem(published) ? failed(request_, {published.substr(1)}) : "";
  }

 private:
  std::string problem(const std::string& text) const { return word(kProblem, with_rank(talk_, text)); }

  std::string begin() {
    if (const auto locked = request_.lock->take(); !locked) return problem(locked.error().describe());
    auto draft = files::CheckpointDraft::begin(request_.root, request_.step);
    if (!draft) return problem(draft.error().describe());
    draft_.emplace(std::move(*draft));
    return word(kFine, std::filesystem::path(draft_->folder()).filename().string());
  }

  // Every rank must have the same step in mind, and see what rank 0 has made.
  std::string look_at(const std::string& folder) const {
    const auto name = std::filesystem::path(folder).filename().string();
    const auto step_text = files::checkpoint_name(request_.step);
    if (!name.starts_with(std::string(files::kSavingPrefix) + step_text + "-")) {
      return problem(fmt::format("saves step {}, but rank 0 another one", request_.step));
    }
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) return word(kFine);
    return problem(fmt::format("does not see \"{}\", which rank 0 has made", folder));
  }

  std::string write(const std::string& folder) const {
    try {
      files::Manifest manifest;
      for (const std::string& name : format_.write(*request_.state, folder, talk_.group())) {
        const auto file = files::seal_file(folder, name);
        if (!file) return problem(file.error().describe());
        manifest.files.push_back(*file);
      }
      return word(kManifest, files::format_manifest(manifest));
    } catch (const std::exception& error) {
      return problem(as_cause(comm::text_of(error)));
    }
  }

  std::string publish(const std::vector<std::string>& words) {
    files::Manifest manifest{.saved_at = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()),
                             .num_ranks = talk_.size(),
                             .metric = request_.info.metric,
                             .metadata = request_.info.metadata};
    for (const std::string& text : words) {
      const auto part = files::parse_manifest(std::string_view(text).substr(1));
      if (!part) return problem(part.error().describe());
      manifest.files.insert(manifest.files.end(), part->files.begin(), part->files.end());
    }
    const auto published = draft_->publish(std::move(manifest));
    if (!published) return problem(published.error().describe());
    remove_old_ones(request_);
    return word(kFine);
  }

  const RankTalk& talk_;
  const CheckpointFormat& format_;
  const SaveRequest& request_;
  std::optional<files::CheckpointDraft> draft_;  // rank 0 only
};

// Rank 0's list, from the newest on.
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

  // The manifest of the next one, or kFine if there is none.
  std::string next() {
    if (!error_.empty()) return word(kProblem, error_);
    for (; index_ < found_.size(); ++index_) {
      const auto& found = found_[index_];
      if (found.manifest) return word(kManifest, files::format_manifest(*found.manifest));
      skip(found.problem);
    }
    return word(kFine);
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

// That this rank sees the same manifest.
std::string compare_view(const RankTalk& talk, const std::string& folder, const files::Manifest& manifest) {
  const auto own = files::read_manifest(folder);
  if (!own) return word(kProblem, with_rank(talk, fmt::format("\"{}\": {}", folder, own.error().message())));
  if (*own == manifest) return word(kFine);
  return word(kProblem, with_rank(talk, fmt::format("\"{}\" is another checkpoint than rank 0's", folder)));
}

// Of the files this rank's share.
std::string check_share(const RankTalk& talk, const std::string& folder, const files::Manifest& manifest,
                        files::CheckpointCheck check) {
  for (size_t i = talk.rank(); i < manifest.files.size(); i += talk.size()) {
    const auto checked = files::check_file(folder, manifest.files[i], check);
    if (!checked) return word(kProblem, checked.error().message());
  }
  return word(kFine);
}

}  // namespace

std::string save_together(const RankTalk& talk, const CheckpointFormat& format, const SaveRequest& request) {
  try {
    return SaveRound(talk, format, request).run();
  } catch (const std::exception& error) {
    return failed(request, {with_rank(talk, as_cause(comm::text_of(error)))});
  }
}

std::optional<SavedCheckpoint> find_together(const RankTalk& talk, const std::string& root,
                                             files::CheckpointCheck check, std::optional<int64_t> step) {
  std::optional<Candidates> candidates;
  if (talk.rank() == 0) candidates.emplace(root, step);
  for (;; candidates ? candidates->advance() : void()) {
    const std::string first = talk.from_first(candidates ? candidates->next() : "");
    TORCH_CHECK(!is_problem(first), "[cohort] Checkpointer: ", first.substr(1));
    if (first == word(kFine)) return std::nullopt;
    auto manifest = files::parse_manifest(std::string_view(first).substr(1));
    TORCH_CHECK(manifest.ok(), "[cohort] Checkpointer: rank 0's manifest did not arrive");
    const std::string folder = root + "/" + files::checkpoint_name(manifest->step);
    auto problems = problems_in(talk.from_all(compare_view(talk, folder, *manifest)));
    TORCH_CHECK(problems.empty(), "[cohort] Checkpointer: not all ranks see the same checkpoints in \"", root,
                "\"\n  caused by: ", base::join(problems, "\n  caused by: "), "\n  hint: ", kSharedFolderHint);
    problems = problems_in(talk.from_all(check_share(talk, folder, *manifest, check)));
    if (problems.empty()) {
      return SavedCheckpoint{manifest->step, folder, {manifest->metric, std::move(manifest->metadata)}};
    }
    if (candidates) candidates->skip(problems.front());
  }
}

}  // namespace cohort::checkpoint
