// cohort-data: downloads official datasets, and makes small synthetic ones in the same formats. Does not link LibTorch.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <csignal>
#include <string>

#include "cohort/base/file/file.h"
#include "cohort/base/file/open_file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/extras/files/sets/fetch.h"
#include "cohort/extras/files/synthetic/synthetic_dataset.h"
#include "cohort/version.h"
#include "tools/parse_problem.h"

namespace cohort::data_cli {
namespace {

constexpr int kUsageError = 2;
constexpr int kInterrupted = 130;

volatile std::sig_atomic_t interrupted = 0;

void hear_signals(void (*handler)(int)) {
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
}

// From here on signals end the program: it only has to print its result, and a reader may not read it.
void finish_work() { hear_signals(SIG_DFL); }

void print(const std::string& text) { (void)base::write_all(STDOUT_FILENO, text); }

int fail(const base::Error& error) {
  base::log_error(error.describe());
  return interrupted ? kInterrupted : 1;
}

int list_command() {
  std::string text = "Official datasets, for \"cohort-data fetch NAME\":\n";
  for (const auto& set : files::official_sets()) text += fmt::format("  {:<17} {}\n", set.name, set.summary);
  text += "\nSynthetic datasets, for \"cohort-data make NAME\":\n";
  for (const auto& set : files::synthetic_datasets()) {
    text += fmt::format("  {:<17} {}; {} samples by default\n", set.name, set.summary, set.default_samples);
  }
  print(text);
  return 0;
}

struct FetchFlags {
  std::string name;
  std::string root = "data";
  std::string mirror;
  int connect_timeout = 30;
  int stall_timeout = 60;
};

// Rewrites one line, if a person looks at it.
void show_progress(const files::SetFile& file, uint64_t done, uint64_t total) {
  if (!isatty(STDERR_FILENO)) return;
  const std::string all = total ? " of " + base::format_bytes(total) : "";
  (void)base::write_all(STDERR_FILENO, fmt::format("\r{}: {}{}   ", file.target, base::format_bytes(done), all));
}

int fetch_command(const FetchFlags& flags) {
  files::FetchOptions options{.mirror = flags.mirror,
                              .connect_timeout = std::chrono::seconds(flags.connect_timeout),
                              .stall_timeout = std::chrono::seconds(flags.stall_timeout),
                              .on_progress = {}};
  options.on_progress = [](const files::SetFile& file, uint64_t done, uint64_t total) {
    show_progress(file, done, total);
    return !interrupted;
  };
  const auto fetched = files::fetch(flags.name, flags.root, options);
  finish_work();
  if (isatty(STDERR_FILENO)) (void)base::write_all(STDERR_FILENO, "\n");
  if (!fetched) return fail(fetched.error());
  for (const auto& file : files::find_official_set(flags.name)->files) {
    print(fmt::format("{}/{}{}\n", flags.root, file.target, *fetched == 0 ? " (was there already)" : ""));
  }
  return 0;
}

struct MakeFlags {
  std::string name;
  std::string root = "data";
  files::SyntheticDatasetOptions options;
};

int make_command(MakeFlags flags) {
  flags.options.stops = [] { return interrupted != 0; };
  const auto folder = files::make_synthetic_dataset(flags.name, flags.root, flags.options);
  finish_work();
  if (!folder) {
    const base::Error& error = folder.error();
    if (error.message().ends_with("is there already")) {
      return fail(base::Error(error.message()).with_hint("use --force to replace it"));
    }
    return fail(error);
  }
  print(*folder + "\n");
  return 0;
}

void add_fetch(CLI::App& app, FetchFlags& flags) {
  auto* const command =
      app.add_subcommand("fetch", "download an official dataset, and compare it with its published digest");
  command->add_option("NAME", flags.name, "the dataset; cohort-data list names them")->required();
  command->add_option("--root", flags.root, "folder to put it into (default: data)");
  command->add_option("--mirror", flags.mirror,
                      "http://host:port that has the same paths (default: the publishers' hosts)");
  command->add_option("--connect-timeout", flags.connect_timeout, "seconds to wait for a connection (default: 30)")
      ->check(CLI::Range(1, 86400));
  command->add_option("--stall-timeout", flags.stall_timeout, "seconds to wait for data (default: 60)")
      ->check(CLI::Range(1, 86400));
}

void add_make(CLI::App& app, MakeFlags& flags) {
  auto* const command = app.add_subcommand("make", "write a small synthetic dataset in the format of the official one");
  command->add_option("NAME", flags.name, "the dataset; cohort-data list names them")->required();
  command->add_option("--root", flags.root, "folder to put it into (default: data)");
  command
      ->add_option("--samples", flags.options.num_samples,
                   "samples for training; the test set gets a fifth of it (default: see list)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  command->add_option("--seed", flags.options.seed, "the same seed gives the same bytes (default: 0)");
  command->add_flag("--python", flags.options.pickled,
                    "cifar10 and cifar100: batches that Python's pickle reads (default: binary)");
  command->add_flag("--force", flags.options.overwrite, "replace an existing dataset (default: an error)");
}

int main_command(int argc, char** argv) {
  CLI::App app("Downloads official datasets, and makes small synthetic ones in the same formats.", "cohort-data");
  app.set_version_flag("--version", "cohort-data " COHORT_VERSION, "show the version");
  app.require_subcommand(1);
  FetchFlags fetch_flags;
  MakeFlags make_flags;
  auto* const list = app.add_subcommand("list", "list the datasets that can be downloaded and made");
  add_fetch(app, fetch_flags);
  add_make(app, make_flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    base::log_error(parse_problem(app, error) + "\n  hint: run cohort-data --help for the commands and their flags");
    return kUsageError;
  }
  if (list->parsed()) return list_command();
  hear_signals([](int) { interrupted = 1; });
  return app.got_subcommand("fetch") ? fetch_command(fetch_flags) : make_command(make_flags);
}

}  // namespace
}  // namespace cohort::data_cli

int main(int argc, char** argv) {
  cohort::base::open_standard_streams();
  try {
    return cohort::data_cli::main_command(argc, argv);
  } catch (const std::exception& error) {  // out of memory
    cohort::base::log_error(error.what());
    return 1;
  }
}
