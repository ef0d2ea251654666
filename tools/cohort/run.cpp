// cohort run: torchrun's command line for programs of any language.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "cohort/base/env.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/elastic/launch.h"
#include "tools/cohort/commands.h"
#include "tools/cohort/flags.h"

namespace cohort::cli {

using base::Error;
using base::Result;

namespace {

/// torchrun's flags that need what the launcher cannot do yet: told apart from a mistyped flag.
const std::vector<std::string> kLaterFlags = {
    "--rdzv-backend",      "--rdzv-endpoint", "--rdzv-id",           "--rdzv-conf",
    "--start-method",      "--run-path",      "--event-log-handler", "--duplicate-stdout-filters",
    "--local-addr",        "--logs-specs",    "--numa-binding",      "--duplicate-stderr-filters",
    "--virtual-local-rank"};

/// Numbers stay texts until the whole line is known, so that an error can quote them.
struct RunFlags {
  elastic::LaunchOptions options;
  std::string node_rank = "0";
  std::string master_port;
  std::string shutdown_timeout;
  std::string max_restarts = "0";
  std::string monitor_interval;
  std::vector<std::string> later = std::vector<std::string>(kLaterFlags.size());
};

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "usage: cohort run [flags] PROGRAM [arguments]\n\n"
           "Starts PROGRAM as several ranks on this node. A .py file is run by the Python that pip installed this\n"
           "launcher into, else by python3 (PYTHON_EXEC chooses another); anything else directly.\n"
           "${local_rank} in an argument becomes the worker's local rank.\n";
  }
};

void add_size_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "How many ranks and where";
  elastic::LaunchOptions& options = flags.options;
  app.add_option("--nproc-per-node", options.local_world_size, "Workers on this node: a number, auto, cpu or gpu")
      ->group(group);
  app.add_option("--nnodes", options.num_nodes, "Number of nodes")->group(group);
  app.add_option("--node-rank", flags.node_rank, "This node's number, from 0")->group(group);
  app.add_flag("--standalone", options.standalone, "One node, on a free port (the default for one node)")->group(group);
  app.add_option("--master-addr", options.master_address, "Address of node 0, where rank 0 hosts the store")
      ->group(group);
  app.add_option("--master-port", flags.master_port, "Port of the store (one node: any free one; several: 29500)")
      ->group(group);
  app.add_option("--role", options.role, "Name of these workers in line prefixes")->group(group);
}

void add_program_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "What to start";
  app.add_flag("-m,--module", flags.options.program.as_module, "PROGRAM is a Python module, as in python -m")
      ->group(group);
  app.add_flag("--no-python", flags.options.program.without_python, "Execute PROGRAM directly, even a .py file")
      ->group(group);
}

void add_log_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "Output";
  elastic::LaunchOptions& options = flags.options;
  app.add_option("--log-dir", options.log_dir, "Folder for log and error files (default: a temporary one)")
      ->group(group);
  app.add_option("-r,--redirects", options.redirects, "Streams into files: 0 none, 1 out, 2 err, 3 both, or 0:1,1:3")
      ->group(group);
  app.add_option("-t,--tee", options.tee, "Streams into files and, with a prefix per line, to the console")
      ->group(group);
  app.add_option("--local-ranks-filter", options.local_ranks_filter, "Show only these local ranks, such as 0,2")
      ->group(group);
}

void add_failure_flags(CLI::App& app, RunFlags& flags) {
  const char* group = "Stopping and failures";
  app.add_option("--shutdown-timeout", flags.shutdown_timeout, "Seconds from SIGTERM to SIGKILL (default 30)")
      ->group(group);
  app.add_option("--signals-to-handle", flags.options.signals_to_handle, "Signals that are forwarded to the workers")
      ->group(group);
  app.add_option("--max-restarts", flags.max_restarts, "Only 0 for now: a failure ends the job")->group(group);
  app.add_option("--monitor-interval", flags.monitor_interval, "Without effect: exits are noticed at once")
      ->group(group);
}

