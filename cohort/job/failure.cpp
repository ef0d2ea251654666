#include "cohort/job/failure.h"

#include <fmt/format.h>
#include <sstream>

#include "cohort/base/text/text.h"

namespace cohort::job {
namespace {

// The limit for a peer's text.
constexpr size_t kMaxEncodedLines = 256;

std::string escaped(const std::string& text) {
  return base::replace_all(base::replace_all(text, "\\", "\\\\"), "\n", "\\n");
}

std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 1 < text.size();
    if (is_escape) ++i;
    plain += is_escape && text[i] == 'n' ? '\n' : text[i];
  }
  return plain;
}

// Zero for a text that is not a number.
int number_in(const std::string& text) { return static_cast<int>(base::parse_int(text).value_or(0)); }

void read_part(const std::string& name, const std::string& value, Failure& failure) {
  if (name == "kind") {
    const int kind = number_in(value);
    if (kind >= 0 && kind < Failure::kNumKinds) failure.kind = static_cast<Failure::Kind>(kind);
  }
  if (name == "scope") failure.scope = number_in(value) == 0 ? Failure::Scope::kGroup : Failure::Scope::kJob;
  if (name == "what") failure.what = value;
  if (name == "operation") failure.operation = value;
  if (name == "where") failure.where.push_back(value);
  if (name == "cause") failure.causes.push_back(value);
  if (name == "note") failure.note = value;
  if (name == "hint") failure.hint = value;
  if (name == "missing") failure.missing.push_back(number_in(value));
  if (name == "timeout") failure.timeout = std::chrono::milliseconds(base::parse_int(value).value_or(0));
}

}  // namespace

Failure failure_of(const Operation& operation, Failure failure) {
  failure.operation = fmt::format("{} #{} on group \"{}\"", operation.name, operation.sequence, operation.group);
  failure.what = failure.operation + " failed";
  auto where = fmt::format("rank {} of {} on {}, backend {}", operation.rank, operation.world_size, operation.host,
                           operation.backend);
  if (!operation.dtype.empty()) {
    where += fmt::format(", {} {}", base::format_bytes(static_cast<unsigned long long>(operation.num_bytes)),
                         operation.dtype);
  }
  failure.where = {std::move(where)};
  return failure;
}

Failure wait_timed_out(const Operation& operation, std::chrono::milliseconds timeout) {
  return failure_of(operation,
                    {.kind = Failure::Kind::kTimeout,
                     .causes = {fmt::format("Operation timed out! It did not end within the {} that wait() was given",
                                            base::format_duration(timeout))},
                     .hint = "wait for it again, with more time or without a timeout: the operation goes on",
                     .timeout = timeout});
}

std::string failure_text(const Failure& failure) {
  if (failure.what.empty()) return base::join(failure.causes, "\n");
  auto text = "[cohort] " + failure.what;
  for (const auto& line : failure.where) text += "\n  " + line;
  for (const auto& cause : failure.causes) text += "\n  caused by: " + cause;
  if (!failure.note.empty()) text += "\n  " + failure.note;
  if (!failure.hint.empty()) text += "\n  hint: " + failure.hint;
  return text;
}

std::string encode_failure(const Failure& failure) {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{} {}\n", name, escaped(value));
  };
  add("kind", std::to_string(static_cast<int>(failure.kind)));
  add("scope", std::to_string(static_cast<int>(failure.scope)));
  add("what", failure.what);
  add("operation", failure.operation);
  for (const auto& line : failure.where) add("where", line);
  for (const auto& cause : failure.causes) add("cause", cause);
  add("note", failure.note);
  add("hint", failure.hint);
  for (const int rank : failure.missing) add("missing", std::to_string(rank));
  if (failure.timeout.count() > 0) add("timeout", std::to_string(failure.timeout.count()));
  return text;
}

Failure decode_failure(const std::string& text) {
  Failure failure;
  std::istringstream in(text);
  std::string line;
  for (size_t i = 0; i < kMaxEncodedLines && std::getline(in, line) && !line.empty(); ++i) {
    const auto space = line.find(' ');
    if (space != std::string::npos) read_part(line.substr(0, space), unescaped(line.substr(space + 1)), failure);
  }
  return failure;
}

}  // namespace cohort::job
