#include "cohort/elastic/output/log_routing.h"

#include <fmt/format.h>

#include <filesystem>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

std::optional<StreamChoice> choice_of(std::string_view digit) {
  if (digit.size() != 1 || digit[0] < '0' || digit[0] > '3') return std::nullopt;
  const int bits = digit[0] - '0';
  return StreamChoice{(bits & 1) != 0, (bits & 2) != 0};
}

StreamRoute route_of(bool redirect, bool tee, bool shown, const std::string& file) {
  StreamRoute route;
  if (redirect || tee) route.file = file;
  route.tee = tee && shown;
  route.silent = !shown;
  return route;
}

}  // namespace

Result<std::vector<StreamChoice>> parse_stream_choices(const std::string& flag, const std::string& text,
                                                       int local_world_size) {
  const Error error =
      Error(fmt::format("{}={} is neither 0, 1, 2 or 3 nor a list such as 0:1,1:3", flag, text))
          .with_hint("use 0 for none, 1 for stdout, 2 for stderr, 3 for both; LOCAL_RANK:NUMBER is for one rank");
  std::vector<StreamChoice> choices(static_cast<size_t>(local_world_size));
  if (const auto same = choice_of(text)) {
    choices.assign(choices.size(), *same);
    return choices;
  }
  for (const std::string& part : base::split(text, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos) return error;
    const auto local_rank = base::parse_int(std::string_view(part).substr(0, colon));
    const auto choice = choice_of(std::string_view(part).substr(colon + 1));
    if (!local_rank || *local_rank < 0 || !choice) return error;
    if (*local_rank < local_world_size) choices[static_cast<size_t>(*local_rank)] = *choice;
  }
  return choices;
}

Result<std::optional<std::set<int>>> parse_local_ranks_filter(const std::string& text) {
  if (text.empty()) return std::optional<std::set<int>>();
  std::set<int> ranks;
  for (const std::string& part : base::split(text, ',')) {
    const auto rank = base::parse_int(base::trim(part));
    if (!rank || *rank < 0 || *rank > 1 << 20) {
      return Error(fmt::format("--local-ranks-filter={} must be a comma-separated list of integers e.g. 0,1,2", text));
    }
    ranks.insert(static_cast<int>(*rank));
  }
  return std::optional<std::set<int>>(std::move(ranks));
}

std::string error_file_of(const std::string& attempt_folder, int local_rank) {
  return attempt_folder.empty() ? "" : fmt::format("{}/{}/error.json", attempt_folder, local_rank);
}

std::vector<WorkerRoutes> plan_worker_routes(const LogOptions& options, const std::string& attempt_folder) {
  std::vector<WorkerRoutes> routes(options.tee.size());
  if (attempt_folder.empty()) return routes;
  for (size_t local_rank = 0; local_rank < routes.size(); ++local_rank) {
    const std::string folder = fmt::format("{}/{}/", attempt_folder, local_rank);
    const StreamChoice redirect = options.redirects[local_rank];
    const StreamChoice tee = options.tee[local_rank];
    const bool shown = !options.shown_ranks || options.shown_ranks->contains(static_cast<int>(local_rank));
    routes[local_rank].output = route_of(redirect.output, tee.output, shown, folder + "stdout.log");
    routes[local_rank].errors = route_of(redirect.errors, tee.errors, shown, folder + "stderr.log");
    routes[local_rank].error_file = error_file_of(attempt_folder, static_cast<int>(local_rank));
  }
  return routes;
}

std::vector<std::string> parse_filters(const std::string& text) {
  std::vector<std::string> filters(1);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_comma = text[i] == ',';
    const bool is_escaped = is_comma && text.substr(i + 1).starts_with(',');
    if (is_comma && !is_escaped) {
      filters.emplace_back();
    } else {
      filters.back() += text[i];
      i += is_escaped;
    }
  }
  std::erase(filters, "");
  return filters;
}

Result<LogFolder> create_log_folder(const std::string& log_dir, const std::string& run_id) {
  LogFolder folder;
  if (log_dir == "/dev/null") return folder;
  std::string root = log_dir;
  if (root.empty()) {
    Result<std::string> created = base::make_unique_directory(base::temporary_folder() + "/torchelastic_");
    if (!created) return created.error();
    folder.temporary_root = root = *created;
  } else if (Result<void> made = base::make_directories(root); !made) {
    return made.error();
  }
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(root, error).lexically_normal().string();
  if (error) return Error(fmt::format("cannot find the folder \"{}\": {}", root, base::errno_text(error.value())));
  Result<std::string> run_folder =
      base::make_unique_directory(fmt::format("{}/{}_", absolute, base::replace_all(run_id, "/", "_")));
  if (!run_folder) return run_folder.error();
  folder.path = *run_folder;
  return folder;
}

Error no_log_folder(const std::string& log_dir, const Error& cause) {
  const std::string hint =
      log_dir.empty() ? "give --log-dir, or set TMPDIR, to a folder with some space that this user may write to"
                      : "see whether its disk is full and whether this user may write there, or give another "
                        "--log-dir";
  return Error("cannot create the log folder").caused_by(cause).with_hint(hint + "; --log-dir=/dev/null keeps no logs");
}

Result<std::string> create_attempt_folder(const LogFolder& folder, int attempt, int local_world_size) {
  if (folder.path.empty()) return std::string();
  const std::string path = fmt::format("{}/attempt_{}", folder.path, attempt);
  for (int local_rank = 0; local_rank < local_world_size; ++local_rank) {
    if (Result<void> made = base::make_directories(fmt::format("{}/{}", path, local_rank)); !made) return made.error();
  }
  return path;
}

void remove_if_unused(const LogFolder& folder) {
  if (folder.temporary_root.empty()) return;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(folder.temporary_root, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (!entry->is_directory(error)) return;
  }
  if (!error) std::filesystem::remove_all(folder.temporary_root, error);
}

}  // namespace cohort::elastic
