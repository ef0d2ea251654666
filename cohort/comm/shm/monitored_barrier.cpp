// The barrier that names missing ranks. Every other rank sends a message to rank 0, which answers all of them once it knows the
// result: both the ranks that came in time and those that come later. Follows ProcessGroupGloo::monitoredBarrier.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <chrono>

#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/shm/shm_backend.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/job/call_site.h"

namespace cohort::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr ShmOperation kMonitoredBarrier{"monitored_barrier", "shm:monitored_barrier", c10d::OpType::BARRIER};
constexpr shm::Elements kOneByte{shm::DType::kBytes, 1};

// Each barrier has two tags of its own, so that a late rank's message does not count for a later barrier.
int word_tag(uint64_t sequence) { return -2 - 2 * static_cast<int>(sequence % (1 << 29)); }
int answer_tag(uint64_t sequence) { return word_tag(sequence) - 1; }

// A message of one byte that is on its way.
struct Message {
  at::Tensor memory = at::zeros({1}, at::kByte);
  shm::TransferPtr transfer;

  char* byte() const { return static_cast<char*>(memory.data_ptr()); }
};

// The ranks before the first missing one have come, so the text lists them.
std::string out_of_time_text(milliseconds timeout, int first_missing) {
  std::vector<std::string> come;
  for (int rank = 1; rank < first_missing; ++rank) come.push_back(std::to_string(rank));
  return c10::str("[Rank 0]: Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms.\n",
                  come.empty() ? "No ranks successfully processed in monitoredBarrier."
                               : "Successfully processed ranks: " + base::join(come, ", "));
}

}  // namespace

// Waits for the message. Returns false if the limit passes. Sets `failure` to the reason if the transfer has failed.
static bool wait_for(ShmSession& session, const Message& message, std::optional<milliseconds> limit,
                     std::string* failure) {
  const auto open = session.exchange();
  if (!open.exchange) {
    *failure = "the group was destroyed";
    return true;
  }
  if (!open.exchange->wait(message.transfer, limit)) return false;
  if (const auto outcome = message.transfer->failure()) *failure = base::join(outcome->causes, "; ");
  return true;
}

static Message post(ShmSession& session, const shm::CallOptions& options, int peer, int tag, bool sends,
                    char word = 0) {
  Message message;
  *message.byte() = word;
  const auto open = session.exchange();
  TORCH_CHECK(open.exchange, "[cohort] the group was destroyed");
  message.transfer = sends ? open.exchange->send(message.byte(), kOneByte, peer, tag, options)
                           : open.exchange->receive(message.byte(), kOneByte, peer, tag, options);
  return message;
}

void ShmBackend::be_monitored(const ShmCall& call) {
  const auto options = session_->options_of(call);
  const auto word = post(*session_, options, 0, word_tag(call.sequence), /*sends=*/true);
  const auto answer = post(*session_, options, 0, answer_tag(call.sequence), /*sends=*/false);
  std::string failure;
  wait_for(*session_, word, std::nullopt, &failure);
  if (failure.empty()) wait_for(*session_, answer, std::nullopt, &failure);
  if (failure.empty() && *answer.byte() == 0) failure = "rank 0 did not see every rank in time";
  if (failure.empty()) return;
  session_->transfers().keep({word.transfer, word.memory});
  session_->transfers().keep({answer.transfer, answer.memory});
  throw_failure({.causes = {c10::str("Rank ", rank_,
                                     " successfully reached monitoredBarrier, but received errors while waiting for "
                                     "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original "
                                     "exception: \n",
                                     failure)}});
}

void ShmBackend::monitor(const ShmCall& call, bool wait_all_ranks) {
  // Unlike elsewhere, a timeout of 0 is a limit of 0 here.
  const auto timeout = call.timeout == c10d::kUnsetTimeout ? *session_->options_of(call).timeout : call.timeout;
  // The transfers have no limit of their own: late messages are still received and answered.
  auto unlimited = call;
  unlimited.timeout = c10d::kUnsetTimeout;
  const auto options = session_->options_of(unlimited);
  const auto deadline = base::deadline_after(timeout);
  std::vector<Message> words;
  for (int rank = 1; rank < size_; ++rank) {
    words.push_back(post(*session_, options, rank, word_tag(call.sequence), /*sends=*/false));
  }
  std::vector<std::string> missing;
  std::string failure;
  bool is_out_of_time = false;  // before the wait for the first missing rank
  for (int rank = 1; rank < size_ && (missing.empty() || wait_all_ranks); ++rank) {
    const auto& word = words[static_cast<size_t>(rank - 1)];
    const auto left = base::time_left(deadline);
    std::string problem;
    const bool ended = wait_for(*session_, word, std::max(left, milliseconds(0)), &problem);
    if (ended && problem.empty()) continue;
    is_out_of_time = !ended && left <= milliseconds(0);
    missing.push_back(std::to_string(rank));
    if (failure.empty()) failure = ended ? problem : "Operation timed out!";
  }
  for (const auto& word : words) session_->transfers().keep({word.transfer, word.memory});
  for (int rank = 1; rank < size_; ++rank) {
    const auto answer = post(*session_, options, rank, answer_tag(call.sequence), /*sends=*/true, missing.empty());
    session_->transfers().keep({answer.transfer, answer.memory});
  }
  if (missing.empty()) return;
  if (is_out_of_time && !wait_all_ranks)
    throw_failure({.kind = Failure::Kind::kTimeout, .causes = {out_of_time_text(timeout, std::stoi(missing.front()))}});
  const auto ranks = (wait_all_ranks ? "Ranks " : "Rank ") + base::join(missing, ", ");
  auto text = c10::str("[Rank 0]: ", ranks, " failed to pass monitoredBarrier in ", timeout.count(), " ms");
  if (!wait_all_ranks) text += "\n Original exception: \n" + failure;
  throw_failure({.causes = {std::move(text)}});
}

void ShmBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  auto call =
      begin({.operation = kMonitoredBarrier, .timeout = opts.timeout, .caller = __builtin_return_address(0)}, {}, {});
  if (rank_ == 0) return monitor(call, wait_all_ranks);
  // Only rank 0 has a limit, so that it ends first and names the missing ranks.
  call.timeout = c10d::kUnsetTimeout;
  be_monitored(call);
}

}  // namespace cohort::comm
