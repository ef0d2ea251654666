#include "cohort/train/config/run_config.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <unistd.h>

#include <cstdlib>
#include <typeinfo>
#include <utility>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/job/error_file.h"
#include "cohort/report/config/option_set.h"
#include "cohort/report/records/append_file.h"

namespace cohort::train {
namespace {

constexpr const char* kRunConfig = "RunConfig";
constexpr int kUsageError = 2;
constexpr int kFailed = 1;

template <typename T>
report::ProgramOption option_of(const std::string& name, T& value, const std::string& help,
                                const OptionLimits& limits = {}) {
  return {.name = name,
          .target = &value,
          .help = help,
          .limits = {limits.min, limits.above, limits.max, limits.below, limits.choices}};
}

// Prints on rank 0 only, as under a launcher all ranks see the same error.
[[noreturn]] void end_program(int fd, const std::string& text, int code) {
  const auto rank = base::env_int("RANK", 0);
  if (!rank || rank->value_or(0) == 0) static_cast<void>(base::write_all(fd, text).ok());
  std::exit(code);
}

}  // namespace

struct RunConfig::Options {
  report::OptionSet set;
  void add(report::ProgramOption option) { comm::or_throw_value(set.add(std::move(option)), kRunConfig); }
};

RunConfig::RunConfig(std::string program, std::string description)
    : options_(new Options{report::OptionSet(std::move(program), std::move(description))}) {}
RunConfig::~RunConfig() = default;

void RunConfig::section(const std::string& title) { options_->set.section(title); }

void RunConfig::add(const std::string& name, bool& value, const std::string& help) {
  options_->add(option_of(name, value, help));
}
void RunConfig::add(const std::string& name, int64_t& value, const std::string& help, const OptionLimits& limits) {
  options_->add(option_of(name, value, help, limits));
}
void RunConfig::add(const std::string& name, int& value, const std::string& help, const OptionLimits& limits) {
  options_->add(option_of(name, value, help, limits));
}
void RunConfig::add(const std::string& name, double& value, const std::string& help, const OptionLimits& limits) {
  options_->add(option_of(name, value, help, limits));
}
void RunConfig::add(const std::string& name, std::string& value, const std::string& help, const OptionLimits& limits) {
  options_->add(option_of(name, value, help, limits));
}
void RunConfig::add(const std::string& name, std::vector<int64_t>& value, const std::string& help,
                    const OptionLimits& limits) {
  options_->add(option_of(name, value, help, limits));
}
void RunConfig::add(const std::string& name, std::vector<double>& value, const std::string& help,
                    const OptionLimits& limits) {
  options_->add(option_of(name, value, help, limits));
}
void RunConfig::add(const std::string& name, std::vector<std::string>& value, const std::string& help,
                    const OptionLimits& limits) {
  options_->add(option_of(name, value, help, limits));
}

RunConfig::Outcome RunConfig::parse(const std::vector<std::string>& arguments) {
  return comm::or_throw_value(options_->set.parse(arguments)) ? Outcome::kRun : Outcome::kHelp;
}

void RunConfig::parse_or_exit(int argc, const char* const* argv) {
  const auto parsed = options_->set.parse({argv + (argc > 0 ? 1 : 0), argv + argc});
  if (parsed && *parsed) return;
  if (parsed) end_program(STDOUT_FILENO, help(), 0);
  const std::string text = parsed.error().describe();
  // Every rank tells the launcher, which may end rank 0 before it has printed this. After a ValueError the launcher does not
  // restart workers a third time.
  job::write_error_file("ValueError: " + text);
  end_program(STDERR_FILENO, "error: " + text + "\n", kUsageError);
}

int RunConfig::report(const std::exception& error) const {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch ? of_torch->what_without_backtrace() : error.what();
  job::write_error_file(c10::demangle(typeid(error).name()) + ": " + text);
  static_cast<void>(base::write_all(STDERR_FILENO, options_->set.program() + ": error: " + text + "\n").ok());
  return kFailed;
}

std::string RunConfig::help() const { return options_->set.help(); }

bool RunConfig::was_given(const std::string& name) const {
  const report::ProgramOption* option = options_->set.find(name);
  TORCH_CHECK_VALUE(option, "[cohort] RunConfig: there is no option \"", name, "\"");
  return option->is_given;
}

std::string RunConfig::to_toml() const { return options_->set.to_toml(); }

void RunConfig::save(const std::string& path) const {
  const size_t slash = path.find_last_of('/');
  if (slash != std::string::npos) comm::or_throw(report::make_private_folder(path.substr(0, slash)), kRunConfig);
  comm::or_throw(base::write_file_atomically(path, to_toml()), kRunConfig);
}

Hyperparameters RunConfig::values() const { return options_->set.values(); }

}  // namespace cohort::train
