#include "cohort/rendezvous/environment/scheduler_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "cohort/base/net/address.h"
#include "cohort/base/text/text.h"
#include "cohort/rendezvous/environment/mpi_proxy.h"

namespace cohort::rendezvous {
namespace {

struct MeetingPoint {
  std::string host;
  std::optional<int> port;
};

MeetingPoint meeting_point(const SchedulerEnvironment& scheduler, const Variables& variables) {
  MeetingPoint point{.host = scheduler.first_host, .port = scheduler.port};
  if (const auto host = variables.find("MASTER_ADDR"); host != variables.end() && !host->second.empty()) {
    point.host = host->second;
  }
  if (const auto port = variables.find("MASTER_PORT"); port != variables.end()) {
    const auto number = base::parse_int(base::trim(port->second));
    if (number && *number > 0 && *number < 65'536) point.port = static_cast<int>(*number);
  }
  return point;
}

// A pod knows its index, but not the number of pods: it is a node of a job only if --nnodes says so.
std::optional<int> number_of_agents(const Flags& flags, const SchedulerEnvironment& scheduler) {
  if (scheduler.world_size) return scheduler.world_size;
  const auto given = base::parse_int(base::split(flags.num_nodes, ':').back());
  if (!given || *given < 2 || !scheduler.rank) return std::nullopt;
  return static_cast<int>(*given);
}

void fill_meeting_point(Flags& flags, const MeetingPoint& point, std::vector<std::string>& filled) {
  if (!flags.endpoint.empty()) return;
  if (flags.backend == "c10d") {
    flags.endpoint = point.port ? base::host_and_port(point.host, *point.port) : point.host;
    filled.push_back("--rdzv-endpoint=" + flags.endpoint);
    return;
  }
  if (flags.backend != "static") return;
  if (flags.master_address == Flags().master_address && flags.master_address != point.host) {
    flags.master_address = point.host;
    filled.push_back("--master-addr=" + point.host);
  }
  if (!flags.master_port && point.port) {
    flags.master_port = point.port;
    filled.push_back(fmt::format("--master-port={}", *point.port));
  }
}

}  // namespace

SchedulerNote fill_from_scheduler(Flags& flags, const Variables& variables) {
  auto scheduler = read_scheduler(variables);
  if (!scheduler || flags.standalone || flags.num_nodes == "1") return {};
  const bool chosen = flags.num_nodes != Flags().num_nodes;
  if (!scheduler->rank) {
    if (chosen || scheduler->num_nodes.value_or(1) < 2) return {};
    return {.text = fmt::format("{} has {} nodes, but only this one takes part: start one agent per node with "
                                "srun --ntasks-per-node=1 cohort run ...",
                                scheduler->found, *scheduler->num_nodes),
            .is_warning = true};
  }
  const auto num_agents = number_of_agents(flags, *scheduler);
  if (!num_agents || *num_agents < 2) return {};
  if (!scheduler->port && scheduler->is_one_host()) scheduler->port = port_of_mpi_proxy(::getpid());
  const auto point = meeting_point(*scheduler, variables);
  const bool needs_host = flags.endpoint.empty() && (flags.backend == "c10d" || flags.backend == "static");
  if (needs_host && point.host.empty() && flags.master_address == Flags().master_address) {
    return {.text = fmt::format("{}, but this agent runs alone: {}", scheduler->found, scheduler->gap),
            .is_warning = true};
  }
  std::vector<std::string> filled;
  if (!chosen) {
    flags.num_nodes = std::to_string(*num_agents);
    filled.push_back("--nnodes=" + flags.num_nodes);
  }
  if (flags.backend == "static" && !flags.node_rank) {
    flags.node_rank = scheduler->rank;
    filled.push_back(fmt::format("--node-rank={}", *flags.node_rank));
  }
  fill_meeting_point(flags, point, filled);
  if (flags.run_id == Flags().run_id && !scheduler->job_id.empty()) {
    flags.run_id = scheduler->job_id;
    filled.push_back("--rdzv-id=" + flags.run_id);
  }
  if (filled.empty()) return {};
  return {.text = fmt::format("{}: {}", scheduler->found, base::join(filled, " "))};
}

}  // namespace cohort::rendezvous
