#include "cohort/elastic/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "cohort/base/env.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/elastic/agent.h"
#include "cohort/elastic/cpu_placement.h"
#include "cohort/elastic/orphans.h"
#include "cohort/elastic/worker_allocator.h"
#include "cohort/store/token.h"
#include "cohort/vault/vault_server.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

Result<LogOptions> plan_logs(const LaunchOptions& options, int local_world_size) {
  Result<std::vector<StreamChoice>> redirects =
      parse_stream_choices("--redirects", options.redirects, local_world_size);
  if (!redirects) return redirects.error();
  Result<std::vector<StreamChoice>> tee = parse_stream_choices("--tee", options.tee, local_world_size);
  if (!tee) return tee.error();
  Result<std::optional<std::set<int>>> shown = parse_local_ranks_filter(options.local_ranks_filter);
  if (!shown) return shown.error();
  return LogOptions{
      .redirects = std::move(*redirects),
      .tee = std::move(*tee),
      .shown_ranks = std::move(*shown),
      .filters = {parse_filters(options.duplicate_stdout_filters), parse_filters(options.duplicate_stderr_filters)}};
}

/// OMP_NUM_THREADS of each worker: the CPUs it is bound to, else an equal share of the cores.
std::vector<int> plan_threads(const LaunchPlan& plan, const HostFacts& host) {
  const auto count = static_cast<size_t>(plan.local_world_size);
  std::vector<int> threads(count, 0);
  if (host.num_threads) return threads;
  for (size_t i = 0; i < count; ++i) {
    if (!plan.cpus[i].empty()) {
      threads[i] = static_cast<int>(plan.cpus[i].size());
    } else if (count > 1) {
      threads[i] = std::max(1, host.devices.num_cores / plan.local_world_size);
    }
  }
  return threads;
}

/// CUDA_VISIBLE_DEVICES of each worker: the GPUs of --gpus, or with --virtual-local-rank its own alone.
Result<std::vector<std::string>> plan_gpus(const LaunchOptions& options, const LaunchPlan& plan,
                                           const HostFacts& host) {
  const std::string all = !options.gpus.empty() ? options.gpus : host.visible_gpus.value_or("");
  std::vector<std::string> gpus(static_cast<size_t>(plan.local_world_size), options.gpus);
  if (!options.virtual_local_rank) return gpus;
  const std::vector<std::string> listed = base::split(all, ',');
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (all.empty()) {
      gpus[i] = std::to_string(i);
    } else if (i < listed.size()) {
      gpus[i] = base::trim(listed[i]);
    } else {
      return Error(fmt::format("local_rank {} exceeds available GPUs in CUDA_VISIBLE_DEVICES={}", i, all))
          .with_hint("--virtual-local-rank gives each worker a GPU of its own; start fewer workers");
    }
  }
  return gpus;
}

void say_threads(const LaunchPlan& plan, const HostFacts& host) {
  const auto [least, most] = std::minmax_element(plan.num_threads.begin(), plan.num_threads.end());
  if (*most == 0) return;
  const bool is_bound = !plan.cpus.front().empty();
  const std::string why = is_bound
                              ? "the CPUs it is bound to"
                              : fmt::format("{} cores / {} workers", host.devices.num_cores, plan.local_world_size);
  const std::string number = *least == *most ? std::to_string(*most) : fmt::format("{} to {}", *least, *most);
  base::log_warning(fmt::format("OMP_NUM_THREADS is not set; setting it to {} for each worker ({})", number, why));
}

Result<std::optional<WatchdogTimer>> make_watchdog(const LaunchOptions& options) {
  if (!options.watches_timers) return std::optional<WatchdogTimer>();
  Result<WatchdogTimer> watchdog = WatchdogTimer::create(options.timer_file);
  if (!watchdog) return watchdog.error();
  return std::optional<WatchdogTimer>(std::move(*watchdog));
}

/// Null, and that is said, where there can be none: jobs go on without snapshots.
std::unique_ptr<vault::VaultServer> make_vault(const LaunchPlan& plan) {
  const Result<std::string> token = store::find_token(plan.rendezvous.token_file);
  if (!token) return nullptr;  // the rendezvous says so
  Result<std::unique_ptr<vault::VaultServer>> vault = vault::VaultServer::start(*token);
  if (vault) return std::move(*vault);
  base::log_warning(Error("workers cannot keep snapshots in memory").caused_by(vault.error()).describe());
  return nullptr;
}

