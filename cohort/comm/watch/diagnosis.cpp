#include "cohort/comm/watch/diagnosis.h"

#include <algorithm>

#include "cohort/base/text.h"
#include "cohort/job/failure_text.h"

namespace cohort::comm {
namespace {

using job::Operation;
using Kind = FailureReport::Kind;

constexpr const char* kAgreeHint =
    "every rank of the group must call the same collectives in the same order, with the same shapes, dtypes and roots; "
    "TORCH_DISTRIBUTED_DEBUG=DETAIL checks each call before it starts";

std::string raise_timeout(std::chrono::milliseconds timeout) {
  return "raise the timeout of init_process_group (of new_group for a subgroup), now " + base::format_duration(timeout);
}

std::string waits_in(const job::Account& account) {
  const auto found = account.signatures.find(account.sequence);
  const auto what =
      found == account.signatures.end() ? "a send or receive" : found->second + " #" + std::to_string(account.sequence);
  return "waits in " + what + " on group \"" + account.group + "\"";
}

}  // namespace

std::vector<int> Diagnostician::others() const {
  std::vector<int> result;
  for (int member = 0; member < static_cast<int>(ranks_.size()); ++member) {
    if (member != rank_) result.push_back(member);
  }
  return result;
}

std::vector<int> Diagnostician::needed(const Operation& operation) const {
  if (operation.point_to_point && operation.root >= 0) return {operation.root};
  return others();
}

// Any other rank may have ended in good order.
std::vector<int> Diagnostician::lost_members(const Operation& operation) const {
  const auto lost = reports_.lost_ranks();
  std::vector<int> members;
  for (const int member : needed(operation)) {
    const int rank = ranks_[member];
    if (std::find(lost.begin(), lost.end(), rank) != lost.end()) members.push_back(rank);
  }
  return members;
}

Diagnosis Diagnostician::lost(const std::vector<int>& members) const {
  Diagnosis diagnosis{Kind::kLostRank, {}, "look at the output of " + job::ranks_in_words(members) + " for the reason"};
  for (const int rank : members) diagnosis.causes.push_back(peers_.describe(rank) + " is gone");
  return diagnosis;
}

Diagnosis Diagnostician::mismatch(uint64_t sequence, int member, const std::string& mine,
                                  const std::string& theirs) const {
  return {Kind::kMismatch,
          {"Detected mismatch between collectives on ranks: #" + std::to_string(sequence) + " is " + mine + " on " +
           describe(rank_) + ", but " + theirs + " on " + describe(member)},
          kAgreeHint};
}

std::optional<Diagnosis> Diagnostician::disagreement(const job::Account& mine,
                                                     const std::vector<int>& candidates) const {
  for (const int member : candidates) {
    auto theirs = reports_.waiting_of(ranks_[member]);
    if (const auto failure = reports_.failure_of(ranks_[member])) theirs = failure->account;
    if (!theirs) continue;
    const auto number = job::first_difference(mine, *theirs);
    if (!number) continue;
    return mismatch(*number, member, mine.signatures.at(*number), theirs->signatures.at(*number));
  }
  return std::nullopt;
}

std::optional<Diagnosis> Diagnostician::earlier_failure(const Operation& operation,
                                                        std::chrono::milliseconds timeout) const {
  for (const int member : others()) {
    const auto failure = reports_.failure_of(ranks_[member]);
    if (!failure) continue;
    const auto cause = describe(member) + " gave up in " + failure->where + ": " + failure->cause;
    if (failure->kind != Kind::kTimeout) return Diagnosis{failure->kind, {cause}, "see the first cause"};
    return Diagnosis{Kind::kTimeout,
                     {cause},
                     "the ranks run at different speeds, but none is lost: this one came to " + operation.name +
                         " later than the other waits; " + raise_timeout(timeout)};
  }
  return std::nullopt;
}

// What a member does instead; empty if it waits in the same operation.
std::string Diagnostician::occupation_of(int group_rank, const Operation& operation) const {
  const int rank = ranks_[group_rank];
  const auto waiting = reports_.waiting_of(rank);
  const bool here = waiting && waiting->group == operation.group && waiting->sequence == operation.sequence;
  if (here && !operation.point_to_point) return {};
  const auto state = peers_.state_in_words(rank);
  if (state.find("stopped") == std::string::npos && waiting) return waits_in(*waiting);
  return state.empty() ? "is not a process of this host and has reported nothing" : state;
}

std::string Diagnostician::absence_of(int group_rank, const Operation& operation) const {
  const auto occupation = occupation_of(group_rank, operation);
  return occupation.empty() ? "" : describe(group_rank) + " has not arrived: it " + occupation;
}

std::string Diagnostician::hint_for(const std::vector<std::string>& causes, std::chrono::milliseconds timeout) {
  const auto says = [&](const char* text) {
    return std::any_of(causes.begin(), causes.end(), [&](const auto& cause) { return cause.find(text) != cause.npos; });
  };
  if (says("is stopped")) return "continue the stopped rank (kill -CONT PID), or end it";
  if (says("is computing")) return "the ranks run at different speeds, but none is lost; " + raise_timeout(timeout);
  return "see why that rank did not reach this operation; if it is only slow, " + raise_timeout(timeout);
}

Diagnosis Diagnostician::complete(const Operation& operation, EngineFailure failure) const {
  Diagnosis diagnosis{Kind::kOther, std::move(failure.causes), std::move(failure.hint)};
  if (failure.kind == EngineFailure::Kind::kLostRank) diagnosis.kind = Kind::kLostRank;
  if (failure.kind == EngineFailure::Kind::kMismatch) diagnosis.kind = Kind::kMismatch;
  if (failure.kind != EngineFailure::Kind::kTimeout) return diagnosis;
  diagnosis.kind = Kind::kTimeout;
  for (size_t i = 0; i < std::min(failure.missing.size(), diagnosis.causes.size()); ++i) {
    const auto occupation = occupation_of(failure.missing[i], operation);
    if (!occupation.empty()) diagnosis.causes[i] += ": it " + occupation;
  }
  const auto more = operation.point_to_point || diagnosis.hint.empty() ? "" : "; " + diagnosis.hint;
  diagnosis.hint = hint_for(diagnosis.causes, failure.timeout) + more;
  return diagnosis;
}

Diagnosis Diagnostician::timed_out(const Operation& operation, std::chrono::milliseconds timeout) const {
  Diagnosis diagnosis{
      Kind::kTimeout,
      {"no answer from the other ranks within the group's time-out of " + base::format_duration(timeout)},
      {}};
  for (const int member : needed(operation)) {
    auto absence = absence_of(member, operation);
    // A longer list would not help the reader.
    if (!absence.empty() && diagnosis.causes.size() < 9) diagnosis.causes.push_back(std::move(absence));
  }
  diagnosis.hint = hint_for(diagnosis.causes, timeout);
  return diagnosis;
}

}  // namespace cohort::comm
