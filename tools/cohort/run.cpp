// cohort run: torchrun's command line for programs of any language.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/elastic/agent/launch.h"
#include "cohort/rendezvous/environment/scheduler_flags.h"
#include "tools/cohort/commands.h"
#include "tools/cohort/config_file.h"
#include "tools/cohort/flags.h"
#include "tools/cohort/run.h"

namespace cohort::cli {

using base::Error;
using base::Result;
using std::chrono::milliseconds;

namespace {

const char* const kConfigFlag = "--config";

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "usage: cohort run [flags] PROGRAM [arguments]\n\n"
           "Starts PROGRAM as several ranks on this node. A .py file is run by Python: the one that pip installed\n"
           "this launcher into, or else python3 (PYTHON_EXEC chooses another). Anything else is executed directly.\n"
           "${local_rank} in an argument is replaced by the worker's local rank.\n";
  }
};

Result<void> take_seconds(const std::string& name, const std::string& text, milliseconds* time) {
  const auto seconds = base::parse_double(base::trim(text));
  if (!seconds || *seconds < 0 || *seconds > 1e7) {
    return Error(fmt::format("{}={} must be a number of seconds >= 0", name, text));
  }
  *time = milliseconds(std::llround(*seconds * 1000));
  return {};
}

/// Accepts torchrun's values, which have no effect here.
Result<void> check_start_method(const std::string& method) {
  const std::vector<std::string> methods = {"spawn", "fork", "forkserver"};
  if (std::find(methods.begin(), methods.end(), method) != methods.end()) return {};
  return Error(fmt::format("--start-method={} must be spawn, fork or forkserver{}", method,
                           base::did_you_mean(method, methods)));
}

Result<void> check_logs_specs(const std::string& specs) {
  if (specs.empty() || specs == "default") return {};
  return Error(fmt::format("--logs-specs={} names a plug-in of Python's torchrun, which this launcher cannot load",
                           specs))
      .with_hint("use --log-dir, --redirects, --tee and the filters to choose where output goes");
}

/// The table of flags: their names, their --help texts, and the members of LaunchFlags that they set.
class FlagTable {
 public:
  explicit FlagTable(elastic::LaunchFlags& flags);

  std::string help() const { return app_.help(); }
  std::vector<Flag> names() const;
  /// Reads flags. If a flag is given twice, the last one counts.
  Result<void> read(const std::vector<GivenFlag>& given);

 private:
  void add_size_flags();
  void add_rendezvous_flags();
  void add_program_flags();
  void add_log_flags();
  void add_failure_flags();
  /// Adds a flag that `take` reads. Of several errors the first counts.
  void add(const std::string& name, std::function<Result<void>(const std::string& text)> take, const char* description);
  /// An empty number, such as that of a variable that a template left empty, counts as not given.
  template <typename Number>
  void add_number(const std::string& name, int min, Number* number, const char* description);
  void add_seconds(const std::string& name, milliseconds* seconds, const char* description);

  elastic::LaunchFlags& flags_;
  CLI::App app_;
  std::optional<Error> problem_;
  milliseconds ignored_{0};
};

void FlagTable::add(const std::string& name, std::function<Result<void>(const std::string&)> take,
                    const char* description) {
  app_.add_option_function<std::string>(
      name,
      [this, take = std::move(take)](const std::string& text) {
        Result<void> taken = take(text);
        if (!taken && !problem_) problem_ = taken.error();
      },
      description);
}

template <typename Number>
void FlagTable::add_number(const std::string& name, int min, Number* number, const char* description) {
  add(
      name,
      [name, min, number](const std::string& text) -> Result<void> {
        if (text.empty()) return {};
        const auto value = base::parse_int(base::trim(text));
        if (!value || *value < min || *value > 1 << 30) {
          return Error(fmt::format("{}={} must be a whole number >= {}", name, text, min));
        }
        *number = static_cast<int>(*value);
        return {};
      },
      description);
}

void FlagTable::add_seconds(const std::string& name, milliseconds* seconds, const char* description) {
  add(
      name,
      [name, seconds](const std::string& text) -> Result<void> {
        return text.empty() ? Result<void>() : take_seconds(name, text, seconds);
      },
      description);
}

