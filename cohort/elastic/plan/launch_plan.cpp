#include "cohort/elastic/plan/launch_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/elastic/events/signals.h"
#include "cohort/elastic/plan/cpu_placement.h"
#include "cohort/elastic/plan/worker_allocator.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

Result<void> plan_logs(const LaunchFlags& flags, LaunchPlan& plan) {
  const int num_workers = plan.rendezvous.local_world_size;
  Result<std::vector<StreamChoice>> redirects = parse_stream_choices("--redirects", flags.redirects, num_workers);
  if (!redirects) return redirects.error();
  plan.logs.redirects = std::move(*redirects);
  Result<std::vector<StreamChoice>> tee = parse_stream_choices("--tee", flags.tee, num_workers);
  if (!tee) return tee.error();
  plan.logs.tee = std::move(*tee);
  Result<std::optional<std::set<int>>> shown = parse_local_ranks_filter(flags.local_ranks_filter);
  if (!shown) return shown.error();
  plan.logs.shown_ranks = std::move(*shown);
  plan.logs.filters = {parse_filters(flags.duplicate_stdout_filters), parse_filters(flags.duplicate_stderr_filters)};
  if (flags.event_log_handler != "null" && flags.event_log_handler != "console") {
    return Error(fmt::format("--event-log-handler={} is neither null nor console{}", flags.event_log_handler,
                             base::did_you_mean(flags.event_log_handler, {"null", "console"})));
  }
  plan.logs_events = flags.event_log_handler == "console";
  return {};
}

/// Sets OMP_NUM_THREADS of each worker: the number of CPUs that it is bound to, else an equal share of the cores.
void plan_threads(const HostFacts& host, LaunchPlan& plan) {
  const int num_workers = plan.rendezvous.local_world_size;
  plan.num_threads.assign(static_cast<size_t>(num_workers), 0);
  if (host.num_threads) return;
  for (size_t i = 0; i < plan.num_threads.size(); ++i) {
    if (!plan.cpus[i].empty()) {
      plan.num_threads[i] = static_cast<int>(plan.cpus[i].size());
    } else if (num_workers > 1) {
      plan.num_threads[i] = std::max(1, host.devices.num_cores / num_workers);
    }
  }
  const auto [least, most] = std::minmax_element(plan.num_threads.begin(), plan.num_threads.end());
  if (*most == 0) return;
  const bool is_bound = !plan.cpus.front().empty();
  plan.threads_note = fmt::format(
      "OMP_NUM_THREADS is not set; setting it to {} for each worker ({})",
      *least == *most ? std::to_string(*most) : fmt::format("{} to {}", *least, *most),
      is_bound ? "the CPUs it is bound to" : fmt::format("{} cores / {} workers", host.devices.num_cores, num_workers));
}

/// Sets CUDA_VISIBLE_DEVICES of each worker: the GPUs of --gpus, or with --virtual-local-rank only its own.
Result<void> plan_gpus(const LaunchFlags& flags, const HostFacts& host, LaunchPlan& plan) {
  const std::string all = !flags.gpus.empty() ? flags.gpus : host.visible_gpus.value_or("");
  plan.gpus.assign(static_cast<size_t>(plan.rendezvous.local_world_size), flags.gpus);
  if (!plan.virtual_local_rank) return {};
  const std::vector<std::string> listed = base::split(all, ',');
  for (size_t i = 0; i < plan.gpus.size(); ++i) {
    if (all.empty()) {
      plan.gpus[i] = std::to_string(i);
    } else if (i < listed.size()) {
      plan.gpus[i] = base::trim(listed[i]);
    } else {
      return Error(fmt::format("local_rank {} exceeds available GPUs in CUDA_VISIBLE_DEVICES={}", i, all))
          .with_hint("start fewer workers: --virtual-local-rank gives each one its own GPU");
    }
  }
  return {};
}

Result<void> plan_variables(const LaunchFlags& flags, LaunchPlan& plan) {
  const auto environment = base::environment();
  auto variables = allocator_variables(flags.allocator, environment, library_folders(environment));
  if (!variables) return variables.error();
  plan.variables = std::move(*variables);
  plan.variables["TORCHELASTIC_SIGNALS_TO_HANDLE"] = flags.signals_to_handle;
  return {};
}

}  // namespace

HostFacts find_host_facts(const LaunchFlags& flags) {
  HostFacts host{.devices = find_host_devices(),
                 .cpus = {},
                 .gpu_nodes = {},
                 .num_threads = base::get_env("OMP_NUM_THREADS"),
                 .visible_gpus = base::get_env("CUDA_VISIBLE_DEVICES")};
  if (!flags.gpus.empty()) host.devices.num_gpus = count_gpus("/dev", flags.gpus);
  if (flags.cpu_bind == "none" && flags.numa_binding.empty()) return host;
  host.cpus = base::read_cpus(base::allowed_cpus());
  host.gpu_nodes = base::gpu_numa_nodes();
  return host;
}

Result<LaunchPlan> plan_launch(const LaunchFlags& flags, const HostFacts& host) {
  LaunchPlan plan = flags.plan;
  if (Result<void> checked = check_program(plan.program); !checked) return checked.error();
  if (Result<void> checked = check_gpus(flags.gpus); !checked) return checked.error();
  const Result<int> local_world_size = parse_local_world_size(flags.local_world_size, host.devices);
  if (!local_world_size) return local_world_size.error();
  plan.rendezvous.local_world_size = *local_world_size;
  Result<rendezvous::Settings> settings = rendezvous::parse_settings(flags.rendezvous, std::move(plan.rendezvous));
  if (!settings) return settings.error();
  plan.rendezvous = std::move(*settings);
  if (Result<void> planned = plan_logs(flags, plan); !planned) return planned.error();
  Result<std::vector<int>> signals = parse_signals(flags.signals_to_handle);
  if (!signals) return signals.error();
  plan.signals = std::move(*signals);
  const Result<CpuBinding> binding = parse_cpu_binding(flags.cpu_bind, flags.numa_binding);
  if (!binding) return binding.error();
  if (*binding != CpuBinding::kNone && host.cpus.empty()) return Error("cannot tell which CPUs this process may use");
  plan.cpus = place_workers(*binding, *local_world_size, host.cpus, host.gpu_nodes);
  plan_threads(host, plan);
  if (Result<void> planned = plan_gpus(flags, host, plan); !planned) return planned.error();
  if (Result<void> planned = plan_variables(flags, plan); !planned) return planned.error();
  return plan;
}

}  // namespace cohort::elastic
