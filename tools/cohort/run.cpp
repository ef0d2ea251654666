// cohort run: torchrun's command line for programs of any language.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "cohort/base/env.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/elastic/launch.h"
#include "cohort/rendezvous/scheduler_flags.h"
#include "tools/cohort/commands.h"
#include "tools/cohort/config_file.h"
#include "tools/cohort/flags.h"
#include "tools/cohort/run.h"

namespace cohort::cli {

using base::Error;
using base::Result;

namespace {

/// Numbers stay texts until the whole line is known, so that an error can quote them.
struct RunFlags {
  elastic::LaunchOptions options;
  std::string node_rank;
  std::string master_port;
  std::string shutdown_timeout;
  std::string max_restarts = "0";
  std::string restart_backoff = "0";
  std::string monitor_interval = "0.1";
  std::string start_method = "spawn";
  std::string logs_specs;
  std::string config;
  bool uses_env = false;
};

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "usage: cohort run [flags] PROGRAM [arguments]\n\n"
           "Starts PROGRAM as several ranks on this node. A .py file is run by Python: the one that pip installed\n"
           "this launcher into, or else python3 (PYTHON_EXEC chooses another). Anything else is executed directly.\n"
           "${local_rank} in an argument is replaced by the worker's local rank.\n";
  }
};

void add_size_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "How many ranks and where";
  rendezvous::Flags& meeting = flags.options.rendezvous;
  app.add_option("--nproc-per-node", flags.options.local_world_size, "Workers on this node: a number, auto, cpu or gpu")
      ->group(group);
  app.add_option("--nnodes", meeting.num_nodes, "Number of nodes, or MIN:MAX for a job that nodes may join and leave")
      ->group(group);
  app.add_flag("--standalone", meeting.standalone, "One node, on a free port (the default for one node)")->group(group);
  app.add_option("--role", meeting.role, "Name of these workers in line prefixes")->group(group);
  app.add_option("--cpu-bind", flags.options.cpu_bind, "CPUs of each worker: none, cores (an equal share) or numa")
      ->group(group);
  app.add_option("--numa-binding", flags.options.numa_binding,
                 "CPUs near the worker's GPU: node, socket, exclusive or core-complex")
      ->group(group);
  app.add_option(
         "--allocator", flags.options.allocator,
         "Memory of the workers' tensors: default, shared (recycled, and mapped by all ranks of this node), tcmalloc "
         "or jemalloc")
      ->group(group);
  app.add_option("--gpus", flags.options.gpus, "GPUs the workers may see, such as 0,2,3")->group(group);
  app.add_flag("--virtual-local-rank", flags.options.virtual_local_rank,
               "Every worker is local rank 0 and sees only its own GPU")
      ->group(group);
}

void add_rendezvous_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "How nodes meet";
  rendezvous::Flags& meeting = flags.options.rendezvous;
  app.add_option("--rdzv-backend", meeting.backend, "static, c10d, etcd (also etcd-v2) or file")->group(group);
  app.add_option("--rdzv-endpoint", meeting.endpoint, "HOST[:PORT] where the nodes meet; a path for file")
      ->group(group);
  app.add_option("--rdzv-id", meeting.run_id, "The job's name, the same on every node")->group(group);
  app.add_option("--rdzv-conf", meeting.conf, "More settings: join_timeout=600,last_call_timeout=30,...")->group(group);
  app.add_option("--node-rank", flags.node_rank, "This node's number, from 0 (static rendezvous)")->group(group);
  app.add_option("--master-addr", meeting.master_address, "Address of node 0 (static rendezvous)")->group(group);
  app.add_option("--master-port", flags.master_port, "Port at node 0 (static rendezvous; 29500 on several nodes)")
      ->group(group);
  app.add_option("--local-addr", meeting.local_address, "Address at which the other nodes reach this one")
      ->group(group);
}

void add_program_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "What to start";
  elastic::WorkerProgram& program = flags.options.program;
  app.add_flag("-m,--module", program.as_module, "PROGRAM is a Python module, as in python -m")->group(group);
  app.add_flag("--no-python", program.without_python, "Execute PROGRAM directly, even a .py file")->group(group);
  app.add_flag("--run-path", program.as_path, "PROGRAM is a Python script, folder or archive")->group(group);
  app.add_option("--start-method", flags.start_method, "Without effect: workers are programs of their own")
      ->group(group);
  app.add_option("--config", flags.config, "TOML file with flags, such as nproc-per-node = 4")->group(group);
}