void FlagTable::add_size_flags() {
  app_.option_defaults()->group("Ranks and their devices");
  app_.add_option("--nproc-per-node", flags_.local_world_size, "Workers on this node: a number, auto, cpu or gpu");
  app_.add_option("--nnodes", flags_.rendezvous.num_nodes,
                  "Number of nodes, or MIN:MAX for a job that nodes may join and leave");
  app_.add_flag("--standalone", flags_.rendezvous.standalone, "One node, on a free port (the default for one node)");
  app_.add_option("--role", flags_.plan.rendezvous.role, "Name of these workers in line prefixes");
  app_.add_option("--cpu-bind", flags_.cpu_bind, "CPUs of each worker: none, cores (an equal share) or numa");
  app_.add_option("--numa-binding", flags_.numa_binding,
                  "CPUs near the worker's GPU: node, socket, exclusive or core-complex");
  app_.add_option(
      "--allocator", flags_.allocator,
      "Allocator of the workers: default, shared (reuses memory, which all ranks of this node map), tcmalloc or "
      "jemalloc");
  app_.add_option("--gpus", flags_.gpus, "GPUs the workers may see, such as 0,2,3");
  app_.add_flag("--virtual-local-rank", flags_.plan.virtual_local_rank,
                "Every worker is local rank 0 and sees only its own GPU");
}

void FlagTable::add_rendezvous_flags() {
  app_.option_defaults()->group("Rendezvous of the nodes");
  rendezvous::Flags& meeting = flags_.rendezvous;
  app_.add_option("--rdzv-backend", meeting.backend, "static, c10d, etcd (also etcd-v2) or file");
  app_.add_option("--rdzv-endpoint", meeting.endpoint, "HOST[:PORT] where the nodes meet; a path for file");
  app_.add_option("--rdzv-id", meeting.run_id, "The job's name, the same on every node");
  app_.add_option("--rdzv-conf", meeting.conf, "More settings: join_timeout=600,last_call_timeout=30,...");
  add_number("--node-rank", 0, &meeting.node_rank, "This node's number, from 0 (static rendezvous)");
  app_.add_option("--master-addr", meeting.master_address, "Address of node 0 (static rendezvous)");
  add_number("--master-port", 1, &meeting.master_port, "Port of node 0 (static rendezvous; 29500 on several nodes)");
  app_.add_option("--local-addr", flags_.plan.rendezvous.local_address,
                  "Address at which the other nodes reach this one");
}

void FlagTable::add_program_flags() {
  app_.option_defaults()->group("Program");
  elastic::WorkerProgram& program = flags_.plan.program;
  app_.add_flag("-m,--module", program.as_module, "PROGRAM is a Python module, as in python -m");
  app_.add_flag("--no-python", program.without_python, "Execute PROGRAM directly, even a .py file");
  app_.add_flag("--run-path", program.as_path, "PROGRAM is a Python script, folder or archive");
  add("--start-method", check_start_method, "Has no effect: each worker is a program of its own");
  add(
      kConfigFlag, [](const std::string&) { return Result<void>(); },
      "TOML file with flags, such as nproc-per-node = 4");
}

void FlagTable::add_log_flags() {
  app_.option_defaults()->group("Output");
  app_.add_option("--log-dir", flags_.plan.logs.folder, "Folder for log and error files (default: a temporary one)");
  app_.add_option("-r,--redirects", flags_.redirects,
                  "Write output to files only: 0 none, 1 stdout, 2 stderr, 3 both; by local rank: 0:1,1:3");
  app_.add_option("-t,--tee", flags_.tee,
                  "Write output to files and, with a prefix on each line, to the console; values as for -r");
  app_.add_option("--local-ranks-filter", flags_.local_ranks_filter, "Show only these local ranks, such as 0,2");
  app_.add_option("--duplicate-stdout-filters", flags_.duplicate_stdout_filters,
                  "Copy teed lines that contain one of these texts to filtered_stdout.log");
  app_.add_option("--duplicate-stderr-filters", flags_.duplicate_stderr_filters,
                  "Copy teed lines that contain one of these texts to filtered_stderr.log");
  app_.add_option("--event-log-handler", flags_.event_log_handler, "null, or console: a JSON line per event on stderr");
  add("--logs-specs", check_logs_specs, "Only \"default\" is possible; others are plug-ins of Python's torchrun");
}

