#include "cohort/elastic/report/failure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "cohort/base/file/file.h"
#include "cohort/base/text/json_text.h"
#include "cohort/base/text/text.h"

namespace cohort::elastic {
namespace {

using nlohmann::json;

constexpr size_t kMaxWidth = 60;
constexpr size_t kMostDepth = 100;

std::optional<std::time_t> time_in(const json& node) {
  const auto found = node.find("timestamp");
  if (found == node.end()) return std::nullopt;
  if (found->is_number()) return static_cast<std::time_t>(found->get<double>());
  if (!found->is_string()) return std::nullopt;
  const auto seconds = base::parse_int(base::trim(found->get<std::string>()));
  return seconds ? std::optional<std::time_t>(*seconds) : std::nullopt;
}

/// Limits the depth of nested lists: deeper ones than any worker writes would overflow the stack.
json parse_error_file(const std::string& text) {
  if (base::json_depth(text) > kMostDepth) return {};
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string text_in(const json& node, const char* key) {
  const auto found = node.find(key);
  return found != node.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Reads the worker's text. Returns false for a file without a message, such as a truncated one.
bool read_error_file(const std::string& text, WorkerFailure& failure) {
  const json root = parse_error_file(text);
  if (!root.is_object() || !root.contains("message")) return false;
  const json& message = root["message"];
  if (message.is_string()) {
    failure.message = message.get<std::string>();
    failure.time = time_in(root).value_or(failure.time);
    return true;
  }
  if (!message.is_object()) return false;
  failure.error = text_in(message, "message");
  const json extra = message.value("extraInfo", json::object());
  const std::string callstack = extra.is_object() ? text_in(extra, "py_callstack") : "";
  failure.message = callstack.empty() ? text_in(message, "message") : callstack;
  if (failure.message.empty()) failure.message = "<N/A>";
  // Indents the lines of a traceback below the first.
  failure.message = base::replace_all(failure.message, "\n", "\n  ");
  if (extra.is_object()) failure.time = time_in(extra).value_or(failure.time);
  return true;
}

std::string format_time(std::time_t time) {
  std::tm local{};
  ::localtime_r(&time, &local);
  char buffer[32];
  std::strftime(buffer, sizeof buffer, "%Y-%m-%d_%H:%M:%S", &local);
  return buffer;
}

std::string format_failure(size_t index, const WorkerFailure& failure, const std::string& host) {
  const int signal = failure.status.signal;
  const std::string signal_name = signal ? fmt::format(" ({})", base::signal_name(signal)) : "";
  return fmt::format(
      "[{}]:\n"
      "  time      : {}\n"
      "  host      : {}\n"
      "  rank      : {} (local_rank: {})\n"
      "  exitcode  : {} (pid: {}) {}\n"
      "  error_file: {}\n"
      "  traceback : {}",
      index, format_time(failure.time), host, failure.rank, failure.local_rank, failure.status.returncode(),
      failure.pid, signal_name, failure.error_file, failure.message);
}

size_t longest_line(const std::string& text) {
  size_t longest = 0;
  for (const std::string& line : base::split(text, '\n')) longest = std::max(longest, line.size());
  return longest;
}

}  // namespace

WorkerFailure describe_failure(int rank, int local_rank, pid_t pid, const base::ExitStatus& status,
                               const std::string& error_file, std::time_t noticed_at) {
  WorkerFailure failure{.rank = rank, .local_rank = local_rank, .pid = pid, .status = status, .time = noticed_at};
  const base::Result<std::string> text =
      error_file.empty() ? base::Error("no error file") : base::read_file(error_file);
  if (text) {
    failure.error_file = error_file;
    if (!read_error_file(*text, failure)) failure.message = "the error file has no message; see its text";
    if (!failure.message.empty()) return failure;
  }
  failure.message = status.signal ? fmt::format("Signal {} ({}) received by PID {}", status.signal,
                                                base::signal_name(status.signal), pid)
                                  : "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
  return failure;
}

void add_overrun(WorkerFailure& failure, const std::string& overrun) {
  failure.overrun = overrun;
  if (failure.error_file == "<N/A>") failure.message += ": " + overrun;
}

std::string error_file_with_code(const std::string& text, const base::ExitStatus& status) {
  json root = parse_error_file(text);
  if (!root.is_object() || !root.contains("message") || !root["message"].is_object()) return text;
  root["message"]["errorCode"] = status.returncode();
  return root.dump(-1, ' ', false, json::error_handler_t::replace);
}

const WorkerFailure& root_cause(const std::vector<WorkerFailure>& failures) {
  return *std::min_element(failures.begin(), failures.end(),
                           [](const WorkerFailure& a, const WorkerFailure& b) { return a.time < b.time; });
}

std::string format_failure_report(const std::string& program, std::vector<WorkerFailure> failures,
                                  const std::string& host) {
  // The others ended because they were stopped, in any order.
  const auto by_rank = [](const WorkerFailure& a, const WorkerFailure& b) { return a.rank < b.rank; };
  std::stable_sort(failures.begin() + 1, failures.end(), by_rank);
  const std::string title = fmt::format("{} FAILED", program);
  const WorkerFailure* root = &root_cause(failures);
  size_t width = title.size();
  std::string root_text;
  std::vector<std::string> other_texts;
  for (size_t index = 0; index < failures.size(); ++index) {
    std::string text = format_failure(index, failures[index], host);
    width = std::max(width, longest_line(text));
    if (&failures[index] == root) {
      root_text = std::move(text);
    } else {
      other_texts.push_back(std::move(text));
    }
  }
  if (other_texts.empty()) other_texts.push_back("  <NO_OTHER_FAILURES>");
  const std::string border(std::min(width, kMaxWidth), '=');
  const std::string section(border.size(), '-');
  return base::join({border, title, section, "Failures:", base::join(other_texts, "\n"), section,
                     "Root Cause (first observed failure):", root_text, border},
                    "\n");
}

}  // namespace cohort::elastic
