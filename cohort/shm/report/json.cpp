// The flight recorder's JSON and pickle, and Chrome's trace events: the same data under other names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cohort/shm/report/formats.h"
#include "cohort/shm/report/pickle.h"

namespace cohort::shm {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTraceVersion = "2.10";
/// torchfrtrace only knows the operations of c10d.
constexpr const char* kAllocateForAnalyzer = "new_window";

std::string write_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

int global_rank_of(const GroupTrace& group, int rank) {
  const auto place = static_cast<size_t>(rank);
  return place < group.global_ranks.size() ? group.global_ranks[place] : rank;
}

/// c10d's names are unique within a job, but names of plain engine groups need not be.
std::vector<std::string> unique_names(const ProcessTrace& trace) {
  std::map<std::string, int> counts;
  std::vector<std::string> names;
  for (const GroupTrace& group : trace.groups) {
    const int count = ++counts[group.name];
    names.push_back(count == 1 ? group.name : fmt::format("{} ({})", group.name, count));
  }
  return names;
}

Json group_config(const ProcessTrace& trace) {
  Json config = Json::object();
  const std::vector<std::string> names = unique_names(trace);
  for (size_t place = 0; place < trace.groups.size(); ++place) {
    const GroupTrace& group = trace.groups[place];
    std::vector<int> ranks;
    for (const RankTrace& rank : group.ranks) ranks.push_back(global_rank_of(group, rank.rank));
    config[names[place]] = {
        {"name", names[place]}, {"desc", group.description}, {"ranks", fmt::format("[{}]", fmt::join(ranks, ", "))}};
  }
  return config;
}

struct Progress {
  uint64_t scheduled = 0;
  uint64_t started = 0;
  uint64_t completed = 0;
};

Progress progress_of(const RankTrace& rank) {
  Progress progress;
  for (const CallRecord& record : rank.records) {
    if (record.is_p2p) continue;
    progress.scheduled = std::max(progress.scheduled, record.collective_seq_id);
    if (record.started_ns) progress.started = std::max(progress.started, record.collective_seq_id);
    if (record.state == CallRecord::State::kCompleted) {
      progress.completed = std::max(progress.completed, record.collective_seq_id);
    }
  }
  return progress;
}

Json to_json(const Progress& progress) {
  return {{"last_enqueued_collective", progress.scheduled},
          {"last_started_collective", progress.started},
          {"last_completed_collective", progress.completed}};
}

/// Returns the dumping process's own view: how far the rank is in each group, by the group's number.
Json group_status(const ProcessTrace& trace, int global_rank) {
  Json status = Json::object();
  for (size_t place = 0; place < trace.groups.size(); ++place) {
    const GroupTrace& group = trace.groups[place];
    for (const RankTrace& rank : group.ranks) {
      if (global_rank_of(group, rank.rank) == global_rank) status[std::to_string(place)] = to_json(progress_of(rank));
    }
  }
  return status;
}

Json ranks_of(const ProcessTrace& trace) {
  Json ranks = Json::array();
  const std::vector<std::string> names = unique_names(trace);
  for (size_t place = 0; place < trace.groups.size(); ++place) {
    const GroupTrace& group = trace.groups[place];
    for (const RankTrace& rank : group.ranks) {
      Json entry = {{"rank", global_rank_of(group, rank.rank)},
                    {"process_group", {names[place], group.description}},
                    {"group_rank", rank.rank},
                    {"pid", rank.pid},
                    {"host", rank.host},
                    {"process", name_of(rank.presence)}};
      entry.update(to_json(progress_of(rank)));
      ranks.push_back(std::move(entry));
    }
  }
  return ranks;
}

/// Returns PyTorch's names of an operation: "all_reduce", "send 0->1", "recv 1<-0".
std::string operation_name(const CallRecord& record, int rank) {
  if (record.kind == OpKind::kSend) return fmt::format("send {}->{}", rank, record.root);
  if (record.kind == OpKind::kRecv) return fmt::format("recv {}<-{}", rank, record.root);
  return name_of(record.kind);
}

/// Returns the names of c10::toString.
const char* scalar_type_name(DType dtype) {
  constexpr const char* kNames[kNumDTypes] = {"Byte",   "Bool", "Char",   "Byte", "Short",    "UInt16", "Int",
                                              "UInt32", "Long", "UInt64", "Half", "BFloat16", "Float",  "Double"};
  return kNames[static_cast<int>(dtype)];
}

Json frames_of(const CallRecord& record) {
  if (record.call_site.empty()) return Json::array();
  // Parses "train_gpt+0x1a2b (main)".
  const size_t bracket = record.call_site.find(" (");
  const bool has_name = bracket != std::string::npos && record.call_site.back() == ')' && bracket > 0;
  const std::string place = record.call_site.substr(0, bracket);
  const std::string name =
      has_name ? record.call_site.substr(bracket + 2, record.call_site.size() - bracket - 3) : "??";
  return Json::array({{{"name", name}, {"filename", has_name ? place : record.call_site}, {"line", 0}}});
}

/// Returns the fields that the JSON and the pickle have in common, without the times, which PyTorch writes differently in the
/// two.
Json to_entry(const CallRecord& record, int rank, const std::string& operation, size_t group_number,
              const std::pair<std::string, std::string>& group) {
  Json entry;
  entry["frames"] = frames_of(record);
  entry["record_id"] = record.record_id;
  entry["pg_id"] = group_number;
  entry["process_group"] = {group.first, group.second};
  entry["thread_name"] = "";
  entry["thread_id"] = std::to_string(record.thread_id);
  entry["collective_seq_id"] = record.collective_seq_id;
  entry["p2p_seq_id"] = record.p2p_seq_id;
  entry["op_id"] = record.record_id;
  entry["profiling_name"] = operation;
  entry["time_created_ns"] = record.created_ns;
  if (record.started_ns && record.finished_ns) {
    entry["duration_ms"] = static_cast<double>(*record.finished_ns - *record.started_ns) / 1e6;
  }
  entry["input_sizes"] = Json::array({Json::array({record.num_inputs})});
  entry["input_dtypes"] = {scalar_type_name(record.dtype)};
  // PyTorch's reduce works in place, so it has an output on every rank.
  const uint64_t num_outputs = record.kind == OpKind::kReduce ? record.num_inputs : record.num_outputs;
  entry["output_sizes"] = Json::array({Json::array({num_outputs})});
  entry["output_dtypes"] = {scalar_type_name(record.dtype)};
  const bool has_failed = record.state == CallRecord::State::kFailed;
  const auto state = !has_failed         ? record.state
                     : record.started_ns ? CallRecord::State::kStarted
                                         : CallRecord::State::kScheduled;
  entry["state"] = name_of(state);
  entry["retired"] = record.is_over();
  entry["failed"] = has_failed;
  entry["timeout_ms"] = record.timeout_ms;
  entry["is_p2p"] = record.is_p2p;
  entry["rank"] = rank;
  return entry;
}

std::optional<int64_t> completed_ns(const CallRecord& record) {
  return record.state == CallRecord::State::kCompleted ? record.finished_ns : std::nullopt;
}

template <class Visit>
void for_each_record(const ProcessTrace& trace, Visit visit) {
  for (size_t place = 0; place < trace.groups.size(); ++place) {
    for (const RankTrace& rank : trace.groups[place].ranks) {
      for (const CallRecord& record : rank.records) visit(place, rank, record);
    }
  }
}

/// Chrome's times are microseconds as doubles, which would lose digits if counted from 1970. The same for all ranks of a day.
int64_t first_midnight_ns(const ProcessTrace& trace) {
  int64_t first = trace.time_ns;
  for_each_record(
      trace, [&](size_t, const RankTrace&, const CallRecord& record) { first = std::min(first, record.created_ns); });
  constexpr int64_t kDay = int64_t{86'400} * 1'000'000'000;
  return first / kDay * kDay;
}

}  // namespace

std::string to_json(const ProcessTrace& trace) {
  Json head = {{"version", kTraceVersion},
               {"comm_lib_version", "shm"},
               {"pg_config", group_config(trace)},
               {"pg_status", group_status(trace, trace.rank)},
               {"nccl_comm_state", Json::object()},
               {"ranks", ranks_of(trace)},
               {"rank", trace.rank},
               {"pid", trace.pid},
               {"host", trace.host},
               {"reason", trace.reason},
               {"time_ns", trace.time_ns}};
  std::string text = write_json(head);
  text.pop_back();
  text += ",\n\"entries\":[";
  const std::vector<std::string> names = unique_names(trace);
  const char* separator = "\n";
  for_each_record(trace, [&](size_t place, const RankTrace& rank, const CallRecord& record) {
    const GroupTrace& group = trace.groups[place];
    Json entry = to_entry(record, global_rank_of(group, rank.rank), "shm:" + operation_name(record, rank.rank), place,
                          {names[place], group.description});
    entry["reduce_op"] = name_of(record.reduce_op);
    entry["root"] = record.root;
    entry["tag"] = record.tag;
    entry["time_discovered_started_ns"] = record.started_ns.value_or(0);
    entry["time_discovered_completed_ns"] = completed_ns(record).value_or(0);
    text += separator + write_json(entry);
    separator = ",\n";
  });
  return text + "\n]}\n";
}

std::string to_pickle(const ProcessTrace& trace, int global_rank) {
  const std::vector<std::string> names = unique_names(trace);
  std::vector<std::pair<int64_t, Json>> entries;
  for_each_record(trace, [&](size_t place, const RankTrace& rank, const CallRecord& record) {
    const GroupTrace& group = trace.groups[place];
    if (global_rank_of(group, rank.rank) != global_rank) return;
    const std::string operation =
        record.kind == OpKind::kAllocate ? kAllocateForAnalyzer : operation_name(record, rank.rank);
    Json entry = to_entry(record, global_rank, "gloo:" + operation, place, {names[place], group.description});
    entry["time_discovered_started_ns"] = record.started_ns ? Json(*record.started_ns) : Json();
    const auto completed = completed_ns(record);
    entry["time_discovered_completed_ns"] = completed ? Json(*completed) : Json();
    entries.emplace_back(record.created_ns, std::move(entry));
  });
  // A job's record ids increase over all its groups.
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Json list = Json::array();
  for (auto& [created, entry] : entries) {
    const uint64_t own_id = entry["record_id"];
    entry["record_id"] = std::max<uint64_t>(own_id, list.empty() ? 0 : list.back()["record_id"].get<uint64_t>() + 1);
    list.push_back(std::move(entry));
  }
  return pickle(Json{{"version", kTraceVersion},
                     {"comm_lib_version", "shm"},
                     {"pg_config", group_config(trace)},
                     {"pg_status", group_status(trace, global_rank)},
                     {"entries", std::move(list)}});
}

std::string to_chrome_trace(const ProcessTrace& trace) {
  std::vector<Json> events;
  const int64_t base = first_midnight_ns(trace);
  const auto name_row = [&](const char* what, int process, size_t row, const std::string& name) {
    events.push_back({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}});
  };
  std::map<int, std::string> processes;
  for (size_t place = 0; place < trace.groups.size(); ++place) {
    const GroupTrace& group = trace.groups[place];
    for (const RankTrace& rank : group.ranks) {
      const int process = global_rank_of(group, rank.rank);
      processes.emplace(process, fmt::format("rank {} (pid {} on {})", process, rank.pid, rank.host));
      name_row("thread_name", process, 2 * place, group.description);
      name_row("thread_name", process, 2 * place + 1, group.description + ", sends and receives");
    }
  }
  for (const auto& [process, name] : processes) name_row("process_name", process, 0, name);
  for_each_record(trace, [&](size_t place, const RankTrace& rank, const CallRecord& record) {
    const GroupTrace& group = trace.groups[place];
    const int64_t begin = record.started_ns.value_or(record.created_ns);
    const int64_t end = std::max(begin, record.finished_ns.value_or(trace.time_ns));
    events.push_back({{"name", operation_name(record, rank.rank)},
                      {"cat", "shm"},
                      {"ph", "X"},
                      {"ts", static_cast<double>(begin - base) / 1e3},
                      {"dur", static_cast<double>(end - begin) / 1e3},
                      {"pid", global_rank_of(group, rank.rank)},
                      {"tid", 2 * place + (record.is_p2p ? 1 : 0)},
                      {"args",
                       {{"call", describe_call(record)},
                        {"state", name_of(record.state)},
                        {"seq_id", record.seq_id()},
                        {"queued_us", static_cast<double>(begin - record.created_ns) / 1e3},
                        {"call_site", record.call_site}}}});
  });
  std::string text = fmt::format("{{\"displayTimeUnit\":\"ns\",\"baseTimeNanoseconds\":{},\"traceEvents\":[", base);
  const char* separator = "\n";
  for (const Json& event : events) {
    text += separator + write_json(event);
    separator = ",\n";
  }
  return text + "\n]}\n";
}

}  // namespace cohort::shm
