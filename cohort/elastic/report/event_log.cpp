#include "cohort/elastic/report/event_log.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cohort/base/log/log_writer.h"
#include "cohort/base/system/host.h"
#include "cohort/elastic/plan/world_layout.h"

namespace cohort::elastic {

using nlohmann::json;
using rendezvous::Round;
using rendezvous::Settings;

struct EventLog::Event {
  const char* state;
  /// The event's name. If empty, the state decides it.
  std::string name = {};
  /// -1 means an event of the agent itself.
  int local_rank = -1;
  std::string error = {};
  const WorkerFailure* failure = nullptr;
  json details = json::object();
};

namespace {

const char* name_of(Settings::Backend backend) {
  switch (backend) {
    case Settings::Backend::kStatic:
      return "static";
    case Settings::Backend::kEtcd:
      return "etcd";
    case Settings::Backend::kFile:
      return "file";
    default:
      return "c10d";
  }
}

long long milliseconds_since_1970() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace

void EventLog::workers_started(const Round& round, const Settings& settings) const {
  for (int i = 0; i < settings.local_world_size; ++i) write(round, settings, {.state = "START", .local_rank = i});
}

void EventLog::workers_succeeded(const Round& round, const Settings& settings) const {
  for (int i = 0; i < settings.local_world_size; ++i) write(round, settings, {.state = "SUCCEEDED", .local_rank = i});
}

void EventLog::worker_ended(const Round& round, const Settings& settings, const WorkerFailure& failure) const {
  write(round, settings,
        {.state = "FAILED", .local_rank = failure.local_rank, .error = failure.message, .failure = &failure});
}

void EventLog::agent_ended(const Round& round, const Settings& settings, bool is_success,
                           const std::string& why) const {
  write(round, settings, {.state = is_success ? "SUCCEEDED" : "FAILED", .error = is_success ? "" : why});
}

void EventLog::phase_ended(const Round& round, const Settings& settings, const std::string& phase,
                           std::chrono::steady_clock::duration duration) const {
  const double milliseconds = std::chrono::duration<double, std::milli>(duration).count();
  write(round, settings,
        {.state = "RUNNING",
         .name = "torchelastic.agent." + phase,
         .details = {{"duration_ms", std::round(milliseconds * 1000) / 1000}, {"round", round.number}}});
}

void EventLog::block_overran(const Round& round, const Settings& settings, const Overrun& overrun) const {
  for (const char* name : {"timer expired", "kill worker process"}) {
    if (overrun.signal == 0 && std::string(name) != "timer expired") continue;
    write(round, settings,
          {.state = "RUNNING",
           .name = name,
           .details = {{"watchdog_event", name},
                       {"worker_pid", std::to_string(overrun.pid)},
                       {"scope_id", overrun.scope},
                       {"expiration_time", fmt::format("{}", overrun.expiration_time)},
                       {"signal", std::to_string(overrun.signal)}}});
  }
}

void EventLog::write(const Round& round, const Settings& settings, const Event& event) const {
  if (!is_on_) return;
  const WorldLayout layout = layout_of(round);
  json details = event.details;
  details["group_world_size"] = layout.num_nodes;
  json metadata = {
      {"run_id", settings.run_id},
      {"global_rank", nullptr},
      {"group_rank", layout.node_rank},
      {"worker_id", nullptr},
      {"role", settings.role},
      {"hostname", base::host_name()},
      {"state", event.state},
      {"total_run_time",
       std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start_).count()},
      {"rdzv_backend", name_of(settings.backend)},
      {"raw_error", event.error.empty() ? json() : json(event.error)},
      {"agent_restarts", round.restart_count}};
  if (event.local_rank >= 0) {
    metadata["global_rank"] = layout.first_rank + event.local_rank;
    metadata["worker_id"] = std::to_string(layout.first_rank + event.local_rank);
    details["local_rank"] = {event.local_rank};
    details["role_rank"] = {layout.first_role_rank + event.local_rank};
    details["role_world_size"] = {layout.role_world_size};
    details["exit_code"] = {event.failure ? json(event.failure->status.returncode()) : json()};
    details["worker_pid"] = {event.failure ? json(event.failure->pid) : json()};
  }
  metadata["metadata"] = details.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string name = event.name.empty() ? fmt::format("torchelastic.worker.status.{}", event.state) : event.name;
  const json line = {{"name", name},
                     {"source", event.local_rank < 0 ? "AGENT" : "WORKER"},
                     {"timestamp", milliseconds_since_1970()},
                     {"metadata", metadata}};
  base::write_log_lines(line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace cohort::elastic
