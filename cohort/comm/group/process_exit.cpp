// [Note: exit] The destructor of a group with an operation that nobody waited for blocks until the timeout (30 minutes).
// So groups are in a World that is never destroyed. At exit, a program that ends well completes such operations; groups are
// released only if every operation has completed.
#include <c10/util/Exception.h>
#include <cxxabi.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <sstream>

#include "cohort/base/log/log.h"
#include "cohort/base/log/terminal.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/backend/background_threads.h"
#include "cohort/comm/group/world.h"
#include "cohort/comm/watch/tracked_work.h"
#include "cohort/comm/watch/unawaited_works.h"
#include "cohort/job/error_file.h"

namespace cohort::comm {
namespace {

constexpr unsigned kCrashLimitSeconds = 10;

std::terminate_handler previous_handler = nullptr;

// Completes operations, because other ranks may wait in them. Returns: how many could not be completed.
size_t complete_operations() {
  try {
    return complete_pending_operations() + complete_background_operations();
  } catch (...) {  // the user wants the program to end now
    return num_pending_operations() + num_pending_in_background();
  }
}

void release_groups_at_exit(int status, void*) {
  auto& current = world();
  if (current.groups.empty()) return;
  if (status != 0) end_without_waiting();
  auto pending = num_pending_operations() + num_pending_in_background();
  if (pending > 0 && status == 0) pending = complete_operations();
  if (pending > 0) {
    base::log_warning("exiting with " + std::to_string(pending) +
                      " operation(s) that nobody waited for; the process groups are left to the system. "
                      "Call wait() on every Work and destroy_process_group() before the program ends.");
    end_background_operations();
    return;
  }
  const bool is_first = !current.default_group || current.default_group->getRank() == 0;
  // After a failure the reader needs the error, not this warning.
  if (status == 0 && is_first) {
    base::log_warning(
        "the program ended without destroy_process_group(); its groups are released now. Call it before main returns, "
        "when every rank is done.");
  }
  for (auto& record : current.groups) {
    // Other holders of the group, such as a static DDP object, end it later.
    record.group.reset();
  }
  warn_of_unawaited(/*says_for_all=*/status == 0 && is_first);
}

std::string current_exception_text() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

std::string current_exception_type() {
  const auto* type = abi::__cxa_current_exception_type();
  if (!type) return "unknown";
  int status = 0;
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? name : type->name();
  std::free(name);
  return result;
}

// An engine's own thread may meet data that does not fit, for example if ranks call different collectives. Only Gloo throws
// there.
std::string explain_crash(const std::string& type, const std::string& text) {
  if (!type.starts_with("gloo::")) return {};
  alarm(kCrashLimitSeconds);  // ends the process even if the explanation waits for something
  for (const auto& record : world().groups) {
    const auto explanation = record.watch->explain_crash(text);
    if (!explanation.empty()) return explanation;
  }
  return {};
}

// Empty if it is not known: before a group exists, without a launcher, and if RANK is not a number.
std::string own_rank() {
  if (world().default_group) return std::to_string(world().default_group->getRank());
  const auto rank = base::env_int("RANK", 0);
  return rank && *rank ? std::to_string(**rank) : "";
}

// Begins every line of an error that ends the process with [rankN], as Python's ranks do.
[[noreturn]] void report_and_terminate() {
  if (std::current_exception()) {
    const auto type = current_exception_type();
    auto text = type + ": " + current_exception_text();
    const auto explanation = explain_crash(type, text);
    if (!explanation.empty()) text = explanation;
    job::write_error_file(text);
    std::istringstream lines(text);
    std::string report = base::fresh_line(STDERR_FILENO);
    const auto rank = own_rank();
    const auto prefix = rank.empty() ? "" : "[rank" + rank + "]: ";
    for (std::string line; std::getline(lines, line);) report += prefix + line + "\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, report.data(), report.size());
    std::abort();
  }
  if (previous_handler) previous_handler();
  std::abort();
}

// A write to a dead peer must return an error instead of ending the process with SIGPIPE. Python ignores the signal, too.
void ignore_broken_pipes() {
  struct sigaction current {};
  sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

void install_exit_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    on_exit(release_groups_at_exit, nullptr);
    ignore_broken_pipes();
    previous_handler = std::set_terminate(report_and_terminate);
  });
}

}  // namespace cohort::comm
