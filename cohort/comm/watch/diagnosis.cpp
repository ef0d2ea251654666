#include "cohort/comm/watch/diagnosis.h"

#include <algorithm>

#include "cohort/base/text/text.h"
#include "cohort/comm/call/purpose.h"

namespace cohort::comm {
namespace {

using base::Failure;
using Kind = Failure::Kind;

constexpr size_t kMostAbsences = 8;
constexpr const char* kAgreeHint =
    "every rank of the group must call the same collectives in the same order, with the same shapes, dtypes and roots; "
    "TORCH_DISTRIBUTED_DEBUG=DETAIL checks each call before it starts";

std::string raise_timeout(std::chrono::milliseconds timeout) {
  return "raise the timeout of init_process_group (of new_group for a subgroup), now " + base::format_duration(timeout);
}

constexpr const char* kContinueHint = "continue the stopped rank (kill -CONT PID), or end it";

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

std::vector<int> Diagnostician::needed(const job::Operation& operation) const {
  if (operation.point_to_point && operation.root >= 0) return {operation.root};
  return others();
}

// Returns only needed members: any other rank may have ended in good order.
std::vector<int> Diagnostician::lost_members(const job::Operation& operation) const {
  const auto lost = reports_.lost_ranks();
  std::vector<int> members;
  for (const int member : needed(operation)) {
    const int rank = ranks_[member];
    if (std::find(lost.begin(), lost.end(), rank) != lost.end()) members.push_back(rank);
  }
  return members;
}

Failure Diagnostician::lost(const std::vector<int>& members, std::string_view purpose) const {
  Failure failure{Kind::kLostRank,
                  {},
                  lost_rank_hint("look at the output of " + base::ranks_in_words(members) + " for the reason",
                                 purpose_of(purpose))};
  for (const int rank : members) failure.causes.push_back(peers_.describe(rank) + " is gone");
  return failure;
}

Failure Diagnostician::mismatch(uint64_t sequence, int member, const std::string& mine,
                                const std::string& theirs) const {
  return {Kind::kMismatch,
          {"Detected mismatch between collectives on ranks: #" + std::to_string(sequence) + " is " + mine + " on " +
           describe(rank_) + ", but " + theirs + " on " + describe(member)},
          job::have_one_purpose(mine, theirs) ? kAgreeHint : comm::hint_for(purpose_in(mine), purpose_in(theirs))};
}

std::optional<Failure> Diagnostician::disagreement(const job::Account& mine, const std::vector<int>& candidates) const {
  for (const int member : candidates) {
    auto theirs = reports_.waiting_of(ranks_[member]);
    if (const auto report = reports_.failure_of(ranks_[member])) theirs = report->account;
    if (!theirs) continue;
    const auto number = job::first_difference(mine, *theirs);
    if (!number) continue;
    return mismatch(*number, member, mine.signatures.at(*number), theirs->signatures.at(*number));
  }
  return std::nullopt;
}

Failure Diagnostician::with_stopped(Failure failure) const {
  for (const int member : others()) {
    if (!peers_.is_stopped(ranks_[member])) continue;
    failure.causes.push_back(describe(member) + " " + base::in_words(base::ProcessActivity::kStopped));
    failure.hint = kContinueHint;
  }
  return failure;
}

std::optional<Failure> Diagnostician::earlier_failure(const job::Operation& operation,
                                                      std::chrono::milliseconds timeout) const {
  for (const int member : others()) {
    const auto report = reports_.failure_of(ranks_[member]);
    if (!report || report->failure.causes.empty()) continue;
    const auto& failure = report->failure;
    const auto cause = describe(member) + " gave up in " + failure.operation + ": " + failure.causes.front();
    if (failure.kind != Kind::kTimeout) return Failure{failure.kind, {cause}, "see the first cause"};
    return with_stopped({Kind::kTimeout,
                         {cause},
                         "the ranks run at different speeds, but none is lost: this one came to " + operation.name +
                             " later than the other waits; " + raise_timeout(timeout)});
  }
  return std::nullopt;
}

Diagnostician::Occupation Diagnostician::occupation_of(int group_rank, const job::Operation& operation) const {
  const int rank = ranks_[group_rank];
  const auto waiting = reports_.waiting_of(rank);
  const bool here = waiting && waiting->group == operation.group && waiting->sequence == operation.sequence;
  if (here && !operation.point_to_point) return {};
  const auto activity = peers_.activity(rank);
  if (waiting && activity != base::ProcessActivity::kStopped) return {waits_in(*waiting), std::nullopt};
  return {activity ? base::in_words(*activity) : "is not a process of this host and has reported nothing", activity};
}

std::string Diagnostician::hint_for(const std::vector<Occupation>& occupations, std::chrono::milliseconds timeout) {
  const auto somebody = [&](base::ProcessActivity activity) {
    return std::any_of(occupations.begin(), occupations.end(), [&](const auto& it) { return it.activity == activity; });
  };
  if (somebody(base::ProcessActivity::kStopped)) return kContinueHint;
  if (somebody(base::ProcessActivity::kComputing)) {
    return "the ranks run at different speeds, but none is lost; " + raise_timeout(timeout);
  }
  return "see why that rank did not reach this operation; if it is only slow, " + raise_timeout(timeout);
}

Failure Diagnostician::complete(const job::Operation& operation, Failure failure) const {
  if (failure.kind != Kind::kTimeout) return failure;
  std::vector<Occupation> occupations;
  for (size_t i = 0; i < std::min(failure.missing.size(), failure.causes.size()); ++i) {
    occupations.push_back(occupation_of(failure.missing[i], operation));
    if (!occupations.back().text.empty()) failure.causes[i] += ": it " + occupations.back().text;
  }
  const auto more = operation.point_to_point || failure.hint.empty() ? "" : "; " + failure.hint;
  failure.hint = hint_for(occupations, failure.timeout) + more;
  // Another rank gave up first; its report says who was missing, but not why.
  return failure.missing.empty() ? with_stopped(std::move(failure)) : failure;
}

Failure Diagnostician::timed_out(const job::Operation& operation, std::chrono::milliseconds timeout) const {
  Failure failure{Kind::kTimeout,
                  {"no answer from the other ranks within the group's timeout of " + base::format_duration(timeout)},
                  {}};
  std::vector<Occupation> occupations;
  for (const int member : needed(operation)) {
    auto occupation = occupation_of(member, operation);
    // Stops after a few: a longer list would not help the reader.
    if (occupation.text.empty() || occupations.size() == kMostAbsences) continue;
    failure.causes.push_back(describe(member) + " has not arrived: it " + occupation.text);
    occupations.push_back(std::move(occupation));
  }
  failure.hint = hint_for(occupations, timeout);
  return failure;
}

}  // namespace cohort::comm
