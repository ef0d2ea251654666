#include "cohort/elastic/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <csignal>

#include "cohort/base/cpu.h"
#include "cohort/base/env.h"
#include "cohort/base/log.h"
#include "cohort/base/port.h"
#include "cohort/base/text.h"
#include "cohort/elastic/substitution.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

constexpr int kDefaultMasterPort = 29500;

std::string random_run_id() {
  const Result<std::string> id = base::read_file("/proc/sys/kernel/random/uuid");
  return id ? base::trim(*id) : fmt::format("pid-{}", ::getpid());
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

Result<void> check_nodes(const LaunchOptions& options, const WorldLayout& layout) {
  if (options.standalone && layout.num_nodes > 1) {
    return Error(fmt::format("--standalone is for one node, got --nnodes={}", options.num_nodes));
  }
  if (layout.node_rank < 0 || layout.node_rank >= layout.num_nodes) {
    return Error(fmt::format("--node-rank={} must be from 0 to {} for --nnodes={}", layout.node_rank,
                             layout.num_nodes - 1, options.num_nodes));
  }
  if (options.master_port && (*options.master_port < 1 || *options.master_port > 65535)) {
    return Error(fmt::format("--master-port={} must be from 1 to 65535", *options.master_port));
  }
  return {};
}

std::string line_prefix(const Job& job, int local_rank) {
  const auto pattern = base::get_env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (!pattern) return fmt::format("[{}{}]:", job.role, local_rank);
  return substitute(*pattern, {{"role_name", job.role},
                               {"local_rank", std::to_string(local_rank)},
                               {"rank", std::to_string(job.layout.rank(local_rank))}});
}

Result<std::vector<WorkerSpec>> make_specs(const LaunchOptions& options, const LaunchPlan& plan,
                                           const std::string& attempt_folder) {
  std::vector<WorkerRoutes> routes = plan_worker_routes(plan.logs, attempt_folder);
  std::vector<WorkerSpec> specs;
  for (int local_rank = 0; local_rank < plan.job.layout.local_world_size; ++local_rank) {
    Result<std::vector<std::string>> command = worker_command(options.program, local_rank);
    if (!command) return command.error();
    WorkerRoutes& route = routes[static_cast<size_t>(local_rank)];
    specs.push_back({.rank = plan.job.layout.rank(local_rank),
                     .local_rank = local_rank,
                     .command = std::move(*command),
                     .environment = worker_environment(plan.job, local_rank, route.error_file, plan.threads_per_rank,
                                                       base::environment()),
                     .routes = route,
                     .line_prefix = line_prefix(plan.job, local_rank)});
  }
  return specs;
}

void say_threads(const LaunchPlan& plan, int num_cores) {
  if (plan.threads_per_rank == 0) return;
  base::log_warning(fmt::format("OMP_NUM_THREADS is not set; setting it to {} for each worker ({} cores / {} workers)",
                                plan.threads_per_rank, num_cores, plan.job.layout.local_world_size));
}

/// A launcher that is itself a worker tells its own launcher what the root cause said.
void pass_on_error_file(const WorkerFailure& root) {
  const std::string path = base::get_env("TORCHELASTIC_ERROR_FILE").value_or("");
  const Result<std::string> text = base::read_file(root.error_file);
  if (path.empty() || !text) return;
  if (Result<void> written = base::write_file_atomically(path, error_file_with_code(*text, root.status)); !written) {
    base::log_warning(written.error().describe());
  }
}

int report(const LaunchOptions& options, const GroupResult& result) {
  if (result.ok()) return 0;
  if (result.signal) {
    base::log_error(fmt::format("{} was stopped by {}", options.program.name, base::signal_name(*result.signal)));
  } else {
    pass_on_error_file(root_cause(result.failures));
    const std::string text = format_failure_report(options.program.name, result.failures, host_name());
    (void)base::write_all(STDERR_FILENO, text + "\n");
  }
  return 1;
}

Result<int> run_group(const LaunchOptions& options, const LaunchPlan& plan, const AttemptFolder& folder) {
  Result<std::vector<WorkerSpec>> specs = make_specs(options, plan, folder.path);
  if (!specs) return specs.error();
  // Our own writes to a closed pipe are errors that we read, not our end; workers start with the default again.
  (void)::signal(SIGPIPE, SIG_IGN);
  Result<SessionGuard> guard = SessionGuard::start([&folder] { remove_if_unused(folder); });
  if (!guard) return guard.error();
  Result<SignalSource> signals = SignalSource::create(plan.signals);
  if (!signals) return signals.error();
  WorkerGroup group(options.shutdown_timeout, &*guard);
  if (Result<void> started = group.start(*specs); !started) return started.error();
  return report(options, group.supervise(*signals));
}

}  // namespace

Result<LaunchPlan> plan_launch(const LaunchOptions& options, const HostDevices& devices) {
  LaunchPlan plan;
  WorldLayout& layout = plan.job.layout;
  const Result<int> num_nodes = parse_num_nodes(options.num_nodes);
  if (!num_nodes) return num_nodes.error();
  const Result<int> local_world_size = parse_local_world_size(options.local_world_size, devices);
  if (!local_world_size) return local_world_size.error();
  layout = {*num_nodes, options.node_rank, *local_world_size};
  if (Result<void> checked = check_nodes(options, layout); !checked) return checked.error();

  Result<std::vector<StreamChoice>> redirects =
      parse_stream_choices("--redirects", options.redirects, *local_world_size);
  if (!redirects) return redirects.error();
  Result<std::vector<StreamChoice>> tee = parse_stream_choices("--tee", options.tee, *local_world_size);
  if (!tee) return tee.error();
  Result<std::optional<std::set<int>>> shown = parse_local_ranks_filter(options.local_ranks_filter);
  if (!shown) return shown.error();
  plan.logs = {std::move(*redirects), std::move(*tee), std::move(*shown)};

  Result<std::vector<int>> signals = parse_signals(options.signals_to_handle);
  if (!signals) return signals.error();
  plan.signals = std::move(*signals);
  plan.picks_port = layout.num_nodes == 1 && (options.standalone || !options.master_port);
  plan.job.role = options.role;
  plan.job.handled_signals = options.signals_to_handle;
  if (!plan.picks_port) plan.job.master_address = options.master_address;
  plan.job.master_port = options.master_port.value_or(kDefaultMasterPort);
  if (*local_world_size > 1) plan.threads_per_rank = std::max(1, devices.num_cores / *local_world_size);
  return plan;
}

Result<int> launch(const LaunchOptions& options) {
  const HostDevices devices = find_host_devices();
  Result<LaunchPlan> plan = plan_launch(options, devices);
  if (!plan) return plan.error();
  if (Result<std::vector<std::string>> command = worker_command(options.program, 0); !command) return command.error();
  if (base::get_env("OMP_NUM_THREADS")) plan->threads_per_rank = 0;
  say_threads(*plan, devices.num_cores);

  base::PortReservation port;
  if (plan->picks_port) {
    Result<base::PortReservation> reserved = base::reserve_port();
    if (!reserved) return reserved.error();
    port = std::move(*reserved);
    plan->job.master_port = port.port;
    plan->job.run_id = random_run_id();
  }
  Result<AttemptFolder> folder =
      create_attempt_folder(options.log_dir, plan->job.run_id, plan->job.layout.local_world_size);
  if (!folder) return Error("cannot create the log folder").caused_by(folder.error()).with_hint("give --log-dir");
  Result<int> code = run_group(options, *plan, *folder);
  remove_if_unused(*folder);
  return code;
}

}  // namespace cohort::elastic