void FlagTable::add_failure_flags() {
  app_.option_defaults()->group("Stopping and failures");
  elastic::LaunchPlan& plan = flags_.plan;
  add_number("--max-restarts", 0, &plan.rendezvous.max_restarts,
             "How often all workers may be restarted after a failure");
  add_seconds("--restart-backoff", &plan.restart_backoff,
              "Seconds before the first restart; doubled before each further one, at most 60");
  add_seconds("--shutdown-timeout", &plan.shutdown_timeout, "Seconds between SIGTERM and SIGKILL (default 30)");
  app_.add_option("--signals-to-handle", flags_.signals_to_handle,
                  "Signals that end the job; they are forwarded to the workers");
  add_seconds("--monitor-interval", &ignored_, "Has no effect: exits are noticed at once");
}

FlagTable::FlagTable(elastic::LaunchFlags& flags) : flags_(flags) {
  app_.set_help_flag();  // CLI11's own help flag would be the first option; ours is the last
  app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app_.formatter(std::make_shared<HelpFormatter>());
  app_.get_formatter()->column_width(34);
  app_.footer(
      "Flags may also be written with underscores. A variable PET_<FLAG> in the environment, such as\n"
      "PET_NPROC_PER_NODE=4, sets a flag's default; the command line overrides it, and both override --config.\n"
      "Exit code: 0: all workers of all nodes ended with 0; 1: the job failed or was stopped; 2: wrong flags.");
  add_size_flags();
  add_rendezvous_flags();
  add_program_flags();
  add_log_flags();
  add_failure_flags();
  app_.option_defaults()->group("Other");
  app_.set_help_flag("-h,--help", "Show this text");
  // For torchrun's older way to start programs; cohort launch disables it.
  app_.add_flag_callback(
      "--use-env", [&] { flags_.plan.program.adds_local_rank = false; },
      "With cohort launch: do not pass --local-rank to the workers");
  for (CLI::Option* option : app_.get_options()) {
    if (option->get_items_expected_max() > 0) option->type_name("VALUE");
  }
}

std::vector<Flag> FlagTable::names() const {
  std::vector<Flag> flags;
  for (const CLI::Option* option : app_.get_options()) {
    const bool takes_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames()) flags.push_back({"--" + name, takes_value});
    for (const std::string& name : option->get_snames()) flags.push_back({"-" + name, takes_value});
  }
  return flags;
}

Result<void> FlagTable::read(const std::vector<GivenFlag>& given) {
  try {
    for (const GivenFlag& flag : given) app_.get_option(flag.name)->add_result(flag.value.value_or("true"));
    for (CLI::Option* option : app_.get_options()) {
      if (!option->empty()) option->run_callback();
    }
  } catch (const CLI::Error& error) {
    return Error(error.what());
  }
  return problem_ ? Result<void>(*problem_) : Result<void>();
}

