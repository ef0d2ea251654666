#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "cohort/base/text/text.h"
#include "cohort/shm/report/formats.h"

namespace cohort::shm {
namespace {

constexpr size_t kNumLast = 10;

std::string utc(int64_t time_ns, const char* format, int64_t unit_ns, int num_digits) {
  const time_t seconds = time_ns / 1'000'000'000;
  tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[64];
  const size_t length = ::strftime(text, sizeof text, format, &parts);
  return fmt::format("{}.{:0{}}", std::string(text, length), time_ns % 1'000'000'000 / unit_ns, num_digits);
}

std::string duration(int64_t nanoseconds) {
  return base::format_duration(std::chrono::nanoseconds(std::max<int64_t>(nanoseconds, 0)));
}

/// Puts two spaces between columns.
std::string table(const std::string& indent, const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    for (size_t column = 0; column < row.size(); ++column) line += fmt::format("{:{}}  ", row[column], widths[column]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string number_in_words(const CallRecord& record) {
  return fmt::format("{}#{}", record.is_p2p ? "p2p " : "", record.seq_id());
}

/// Returns the rank's current operation: the oldest that has started, else the oldest that is scheduled; null if it is idle.
const CallRecord* current(const RankTrace& rank) {
  const CallRecord* scheduled = nullptr;
  for (const CallRecord& record : rank.records) {
    if (record.state == CallRecord::State::kStarted) return &record;
    if (record.state == CallRecord::State::kScheduled && scheduled == nullptr) scheduled = &record;
  }
  return scheduled;
}

std::string process_of(const RankTrace& rank) {
  if (rank.presence == RankTrace::Presence::kAbsent) return name_of(rank.presence);
  const std::string who = fmt::format("pid {} on {}", rank.pid, rank.host);
  return rank.presence == RankTrace::Presence::kRuns ? who : fmt::format("{}, {}", who, name_of(rank.presence));
}

/// Returns the operation, since when it runs, and its call site.
std::vector<std::string> doing(const RankTrace& rank, int64_t now_ns) {
  if (rank.records.empty()) return {"nothing yet", "", ""};
  const CallRecord* const now = current(rank);
  const CallRecord& shown = now == nullptr ? rank.records.back() : *now;
  std::string what = fmt::format("{}{} {}: {}", now == nullptr ? "idle after " : "", number_in_words(shown),
                                 describe_call(shown), name_of(shown.state));
  const auto num_open = std::count_if(rank.records.begin(), rank.records.end(),
                                      [](const CallRecord& record) { return !record.is_over(); });
  if (num_open > 1) what += fmt::format(" (and {} more)", num_open - 1);
  const int64_t since = shown.finished_ns.value_or(shown.started_ns.value_or(shown.created_ns));
  return {what, duration(now_ns - since), shown.call_site};
}

std::string describe_missing(const GroupTrace& group, int missing, int64_t now_ns) {
  for (const RankTrace& rank : group.ranks) {
    if (rank.rank != missing) continue;
    const auto last = std::find_if(rank.records.rbegin(), rank.records.rend(),
                                   [](const CallRecord& record) { return !record.is_p2p; });
    if (last == rank.records.rend()) break;
    return fmt::format("    rank {} has not called it; its last one is {} {}, {}, {} ago\n", missing,
                       number_in_words(*last), describe_call(*last), name_of(last->state),
                       duration(now_ns - last->finished_ns.value_or(last->created_ns)));
  }
  return fmt::format("    rank {} has not called it, nor any other\n", missing);
}

std::string describe_difference(const GroupTrace& group, int64_t now_ns) {
  const std::optional<Difference> difference = find_difference(group);
  if (!difference) {
    uint64_t last = 0;
    for (const RankTrace& rank : group.ranks) {
      for (const CallRecord& record : rank.records) last = std::max(last, record.collective_seq_id);
    }
    return last == 0 ? "" : fmt::format("  ranks have called the same collectives, up to #{}\n", last);
  }
  std::string text = fmt::format("  collective #{} {}\n", difference->collective_seq_id,
                                 difference->parties.size() > 1 ? "differs:" : "is not called by all ranks:");
  for (const Difference::Party& party : difference->parties) {
    text += fmt::format("    {} {} {}\n", base::ranks_in_words(party.ranks), party.ranks.size() == 1 ? "calls" : "call",
                        party.call);
  }
  if (difference->parties.empty())
    text += "    the others called it so long ago that the details are no longer recorded\n";
  for (const int rank : difference->missing) text += describe_missing(group, rank, now_ns);
  return text;
}

std::string last_operations(const RankTrace& rank, int64_t now_ns) {
  std::vector<std::vector<std::string>> rows = {{"created", "number", "operation", "state", "took", "call site"}};
  const size_t first = rank.records.size() > kNumLast ? rank.records.size() - kNumLast : 0;
  for (size_t place = first; place < rank.records.size(); ++place) {
    const CallRecord& record = rank.records[place];
    std::string took;
    if (record.started_ns) {
      const std::string time = duration(record.finished_ns.value_or(now_ns) - *record.started_ns);
      took = record.is_over() ? time : time + " so far";
    }
    rows.push_back({utc(record.created_ns, "%H:%M:%S", 1'000, 6), number_in_words(record), describe_call(record),
                    name_of(record.state), took, record.call_site});
  }
  return fmt::format("  rank {}, last operations\n{}", rank.rank, table("    ", rows));
}

std::string describe_group(const GroupTrace& group, int64_t now_ns) {
  std::string text = fmt::format("\ngroup \"{}\"", group.description);
  if (group.name != group.description) text += fmt::format(" (name \"{}\")", group.name);
  text += fmt::format(", {} {}\n", group.ranks.size(), group.ranks.size() == 1 ? "rank" : "ranks");
  const bool shows_job = [&] {
    for (size_t rank = 0; rank < group.global_ranks.size(); ++rank) {
      if (group.global_ranks[rank] != static_cast<int>(rank)) return true;
    }
    return false;
  }();
  std::vector<std::vector<std::string>> rows = {{"rank", "process", "now", "since", "call site"}};
  for (const RankTrace& rank : group.ranks) {
    const std::string in_job =
        shows_job ? fmt::format(" ({} in the job)", group.global_ranks[static_cast<size_t>(rank.rank)]) : "";
    rows.push_back({fmt::format("{}{}", rank.rank, in_job), process_of(rank)});
    for (std::string& cell : doing(rank, now_ns)) rows.back().push_back(std::move(cell));
  }
  text += table("  ", rows) + describe_difference(group, now_ns);
  for (const RankTrace& rank : group.ranks) {
    if (!rank.records.empty()) text += last_operations(rank, now_ns);
  }
  return text;
}

}  // namespace

std::string to_text(const ProcessTrace& trace) {
  std::string text = fmt::format("flight recorder of pid {} on {}{}, {} UTC\n", trace.pid, trace.host,
                                 trace.rank < 0 ? "" : fmt::format(" (rank {})", trace.rank),
                                 utc(trace.time_ns, "%Y-%m-%d %H:%M:%S", 1'000'000, 3));
  if (!trace.reason.empty()) text += fmt::format("written because of {}\n", trace.reason);
  if (trace.groups.empty()) text += "\nno group\n";
  for (const GroupTrace& group : trace.groups) text += describe_group(group, trace.time_ns);
  return text;
}

}  // namespace cohort::shm
