#include "cohort/shm/transfer/transfer_text.h"

#include <fmt/format.h>
#include <algorithm>
#include <string>

#include "cohort/base/text/text.h"
#include "cohort/shm/transfer/matching.h"

namespace cohort::shm {
namespace {

std::string describe_elements(DType dtype, uint64_t num_bytes) {
  if (dtype == DType::kBytes) return fmt::format("{} bytes", num_bytes);
  return fmt::format("{} {} ({})", num_bytes / size_of(dtype), name_of(dtype), base::format_bytes(num_bytes));
}

std::string who(int rank) { return fmt::format("rank {}", rank); }

}  // namespace

Outcome transfer_mismatch(int sender, int receiver, const Refusal& refusal) {
  const auto& sent = refusal.sent;
  return fail(
      {Failure::Kind::kMismatch,
       {fmt::format("rank {} and rank {} disagree about the message with tag {}", sender, receiver, sent.tag),
        fmt::format("rank {} sends   {}", sender, describe_elements(sent.dtype, sent.num_bytes)),
        fmt::format("rank {} expects {}", receiver, describe_elements(refusal.expected_dtype, refusal.expected_bytes))},
       "give send and recv tensors of the same dtype and size; messages with one tag arrive in the order sent"});
}

std::string list_tags(const std::vector<int32_t>& tags) {
  constexpr size_t kMaxListed = 5;
  std::vector<std::string> words;
  for (const auto tag : tags) words.push_back(std::to_string(tag));
  if (words.size() > kMaxListed) {
    const size_t num_hidden = words.size() - (kMaxListed - 1);
    words.resize(kMaxListed - 1);
    words.push_back(fmt::format("{} more", num_hidden));
  }
  if (words.size() == 1) return "tag " + words[0];
  const auto last = words.back();
  words.pop_back();
  return "tags " + base::join(words, ", ") + " and " + last;
}

Outcome send_timeout(const TransferState& state) {
  const auto size = base::format_bytes(state.num_bytes);
  const auto timeout = base::format_duration(state.timeout);
  const auto cause =
      state.is_streaming && state.num_moved > 0
          ? fmt::format("rank {} took {} of {} of the message with tag {} from rank {}, and no more within {}",
                        state.peer, base::format_bytes(state.num_moved), size, state.tag, state.rank, timeout)
          : fmt::format("rank {} did not receive the message with tag {} ({}) from rank {} within {}", state.peer,
                        state.tag, size, state.rank, timeout);
  return fail({Failure::Kind::kTimeout,
               {cause},
               fmt::format("see what rank {} does instead of receiving, or allow more time", state.peer)});
}

Outcome receive_timeout(const TransferState& state, const std::vector<std::pair<int, std::vector<int32_t>>>& offers) {
  const auto timeout = base::format_duration(state.timeout);
  if (state.is_streaming) {
    return fail({Failure::Kind::kTimeout,
                 {fmt::format("rank {} sent {} of {} of the message with tag {} to rank {}, and no more within {}",
                              state.peer, base::format_bytes(state.num_moved), base::format_bytes(state.num_bytes),
                              state.tag, state.rank, timeout)},
                 fmt::format("see what rank {} does instead of sending, or allow more time", state.peer)});
  }
  const bool is_any = state.peer == kAnySource;
  Failure failure{Failure::Kind::kTimeout,
                  {fmt::format("{} with tag {} to rank {} within {}",
                               is_any ? "no rank sent anything" : who(state.peer) + " sent nothing", state.tag,
                               state.rank, timeout)},
                  fmt::format("see what {} instead of sending, or allow more time",
                              is_any ? "the others do" : who(state.peer) + " does")};
  for (const auto& [peer, tags] : offers) {
    failure.causes.push_back(
        fmt::format("rank {} offers {}, rank {} waits for tag {}", peer, list_tags(tags), state.rank, state.tag));
  }
  if (!offers.empty()) failure.hint = "give send and recv the same tag";
  return fail(std::move(failure));
}

}  // namespace cohort::shm