void add_log_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "Output";
  elastic::LaunchOptions& options = flags.options;
  app.add_option("--log-dir", options.log_dir, "Folder for log and error files (default: a temporary one)")
      ->group(group);
  app.add_option("-r,--redirects", options.redirects,
                 "Output to files instead: 0 none, 1 stdout, 2 stderr, 3 both; by local rank: 0:1,1:3")
      ->group(group);
  app.add_option("-t,--tee", options.tee, "The same, but also to the console, with a prefix on each line")
      ->group(group);
  app.add_option("--local-ranks-filter", options.local_ranks_filter, "Show only these local ranks, such as 0,2")
      ->group(group);
  app.add_option("--duplicate-stdout-filters", options.duplicate_stdout_filters,
                 "Copy teed lines that contain one of these texts to filtered_stdout.log")
      ->group(group);
  app.add_option("--duplicate-stderr-filters", options.duplicate_stderr_filters,
                 "Copy teed lines that contain one of these texts to filtered_stderr.log")
      ->group(group);
  app.add_option("--event-log-handler", options.event_log_handler, "null, or console: a JSON line per event on stderr")
      ->group(group);
  app.add_option("--logs-specs", flags.logs_specs, "Only \"default\": others are plug-ins of Python's torchrun")
      ->group(group);
}

void add_failure_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "Stopping and failures";
  app.add_option("--max-restarts", flags.max_restarts, "How many times all workers may be restarted after a failure")
      ->group(group);
  app.add_option("--restart-backoff", flags.restart_backoff,
                 "Seconds before the first restart; doubled before each further one, at most 60")
      ->group(group);
  app.add_option("--shutdown-timeout", flags.shutdown_timeout, "Seconds from SIGTERM to SIGKILL (default 30)")
      ->group(group);
  app.add_option("--signals-to-handle", flags.options.signals_to_handle,
                 "Signals that end the job; they are forwarded to the workers")
      ->group(group);
  app.add_option("--monitor-interval", flags.monitor_interval, "Without effect: exits are noticed at once")
      ->group(group);
}

void build_app(CLI::App& app, RunFlags& flags) {
  app.set_help_flag();  // its own is the first option; ours comes last
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(34);
  app.footer(
      "Flags may also be written with underscores. A variable PET_<FLAG> in the environment, such as\n"
      "PET_NPROC_PER_NODE=4, sets a flag's default; the command line overrides it, and both override --config.\n"
      "Exit code: 0: all workers of all nodes ended with 0; 1: the job failed or was stopped; 2: wrong flags.");
  add_size_flags(app, flags);
  add_rendezvous_flags(app, flags);
  add_program_flags(app, flags);
  add_log_flags(app, flags);
  add_failure_flags(app, flags);
  app.set_help_flag("-h,--help", "Show this text")->group("Other");
  // torchrun's older way to be started; cohort launch turns it off.
  app.add_flag("--use-env", flags.uses_env, "For cohort launch: give workers no --local-rank argument")->group("Other");
  for (CLI::Option* option : app.get_options()) {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (option->get_items_expected_max() > 0) option->type_name("VALUE");
  }
}

std::vector<Flag> flags_of(const CLI::App& app) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : app.get_options()) {
    const bool takes_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames()) flags.push_back({"--" + name, takes_value});
    for (const std::string& name : option->get_snames()) flags.push_back({"-" + name, takes_value});
  }
  return flags;
}