void build_app(CLI::App& app, RunFlags& flags) {
  app.set_help_flag("-h,--help", "Show this text");
  app.get_help_ptr()->group("Other");
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(34);
  app.footer(
      "Flags may be written with underscores. PET_<FLAG> in the environment, such as PET_NPROC_PER_NODE=4,\n"
      "gives a flag's default.");
  add_size_flags(app, flags);
  add_program_flags(app, flags);
  add_log_flags(app, flags);
  add_failure_flags(app, flags);
  for (size_t i = 0; i < kLaterFlags.size(); ++i) app.add_option(kLaterFlags[i], flags.later[i])->group("");
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
    if (flag.name.size() <= 2 || flag.name == "--help") continue;
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

Result<std::chrono::milliseconds> parse_shutdown_timeout(const std::string& flag) {
  const auto inherited = base::get_env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  const std::string text = !flag.empty() ? flag : inherited.value_or("30");
  const auto seconds = base::parse_double(base::trim(text));
  if (!seconds || *seconds < 0 || *seconds > 1e7) {
    const char* source = flag.empty() ? "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" : "--shutdown-timeout";
    return Error(fmt::format("{}={} must be a number of seconds >= 0", source, text));
  }
  return std::chrono::milliseconds(std::llround(*seconds * 1000));
}

Result<void> finish_flags(RunFlags& flags, const std::vector<std::string>& program) {
  for (size_t i = 0; i < kLaterFlags.size(); ++i) {
    if (!flags.later[i].empty()) return Error(fmt::format("{} is not supported yet", kLaterFlags[i]));
  }
  if (program.empty()) return Error("no program given").with_hint("cohort run [flags] PROGRAM [arguments]");
  flags.options.program.name = program.front();
  flags.options.program.arguments.assign(program.begin() + 1, program.end());

  const Result<int> node_rank = parse_number("--node-rank", flags.node_rank, 0);
  if (!node_rank) return node_rank.error();
  flags.options.node_rank = *node_rank;
  if (!flags.master_port.empty()) {
    const Result<int> port = parse_number("--master-port", flags.master_port, 1);
    if (!port) return port.error();
    flags.options.master_port = *port;
  }
  const Result<std::chrono::milliseconds> timeout = parse_shutdown_timeout(flags.shutdown_timeout);
  if (!timeout) return timeout.error();
  flags.options.shutdown_timeout = *timeout;
  const Result<int> max_restarts = parse_number("--max-restarts", flags.max_restarts, 0);
  if (!max_restarts) return max_restarts.error();
  if (*max_restarts > 0) {
    base::log_warning(fmt::format("--max-restarts={}: restarting workers is not supported yet, a failure ends the job",
                                  *max_restarts));
  }
  return {};
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
  Result<std::vector<std::string>> words = flags_from_environment(known);
  if (!words) return words.error();
  words->insert(words->end(), split->flags.begin(), split->flags.end());
  std::reverse(words->begin(), words->end());  // CLI11 takes the words last first
  try {
    app.parse(std::move(*words));
  } catch (const CLI::ParseError& error) {
    return Error(error.what());
  }
  if (Result<void> finished = finish_flags(flags, split->program); !finished) return finished.error();
  return std::optional<std::string>();
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) {
  RunFlags flags;
  const Result<std::optional<std::string>> help = parse(arguments, flags);
  if (!help) {
    base::log_error("cohort run: " + help.error().describe());
    return kUsageError;
  }
  if (*help) {
    (void)base::write_all(STDOUT_FILENO, **help);
    return 0;
  }
  const Result<elastic::LaunchPlan> plan = elastic::plan_launch(flags.options, elastic::find_host_devices());
  if (!plan) {
    base::log_error("cohort run: " + plan.error().describe());
    return kUsageError;
  }
  const Result<int> code = elastic::launch(flags.options);
  if (code) return *code;
  base::log_error("cohort run: " + code.error().describe());
  return 1;
}

}  // namespace cohort::cli
