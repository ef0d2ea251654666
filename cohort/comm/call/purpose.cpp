#include "cohort/comm/call/purpose.h"

#include <stdexcept>
#include <utility>

#include "cohort/job/operation.h"

namespace cohort::comm {
namespace {

// Needs no construction at run time: Purposes are made while the library is loaded, before other variables of this file.
constinit const Purpose* known[Purpose::kMaxNumber + 1] = {};

bool is_by_name(const Purpose* purpose) { return purpose && purpose->caller == Purpose::kByName; }

}  // namespace

Purpose::Purpose(uint8_t number, const char* words, Caller caller) : number(number), words(words), caller(caller) {
  if (number < 1 || number > kMaxNumber || (known[number] && known[number]->words != this->words)) {
    throw std::logic_error("[cohort] a purpose of collectives, \"" + std::string(words) + "\", has the number " +
                           std::to_string(number) + ", which is out of range or another one's");
  }
  if (!known[number]) known[number] = this;
}

const Purpose* purpose_of(uint8_t number) { return number <= Purpose::kMaxNumber ? known[number] : nullptr; }

const Purpose* purpose_of(std::string_view words) {
  for (const Purpose* purpose : known) {
    if (purpose && purpose->words == words) return purpose;
  }
  return nullptr;
}

const Purpose* purpose_in(std::string_view signature) {
  const auto begin = signature.find(job::kWhichIs);
  return begin == std::string_view::npos ? nullptr : purpose_of(signature.substr(begin + job::kWhichIs.size()));
}

std::string with_purpose(std::string call, const Purpose* purpose) {
  return purpose ? std::move(call).append(job::kWhichIs).append(purpose->words) : call;
}

const char* const kUnevenStepsHint =
    "the ranks do not take the same steps; most often some have more batches than others. "
    "Use data::DistributedSampler, which gives all ranks the same number; without it, stop every epoch at the smallest "
    "number of batches of any rank, which all_reduce with ReduceOp::MIN computes";

const char* const kMissingCallHint =
    "all ranks must make the calls that communicate, in the same order: look for one under a condition that not all "
    "ranks "
    "meet, such as rank == 0; or some ranks take more steps than others";

const char* hint_for(const Purpose* one, const Purpose* other) {
  return is_by_name(one) || is_by_name(other) ? kMissingCallHint : kUnevenStepsHint;
}

std::string lost_rank_hint(std::string hint, const Purpose* purpose) {
  return purpose ? std::move(hint) + "; if it ended well, " + hint_for(purpose, purpose) : hint;
}

}  // namespace cohort::comm