std::string environment_name(const std::string& flag) {
  std::string name = "PET_" + flag.substr(2);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// PET_* variables as flags that stand before the command line's own.
Result<std::vector<std::string>> flags_from_environment(const std::vector<Flag>& flags) {
  std::vector<std::string> words;
  for (const Flag& flag : flags) {
    if (flag.name.size() <= 2 || flag.name == "--help" || flag.name == "--config") continue;
    const std::string name = environment_name(flag.name);
    const auto value = base::get_env(name.c_str());
    if (!value) continue;
    if (flag.takes_value) {
      words.push_back(fmt::format("{}={}", flag.name, *value));
      continue;
    }
    const auto number = base::env_int(name.c_str());
    if (!number) return number.error();
    if (**number != 0) words.push_back(flag.name);
  }
  return words;
}

Result<int> parse_number(const char* flag, const std::string& text, int min) {
  const auto value = base::parse_int(base::trim(text));
  if (!value || *value < min || *value > 1 << 30) {
    return Error(fmt::format("{}={} must be a whole number >= {}", flag, text, min));
  }
  return static_cast<int>(*value);
}

Result<std::chrono::milliseconds> parse_seconds(const std::string& name, const std::string& text) {
  const auto seconds = base::parse_double(base::trim(text));
  if (!seconds || *seconds < 0 || *seconds > 1e7) {
    return Error(fmt::format("{}={} must be a number of seconds >= 0", name, text));
  }
  return std::chrono::milliseconds(std::llround(*seconds * 1000));
}

Result<void> parse_times(RunFlags& flags) {
  const auto inherited = base::get_env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  const bool is_given = !flags.shutdown_timeout.empty();
  const auto shutdown = parse_seconds(is_given ? "--shutdown-timeout" : "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
                                      is_given ? flags.shutdown_timeout : inherited.value_or("30"));
  if (!shutdown) return shutdown.error();
  flags.options.shutdown_timeout = *shutdown;
  const auto backoff = parse_seconds("--restart-backoff", flags.restart_backoff);
  if (!backoff) return backoff.error();
  flags.options.restart_backoff = *backoff;
  const auto interval = parse_seconds("--monitor-interval", flags.monitor_interval);
  if (!interval) return interval.error();
  const char* stuck_name = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
  const auto stuck = parse_seconds(stuck_name, base::get_env(stuck_name).value_or("0"));
  if (!stuck) return stuck.error();
  flags.options.stuck_timeout = *stuck;
  return {};
}

/// What has no flag, as in torchrun.
Result<void> parse_environment(elastic::LaunchOptions& options) {
  options.watches_timers = base::get_env("TORCHELASTIC_ENABLE_FILE_TIMER").value_or("") == "1";
  options.timer_file = base::get_env("TORCHELASTIC_TIMER_FILE").value_or("");
  const Result<std::optional<long long>> port = base::env_int("TORCHELASTIC_HEALTH_CHECK_PORT", 1, 65535);
  if (!port) return port.error();
  if (*port) options.health_check_port = static_cast<int>(**port);
  return {};
}

Result<void> parse_numbers(RunFlags& flags) {
  rendezvous::Flags& meeting = flags.options.rendezvous;
  if (!flags.node_rank.empty()) {
    const Result<int> node_rank = parse_number("--node-rank", flags.node_rank, 0);
    if (!node_rank) return node_rank.error();
    meeting.node_rank = *node_rank;
  }
  if (!flags.master_port.empty()) {
    const Result<int> port = parse_number("--master-port", flags.master_port, 1);
    if (!port) return port.error();
    meeting.master_port = *port;
  }
  const Result<int> max_restarts = parse_number("--max-restarts", flags.max_restarts, 0);
  if (!max_restarts) return max_restarts.error();
  meeting.max_restarts = *max_restarts;
  return {};
}

Result<void> finish_flags(RunFlags& flags, const std::vector<std::string>& program) {
  if (program.empty()) return Error("no program given").with_hint("cohort run [flags] PROGRAM [arguments]");
  flags.options.program.name = program.front();
  flags.options.program.arguments.assign(program.begin() + 1, program.end());
  const std::vector<std::string> methods = {"spawn", "fork", "forkserver"};
  if (std::find(methods.begin(), methods.end(), flags.start_method) == methods.end()) {
    return Error(fmt::format("--start-method={} must be spawn, fork or forkserver{}", flags.start_method,
                             base::did_you_mean(flags.start_method, methods)));
  }
  if (!flags.logs_specs.empty() && flags.logs_specs != "default") {
    return Error(fmt::format("--logs-specs={} names a plug-in of Python's torchrun, which this launcher cannot load",
                             flags.logs_specs))
        .with_hint("--log-dir, --redirects, --tee and the filters say where output goes");
  }
  if (Result<void> parsed = parse_numbers(flags); !parsed) return parsed.error();
  if (Result<void> parsed = parse_environment(flags.options); !parsed) return parsed.error();
  return parse_times(flags);
}

void parse_words(CLI::App& app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11 takes the words last first
  app.parse(std::move(words));
}

/// The value of --config; later ones win.
std::string config_among(const std::vector<std::string>& flags) {
  const std::string prefix = "--config=";
  std::string path;
  for (const std::string& flag : flags) {
    if (flag.starts_with(prefix)) path = flag.substr(prefix.size());
  }
  return path;
}

/// Fills `flags`; the text is help to print, if that was asked for.
Result<std::optional<std::string>> parse(const std::vector<std::string>& arguments, RunFlags& flags) {
  CLI::App app;
  build_app(app, flags);
  const std::vector<Flag> known = flags_of(app);
  Result<SplitCommandLine> split = split_command_line(arguments, known);
  if (!split) return split.error();
  const bool wants_help = std::any_of(split->flags.begin(), split->flags.end(),
                                      [](const std::string& flag) { return flag == "--help" || flag == "-h"; });
  if (wants_help) return std::optional<std::string>(app.help());
  std::vector<std::string> words;
  if (const std::string config = config_among(split->flags); !config.empty()) {
    Result<std::vector<std::string>> from_file = flags_from_file(config, known);
    if (!from_file) return from_file.error();
    words = std::move(*from_file);
  }
  Result<std::vector<std::string>> from_environment = flags_from_environment(known);
  if (!from_environment) return from_environment.error();
  words.insert(words.end(), from_environment->begin(), from_environment->end());
  words.insert(words.end(), split->flags.begin(), split->flags.end());
  try {
    parse_words(app, std::move(words));
  } catch (const CLI::ParseError& error) {
    return Error(error.what());
  }
  if (Result<void> finished = finish_flags(flags, split->program); !finished) return finished.error();
  return std::optional<std::string>();
}

int start_job(const std::string& command, const elastic::LaunchOptions& options) {
  elastic::Consoles consoles;
  const auto fail = [&](const Error& error, int code) {
    base::log_error(fmt::format("{}: {}", command, error.describe()));
    return code;
  };
  const Result<elastic::LaunchPlan> plan = elastic::plan_launch(options, elastic::find_host_facts(options));
  if (!plan) return fail(plan.error(), kUsageError);
  const Result<int> code = elastic::launch(options, *plan, consoles);
  return code ? *code : fail(code.error(), 1);
}

int run(const std::string& command, bool adds_local_rank, const std::vector<std::string>& arguments) {
  RunFlags flags;
  const Result<std::optional<std::string>> help = parse(arguments, flags);
  if (!help) {
    base::log_error(fmt::format("{}: {}", command, help.error().describe()));
    return kUsageError;
  }
  if (*help) {
    (void)base::write_all(STDOUT_FILENO, **help);
    return 0;
  }
  const auto note = rendezvous::fill_from_scheduler(flags.options.rendezvous, base::environment());
  if (!note.text.empty()) base::log(note.is_warning ? base::LogLevel::kWarning : base::LogLevel::kInfo, note.text);
  flags.options.program.adds_local_rank = adds_local_rank && !flags.uses_env;
  return start_job(command, flags.options);
}

}  // namespace

Result<std::optional<std::string>> parse_run_flags(const std::vector<std::string>& arguments,
                                                   elastic::LaunchOptions* options) {
  RunFlags flags;
  auto help = parse(arguments, flags);
  *options = std::move(flags.options);
  return help;
}

int run_command(const std::vector<std::string>& arguments) { return run("cohort run", false, arguments); }

int launch_command(const std::vector<std::string>& arguments) {
  base::log_warning(
      "cohort launch passes a --local-rank argument, as python -m torch.distributed.launch does; new programs should "
      "read LOCAL_RANK and use cohort run");
  return run("cohort launch", true, arguments);
}

}  // namespace cohort::cli