Result<int> run_agent(const LaunchOptions& options, const LaunchPlan& plan, const LogFolder& folder,
                      Consoles& consoles) {
  // Our own writes to a closed pipe are errors that we read, not our end; workers start with the default again.
  (void)::signal(SIGPIPE, SIG_IGN);
  // The guard is a fork and signals are blocked for all threads: both come before the rendezvous's thread.
  Result<std::optional<WatchdogTimer>> watchdog = make_watchdog(options);
  if (!watchdog) return watchdog.error();
  const std::string mark = make_agent_mark();
  Result<SessionGuard> guard = SessionGuard::start(mark, [&folder, &watchdog] {
    if (*watchdog) (*watchdog)->remove_files();
    remove_if_unused(folder);
  });
  if (!guard) return guard.error();
  const Orphans orphans = Orphans::adopt();
  std::vector<int> heard = plan.signals;
  heard.insert(heard.end(), {SIGUSR1, SIGUSR2});
  Result<SignalSource> signals = SignalSource::create(heard);
  if (!signals) return signals.error();
  WatchdogTimer* const timer = *watchdog ? &**watchdog : nullptr;
  // Its thread must not hear signals either.
  const std::unique_ptr<vault::VaultServer> vault = make_vault(plan);
  const AgentTools tools{.folder = folder,
                         .guard = *guard,
                         .mark = mark,
                         .orphans = orphans,
                         .signals = *signals,
                         .consoles = consoles,
                         .watchdog = timer,
                         .vault = vault.get()};
  Result<int> code = Agent(options, plan, tools).run();
  // The job is over: a signal that comes late changes neither the exit code nor what is cleaned up.
  for (const int signal : heard) (void)::signal(signal, SIG_IGN);
  return code;
}

}  // namespace

HostFacts find_host_facts(const LaunchOptions& options) {
  HostFacts host{.devices = find_host_devices(),
                 .cpus = {},
                 .gpu_nodes = {},
                 .num_threads = base::get_env("OMP_NUM_THREADS"),
                 .visible_gpus = base::get_env("CUDA_VISIBLE_DEVICES")};
  if (!options.gpus.empty()) host.devices.num_gpus = count_gpus("/dev", options.gpus);
  if (options.cpu_bind == "none" && options.numa_binding.empty()) return host;
  host.cpus = base::read_cpus(base::allowed_cpus());
  host.gpu_nodes = base::gpu_numa_nodes();
  return host;
}

Result<LaunchPlan> plan_launch(const LaunchOptions& options, const HostFacts& host) {
  LaunchPlan plan;
  if (Result<void> checked = check_program(options.program); !checked) return checked.error();
  if (Result<void> checked = check_gpus(options.gpus); !checked) return checked.error();
  const Result<int> local_world_size = parse_local_world_size(options.local_world_size, host.devices);
  if (!local_world_size) return local_world_size.error();
  plan.local_world_size = *local_world_size;
  rendezvous::Flags flags = options.rendezvous;
  flags.local_world_size = *local_world_size;
  Result<rendezvous::Settings> settings = rendezvous::parse_settings(flags);
  if (!settings) return settings.error();
  plan.rendezvous = std::move(*settings);

  Result<LogOptions> logs = plan_logs(options, *local_world_size);
  if (!logs) return logs.error();
  plan.logs = std::move(*logs);
  if (options.event_log_handler != "null" && options.event_log_handler != "console") {
    return Error(fmt::format("--event-log-handler={} is neither null nor console{}", options.event_log_handler,
                             base::did_you_mean(options.event_log_handler, {"null", "console"})));
  }
  plan.logs_events = options.event_log_handler == "console";
  Result<std::vector<int>> signals = parse_signals(options.signals_to_handle);
  if (!signals) return signals.error();
  plan.signals = std::move(*signals);

  const Result<CpuBinding> binding = parse_cpu_binding(options.cpu_bind, options.numa_binding);
  if (!binding) return binding.error();
  if (*binding != CpuBinding::kNone && host.cpus.empty()) return Error("cannot tell which CPUs this process may use");
  plan.cpus = place_workers(*binding, *local_world_size, host.cpus, host.gpu_nodes);
  plan.num_threads = plan_threads(plan, host);
  Result<std::vector<std::string>> gpus = plan_gpus(options, plan, host);
  if (!gpus) return gpus.error();
  plan.gpus = std::move(*gpus);
  const auto environment = base::environment();
  auto variables = allocator_variables(options.allocator, environment, library_folders(environment));
  if (!variables) return variables.error();
  plan.allocator_variables = std::move(*variables);
  return plan;
}

Result<int> launch(const LaunchOptions& options, const LaunchPlan& plan, Consoles& consoles) {
  consoles.patience = options.shutdown_timeout;
  if (Result<std::vector<std::string>> command = worker_command(options.program, 0); !command) return command.error();
  say_threads(plan, find_host_facts(options));
  const Result<LogFolder> folder = create_log_folder(options.log_dir, plan.rendezvous.run_id);
  if (!folder) return no_log_folder(options.log_dir, folder.error());
  Result<int> code = run_agent(options, plan, *folder, consoles);
  remove_if_unused(*folder);
  return code;
}

}  // namespace cohort::elastic