std::string environment_name(const std::string& flag) {
  std::string name = "PET_" + flag.substr(2);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// Returns PET_* variables as flags that come before the command line's own.
Result<std::vector<GivenFlag>> flags_from_environment(const std::vector<Flag>& flags) {
  std::vector<GivenFlag> given;
  for (const Flag& flag : flags) {
    if (flag.name.size() <= 2 || flag.name == "--help" || flag.name == kConfigFlag) continue;
    const std::string name = environment_name(flag.name);
    const auto value = base::get_env(name.c_str());
    if (!value) continue;
    if (flag.takes_value) {
      given.push_back({flag.name, value});
      continue;
    }
    const auto number = base::env_int(name.c_str());
    if (!number) return number.error();
    if (**number != 0) given.push_back({flag.name});
  }
  return given;
}

/// Leaves `time` unchanged if the variable is not set.
Result<void> take_seconds_of_variable(const char* name, milliseconds* time) {
  const auto text = base::get_env(name);
  return text ? take_seconds(name, *text, time) : Result<void>();
}

/// Reads the variables that have no flag, as torchrun does.
Result<void> take_variables(bool has_shutdown_timeout, elastic::LaunchPlan& plan) {
  if (base::get_env("TORCHELASTIC_ENABLE_FILE_TIMER").value_or("") == "1") {
    plan.timer_file = base::get_env("TORCHELASTIC_TIMER_FILE").value_or("");
  }
  const Result<std::optional<long long>> port = base::env_int("TORCHELASTIC_HEALTH_CHECK_PORT", 1, 65535);
  if (!port) return port.error();
  if (*port) plan.health_check_port = static_cast<int>(**port);
  if (!has_shutdown_timeout) {
    if (auto taken = take_seconds_of_variable("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", &plan.shutdown_timeout); !taken)
      return taken;
  }
  return take_seconds_of_variable("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", &plan.stuck_timeout);
}

/// Returns the last value of the flag; "" if there is none.
std::string value_among(const std::vector<GivenFlag>& flags, const char* name) {
  const auto found = std::find_if(flags.rbegin(), flags.rend(), [&](const auto& flag) { return flag.name == name; });
  return found == flags.rend() ? "" : found->value.value_or("");
}

/// Fills `flags`. Returns the help text if help was requested.
Result<std::optional<std::string>> parse(const std::vector<std::string>& arguments, elastic::LaunchFlags& flags) {
  FlagTable table(flags);
  const std::vector<Flag> known = table.names();
  const Result<SplitCommandLine> split = split_command_line(arguments, known);
  if (!split) return split.error();
  const bool wants_help = std::any_of(split->flags.begin(), split->flags.end(),
                                      [](const auto& flag) { return flag.name == "--help" || flag.name == "-h"; });
  if (wants_help) return std::optional<std::string>(table.help());
  std::vector<GivenFlag> given;
  if (const std::string config = value_among(split->flags, kConfigFlag); !config.empty()) {
    Result<std::vector<GivenFlag>> from_file = flags_from_file(config, known);
    if (!from_file) return from_file.error();
    given = std::move(*from_file);
  }
  const Result<std::vector<GivenFlag>> from_environment = flags_from_environment(known);
  if (!from_environment) return from_environment.error();
  given.insert(given.end(), from_environment->begin(), from_environment->end());
  given.insert(given.end(), split->flags.begin(), split->flags.end());
  if (split->program.empty()) return Error("no program given").with_hint("cohort run [flags] PROGRAM [arguments]");
  flags.plan.program.name = split->program.front();
  flags.plan.program.arguments.assign(split->program.begin() + 1, split->program.end());
  if (Result<void> read = table.read(given); !read) return read.error();
  const bool has_shutdown_timeout = !value_among(given, "--shutdown-timeout").empty();
  if (Result<void> taken = take_variables(has_shutdown_timeout, flags.plan); !taken) return taken.error();
  return std::optional<std::string>();
}

int start_job(const std::string& command, const elastic::LaunchFlags& flags) {
  elastic::Consoles consoles;
  const auto fail = [&](const Error& error, int code) {
    base::log_error(fmt::format("{}: {}", command, error.describe()));
    return code;
  };
  const Result<elastic::LaunchPlan> plan = elastic::plan_launch(flags, elastic::find_host_facts(flags));
  if (!plan) return fail(plan.error(), kUsageError);
  const Result<int> code = elastic::launch(*plan, consoles);
  return code ? *code : fail(code.error(), 1);
}

int run(const std::string& command, bool adds_local_rank, const std::vector<std::string>& arguments) {
  elastic::LaunchFlags flags;
  flags.plan.program.adds_local_rank = adds_local_rank;
  const Result<std::optional<std::string>> help = parse(arguments, flags);
  if (!help) {
    base::log_error(fmt::format("{}: {}", command, help.error().describe()));
    return kUsageError;
  }
  if (*help) {
    (void)base::write_all(STDOUT_FILENO, **help);
    return 0;
  }
  const auto note = rendezvous::fill_from_scheduler(flags.rendezvous, base::environment());
  if (!note.text.empty()) base::log(note.is_warning ? base::LogLevel::kWarning : base::LogLevel::kInfo, note.text);
  return start_job(command, flags);
}

}  // namespace

Result<std::optional<std::string>> parse_run_flags(const std::vector<std::string>& arguments,
                                                   elastic::LaunchFlags* flags) {
  return parse(arguments, *flags);
}

int run_command(const std::vector<std::string>& arguments) { return run("cohort run", false, arguments); }

int launch_command(const std::vector<std::string>& arguments) {
  base::log_warning(
      "cohort launch passes a --local-rank argument, as python -m torch.distributed.launch does; new programs should "
      "read LOCAL_RANK and use cohort run");
  return run("cohort launch", true, arguments);
}

}  // namespace cohort::cli
