#include "cohort/job/operation_log.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace cohort::job {
namespace {

constexpr size_t kKept = 16;
// The limit for a peer's text.
constexpr size_t kMaxLines = 64;
constexpr size_t kMaxLineLength = 4096;

size_t purpose_begin(const std::string& signature) { return std::min(signature.find(kWhichIs), signature.size()); }

}  // namespace

std::string signature(const Operation& operation) {
  std::string arguments;
  const auto add = [&](const std::string& text) { arguments += (arguments.empty() ? "" : ", ") + text; };
  if (!operation.reduce_op.empty()) add(operation.reduce_op);
  if (operation.root >= 0) add("root " + std::to_string(operation.root));
  if (!operation.dtype.empty()) add(operation.dtype + (operation.shape.empty() ? "" : " " + operation.shape));
  auto text = operation.name + "(" + arguments + ")";
  if (!operation.purpose.empty()) text.append(kWhichIs).append(operation.purpose);
  return text;
}

bool agree(const std::string& signature, const std::string& other) {
  return signature.substr(0, purpose_begin(signature)) == other.substr(0, purpose_begin(other));
}

bool have_one_purpose(const std::string& signature, const std::string& other) {
  return signature.substr(purpose_begin(signature)) == other.substr(purpose_begin(other));
}

std::string Account::encode() const {
  std::ostringstream out;
  out << group << "\n" << sequence << "\n";
  for (const auto& [number, text] : signatures) out << number << " " << text << "\n";
  return out.str();
}

Account Account::decode(const std::string& text) {
  Account account;
  std::istringstream in(text);
  std::string line;
  for (size_t i = 0; i < kMaxLines && std::getline(in, line); ++i) {
    if (line.size() > kMaxLineLength) continue;
    if (i == 0) {
      account.group = line;
    } else if (i == 1) {
      account.sequence = std::strtoull(line.c_str(), nullptr, 10);
    } else if (const auto space = line.find(' '); space != std::string::npos) {
      account.signatures[std::strtoull(line.c_str(), nullptr, 10)] = line.substr(space + 1);
    }
  }
  return account;
}

void OperationLog::add(const Operation& operation) {
  if (operation.point_to_point) return;
  const std::lock_guard lock(mutex_);
  recent_.push_back(operation);
  if (recent_.size() > kKept) recent_.pop_front();
}

Account OperationLog::account(const Operation& current) const {
  Account account{current.group, current.point_to_point ? 0 : current.sequence, {}};
  const std::lock_guard lock(mutex_);
  for (const auto& operation : recent_) account.signatures[operation.sequence] = signature(operation);
  return account;
}

std::optional<Operation> OperationLog::latest() const {
  const std::lock_guard lock(mutex_);
  return recent_.empty() ? std::nullopt : std::optional(recent_.back());
}

std::optional<uint64_t> first_difference(const Account& mine, const Account& theirs) {
  if (mine.group != theirs.group) return std::nullopt;
  for (const auto& [number, text] : mine.signatures) {
    const auto found = theirs.signatures.find(number);
    if (found != theirs.signatures.end() && !agree(found->second, text)) return number;
  }
  return std::nullopt;
}

}  // namespace cohort::job
