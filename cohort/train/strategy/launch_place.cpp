#include "cohort/train/strategy/launch_place.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/data_parallel/placement.h"
#include "cohort/rendezvous/environment/launch_environment.h"

namespace cohort::train::detail {
namespace {

// The size of the job as known before there is a group; 1 process if no launcher started this one.
struct JobSize {
  int world_size = 1;
  int local_world_size = 1;
  bool is_launched = false;
};

JobSize job_size() {
  const rendezvous::LaunchEnvironment environment;
  const auto number = [&](const char* name) { return base::parse_int(environment.get(name).value_or("")); };
  JobSize job;
  if (is_initialized()) {
    job.is_launched = true;
    job.world_size = get_world_size();
  } else if (const auto size = number("WORLD_SIZE"); size && number("RANK")) {
    job.is_launched = true;
    job.world_size = static_cast<int>(*size);
  }
  job.local_world_size = static_cast<int>(number("LOCAL_WORLD_SIZE").value_or(job.world_size));
  return job;
}

StrategyKind chosen(const std::string& name, const JobSize& job) {
  if (name == "auto") return job.is_launched ? StrategyKind::kDdp : StrategyKind::kSingle;
  const std::vector<std::string> names{"single", "ddp", "fsdp", "data_parallel"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<StrategyKind>(i);
  }
  C10_THROW_ERROR(ValueError,
                  c10::str("[cohort] Trainer: there is no strategy \"", name, "\"", base::did_you_mean(name, names),
                           "\n  hint: use \"auto\", \"single\", \"ddp\", \"fsdp\" or \"data_parallel\""));
}

std::string start_command(int devices, int num_nodes) {
  if (num_nodes <= 1)
    return c10::str("start it with cohort run --standalone --nproc-per-node ", devices,
                    " PROGRAM, or with cohort::spawn");
  return c10::str("start it on each host with cohort run --nnodes ", num_nodes, " --nproc-per-node ", devices,
                  " --rdzv-endpoint HOST:PORT PROGRAM");
}

void check_alone(StrategyKind kind, const JobSize& job) {
  TORCH_CHECK_VALUE(job.world_size == 1, "[cohort] Trainer: strategy \"", name_of(kind),
                    "\" is for one process, but the job has ", job.world_size,
                    "\n  hint: use strategy \"ddp\" or \"auto\", or start the program without a launcher");
}

void check_size(const StrategyOptions& options, StrategyKind kind, const JobSize& job) {
  const int devices = options.devices.value_or(job.local_world_size);
  const int num_nodes = options.num_nodes.value_or(std::max(1, job.world_size / devices));
  const int wanted = devices * num_nodes;
  if (!job.is_launched) {
    TORCH_CHECK_VALUE(wanted == 1, "[cohort] Trainer: strategy \"", name_of(kind), "\" on ", wanted, " devices needs ",
                      wanted,
                      " processes, but this one was started alone\n  hint: ", start_command(devices, num_nodes));
    return;
  }
  TORCH_CHECK_VALUE(!options.devices || *options.devices == job.local_world_size,
                    "[cohort] Trainer: devices = ", devices, " asks for as many processes on each host, but ",
                    "this one has ", job.local_world_size, "\n  hint: ", start_command(devices, num_nodes),
                    "; without devices the Trainer takes what the launcher gives");
  if (!options.num_nodes) return;  // hosts may have different numbers of processes
  TORCH_CHECK_VALUE(wanted == job.world_size, "[cohort] Trainer: num_nodes = ", num_nodes, " with ", devices,
                    " processes on each host makes ", wanted, " processes, but the job has ", job.world_size,
                    "\n  hint: ", start_command(devices, num_nodes),
                    "; without num_nodes the Trainer takes what the launcher gives");
}

c10::Device with_index(c10::Device device) {
  if (device.is_cpu()) return c10::kCPU;
  return device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

std::vector<c10::Device> data_parallel_devices(const StrategyOptions& options) {
  auto devices = options.data_parallel_devices;
  if (devices.empty()) {
    devices = cohort::nn::parallel::all_devices();
    const auto wanted = static_cast<size_t>(options.devices.value_or(0));
    TORCH_CHECK_VALUE(
        wanted <= std::max<size_t>(devices.size(), 1), "[cohort] Trainer: devices = ", wanted,
        " with strategy \"data_parallel\", but this machine has ", devices.size(),
        " accelerators\n  hint: set data_parallel_devices = {at::kCPU, at::kCPU} for replicas on the CPU");
    if (wanted > 0 && !devices.empty()) devices.resize(wanted, devices.front());
  }
  if (devices.empty()) return {c10::kCPU};
  return cohort::nn::parallel::place(devices, std::nullopt, /*dim=*/0).devices;
}

std::vector<c10::Device> devices_of(const StrategyOptions& options, StrategyKind kind) {
  if (kind == StrategyKind::kDataParallel) return data_parallel_devices(options);
  return {with_index(options.device.value_or(current_device()))};
}

// A group of this process alone, for programs without a launcher.
InitOptions group_of_one() {
  InitOptions options;
  options.world_size = 1;
  options.rank = 0;
  options.store = c10::make_intrusive<c10d::HashStore>();
  return options;
}

// Runs at exit and not with the Trainer: the program goes on, and a second Trainer could not meet the same ranks again at once.
void destroy_group_at_exit() {
  static const bool is_registered = std::atexit([] {
                                      if (is_initialized()) destroy_process_group();
                                    }) == 0;
  (void)is_registered;
}

}  // namespace

const char* name_of(StrategyKind kind) {
  switch (kind) {
    case StrategyKind::kSingle:
      return "single";
    case StrategyKind::kDdp:
      return "ddp";
    case StrategyKind::kFsdp:
      return "fsdp";
    case StrategyKind::kDataParallel:
      return "data_parallel";
  }
  return "";
}

std::vector<c10::Device> LaunchPlace::generators() const {
  std::vector<c10::Device> found{c10::kCPU};
  for (const auto& each : devices) {
    if (std::find(found.begin(), found.end(), each) == found.end()) found.push_back(each);
  }
  return found;
}

LaunchPlace take_place(const StrategyOptions& options) {
  for (const auto& [name, value] : {std::pair("devices", options.devices), std::pair("num_nodes", options.num_nodes)}) {
    TORCH_CHECK_VALUE(!value || *value >= 1, "[cohort] Trainer: strategy.", name, " is at least 1, but got ", *value,
                      "\n  hint: leave it out for all there are");
  }
  const JobSize job = job_size();
  LaunchPlace place;
  place.strategy = chosen(options.kind, job);
  if (!place.has_group()) {
    check_alone(place.strategy, job);
    place.devices = devices_of(options, place.strategy);
    place.device = place.devices.front();
    return place;
  }
  check_size(options, place.strategy, job);
  if (!is_initialized()) {
    InitOptions init = job.is_launched ? InitOptions() : group_of_one();
    init.backend = options.backend;
    // On a machine with an accelerator the default backend is for the accelerator only.
    const bool wants_cpu = options.device && options.device->is_cpu();
    if (init.backend.empty() && wants_cpu && !current_device().is_cpu()) init.backend = "cohort";
    init_process_group(init);
    destroy_group_at_exit();
  }
  place.rank = get_rank();
  place.world_size = get_world_size();
  place.num_ranks_here = job.local_world_size;
  place.data_rank = place.rank;
  place.num_data_ranks = place.world_size;
  place.devices = devices_of(options, place.strategy);
  place.device = place.devices.front();
  return place;
}

}  // namespace cohort::train::detail
