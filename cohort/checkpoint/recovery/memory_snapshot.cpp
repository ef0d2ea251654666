#include "cohort/checkpoint/recovery/memory_snapshot.h"

#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <utility>
#include <vector>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/checkpoint/checkpointer/stop_signals.h"
#include "cohort/checkpoint/recovery/snapshot_layout.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/group/world.h"
#include "cohort/snapshot/snapshot_client.h"

namespace cohort::checkpoint {
namespace {

constexpr const char* kNoLauncher =
    "memory snapshots need `cohort run`, and this process was started without it\n  hint: start it with cohort run "
    "--max-restarts N";

/// The time to wait for ranks that are a little behind with their snapshots.
constexpr std::chrono::seconds kPatience{5};
/// The time to wait if a rank has ended well and will not come. If a rank dies, the launcher ends the others sooner.
constexpr std::chrono::seconds kPatienceWithEndedRanks{10};

/// Returns why a wait for other ranks' snapshots should end, or "" if it may go on.
std::string find_obstacle(std::chrono::milliseconds waited) {
  comm::throw_interruption();
  const int signal = StopSignals::seen();
  if (signal != 0 && waited > kPatience) return "this process has been told to end by " + base::signal_name(signal);
  const auto& roster = comm::world().roster;
  if (!roster || waited <= kPatienceWithEndedRanks) return "";
  const std::vector<int> gone = roster->peers().gone_ranks();
  return gone.empty() ? "" : roster->peers().describe(gone.front()) + " has ended";
}

/// Returns the same name on all ranks, because each makes the same objects in the same order.
std::string next_client_name() {
  static std::atomic<int> number = 0;
  return std::to_string(number++);
}

/// Returns this rank's own problem, or otherwise the problem of the first rank that has one. Collective.
std::string problem_of_any(const std::string& own) {
  const auto told = own.empty() ? comm::StepResult(own) : comm::StepResult(base::Error(own));
  const auto problems = comm::failures_of(comm::RankExchange(default_group()).all(told));
  if (!own.empty() || problems.empty()) return own;
  return fmt::format("rank {}: {}", problems.begin()->first, problems.begin()->second);
}

void copy_in_place(const ShardedStateDict& own, const ShardedStateDict& kept) {
  const at::NoGradGuard no_grad;
  for (const auto& item : own) {
    const StateValue* value = kept.find(item.key());
    TORCH_CHECK(item.value().is_tensor(), "[cohort] resume: \"", item.key(),
                "\" is not a tensor: SnapshotState::set must take it back");
    TORCH_CHECK(value && value->tensor.defined() && value->tensor.sizes() == item.value().tensor.sizes(),
                "[cohort] resume: the snapshot does not fit: \"", item.key(), "\" is not in it with shape ",
                item.value().tensor.sizes());
    item.value().tensor.detach().copy_(value->tensor);
  }
}

/// Sums the versions of tensors that are copied during a forward pass.
uint64_t sum_of_versions(const detail::SnapshotLayout& layout) {
  uint64_t sum = 0;
  for (const auto& piece : layout.pieces) {
    if (piece.num_bytes >= detail::kLeastSharedBytes) sum += piece.tensor._version();
  }
  return sum;
}

/// Returns a stream for the copying thread for each device with tensors; it waits for the work of the device's current stream.
std::vector<c10::Stream> streams_to_copy_in(const detail::SnapshotLayout& layout) {
  std::vector<c10::Stream> streams;
  for (const auto& piece : layout.pieces) {
    const c10::Device device = piece.tensor.device();
    const bool is_known =
        std::any_of(streams.begin(), streams.end(), [&](const auto& stream) { return stream.device() == device; });
    if (device.is_cpu() || is_known) continue;
    const c10::impl::VirtualGuardImpl devices(device.type());
    streams.push_back(devices.getStreamFromGlobalPool(device));
    c10::Event is_written(device.type());
    is_written.record(devices.getStream(device));
    is_written.block(streams.back());
  }
  return streams;
}

}  // namespace

std::string Resumed::describe() const {
  const std::string why = why_not_memory.empty() ? "" : fmt::format(" (not from memory: {})", why_not_memory);
  switch (from) {
    case ResumedFrom::kMemory:
      return fmt::format("step {} from memory", step);
    case ResumedFrom::kOtherMemory:
      return fmt::format("step {} from the memory of node {}", step, from_node.value());
    case ResumedFrom::kDisk:
      return fmt::format("step {} from disk{}", step, why);
    default:
      return "from the start" + why;
  }
}

class MemorySnapshot::Impl {
 public:
  Impl(SnapshotState state, MemorySnapshotOptions options) : state_(std::move(state)), options_(options) {
    TORCH_CHECK_VALUE(options_.every_steps >= 1, "[cohort] MemorySnapshot: every_steps must be at least 1, got ",
                      options_.every_steps);
    TORCH_CHECK_VALUE(state_.get, "[cohort] MemorySnapshot: SnapshotState::get is missing");
  }
  ~Impl() {
    if (!copying_.valid()) return;
    try {
      copying_.get();
      if (versions_ == sum_of_versions(layout_)) client_->commit();
    } catch (...) {  // NOLINT(bugprone-empty-catch): then the previous state counts
    }
  }

  Resumed resume(const FromDisk& from_disk, std::optional<int64_t> step_on_disk);
  void step(int64_t step);
  void before_step();
  std::optional<int64_t> complete_step() const { return client_ ? client_->complete_step() : std::nullopt; }
  bool is_on() const { return client_ != nullptr; }

 private:
  void open();
  snapshot::Finding look();
  void turn_off(const std::string& why);
  void restore(const snapshot::Found& found);
  void keep(int64_t step);

  const SnapshotState state_;
  const MemorySnapshotOptions options_;
  std::unique_ptr<snapshot::SnapshotClient> client_;
  bool has_resumed_ = false;
  detail::SnapshotLayout layout_;
  // Runs with `overlap` between step() and before_step().
  std::future<void> copying_;
  uint64_t versions_ = 0;
};

void MemorySnapshot::Impl::turn_off(const std::string& why) {
  client_.reset();
  TORCH_CHECK(!options_.required, "[cohort] memory snapshots cannot be kept: ", why);
  base::warn_once("training goes on without memory snapshots: " + why);
}

// Collective, so that either all ranks keep snapshots or none does.
void MemorySnapshot::Impl::open() {
  const std::string name = next_client_name();
  std::string problem;
  const base::Result<std::optional<snapshot::Place>> place = snapshot::find_place();
  if (!place) {
    problem = place.error().describe();
  } else if (!*place) {
    problem = kNoLauncher;
  } else if (auto client = snapshot::SnapshotClient::create(**place, name, {.find_obstacle = find_obstacle})) {
    client_ = std::move(*client);
  } else {
    problem = client.error().describe();
  }
  if (problem = problem_of_any(problem); !problem.empty()) turn_off(problem);
}

// Collective: if one rank cannot fetch its state, no rank goes on from it.
snapshot::Finding MemorySnapshot::Impl::look() {
  base::Result<snapshot::Finding> finding = client_->look();
  std::string problem = problem_of_any(finding ? "" : finding.error().describe());
  if (!problem.empty()) return {.why_not = std::move(problem)};
  return std::move(*finding);
}

void MemorySnapshot::Impl::restore(const snapshot::Found& found) {
  std::vector<detail::SnapshotShare> shares;
  for (const snapshot::Found::Share& share : found.shares) shares.push_back({share.begin, share.bytes});
  const ShardedStateDict kept = detail::read_snapshot(found.meta, found.own, shares);
  state_.set ? state_.set(kept) : copy_in_place(state_.get(), kept);
}

Resumed MemorySnapshot::Impl::resume(const FromDisk& from_disk, std::optional<int64_t> step_on_disk) {
  TORCH_CHECK(!has_resumed_, "[cohort] MemorySnapshot: resume() was called before");
  open();
  has_resumed_ = true;
  Resumed resumed;
  const snapshot::Finding finding = client_ ? look() : snapshot::Finding();
  resumed.why_not_memory = finding.why_not;
  const bool is_older = finding.found && step_on_disk && from_disk && finding.found->choice.step < *step_on_disk;
  const snapshot::Found* found = finding.found && !is_older ? &*finding.found : nullptr;
  if (found) {
    restore(*found);
    resumed.from = found->from_node < 0 ? ResumedFrom::kMemory : ResumedFrom::kOtherMemory;
    resumed.step = found->choice.step;
    resumed.is_exact = found->is_same_world;
    if (found->from_node >= 0) resumed.from_node = found->from_node;
  } else if (const auto step = from_disk ? from_disk() : std::nullopt) {
    if (is_older) resumed.why_not_memory = fmt::format("its newest state is of step {}", finding.found->choice.step);
    resumed.from = ResumedFrom::kDisk;
    resumed.step = *step;
  }
  if (client_) comm::or_throw(client_->settle(found), "resume");
  return resumed;
}

void MemorySnapshot::Impl::step(int64_t step) {
  TORCH_CHECK(has_resumed_, "[cohort] MemorySnapshot: call resume() before the first step()");
  before_step();
  if (!client_ || step % options_.every_steps != 0) return;
  keep(step);
}

void MemorySnapshot::Impl::keep(int64_t step) {
  // Waits for the result of the previous version before this one is laid out.
  base::Result<void> waited = client_->wait();
  if (!waited) return turn_off(waited.error().describe());
  if (const std::string problem = client_->partner_problem(); !problem.empty()) {
    base::warn_once("snapshots of this node are kept on this node alone: " + problem);
  }
  const bool shares = state_.full_tensors_are_equal && client_->shares();
  layout_ = detail::plan_snapshot(state_.get(), shares, state_.is_own);
  const base::Result<snapshot::Slot> slot = client_->begin({.step = step,
                                                            .suits_other_worlds = layout_.is_full && shares,
                                                            .num_own_bytes = layout_.num_own_bytes,
                                                            .shared_total = layout_.shared_total,
                                                            .shared_layout = layout_.shared_layout},
                                                           layout_.meta);
  if (!slot) {
    (void)client_->wait();  // waits until the others know
    return turn_off(slot.error().describe());
  }
  const detail::SnapshotSlot to{slot->own, slot->shared, slot->shared_begin};
  if (!options_.overlap) {
    detail::copy_snapshot(layout_, to, detail::SnapshotPieces::kAll, /*with_threads=*/true);
    return client_->commit();
  }
  detail::copy_snapshot(layout_, to, detail::SnapshotPieces::kSmall, /*with_threads=*/false);
  versions_ = sum_of_versions(layout_);
  copying_ = std::async(std::launch::async, [this, to, streams = streams_to_copy_in(layout_)] {
    const c10::MultiStreamGuard in(streams);
    detail::copy_snapshot(layout_, to, detail::SnapshotPieces::kLarge, false);
  });
}

void MemorySnapshot::Impl::before_step() {
  if (!copying_.valid()) return;
  try {
    copying_.get();
  } catch (...) {
    client_->abandon();
    throw;
  }
  const bool is_unchanged = versions_ == sum_of_versions(layout_);
  is_unchanged ? client_->commit() : client_->abandon();
  TORCH_CHECK(
      is_unchanged,
      "[cohort] MemorySnapshot: a tensor was changed while it was copied\n  hint: with .overlap, call before_step() "
      "before optimizer->step(), and before whatever else changes what is kept");
}

MemorySnapshot::MemorySnapshot(SnapshotState state, MemorySnapshotOptions options)
    : impl_(std::make_unique<Impl>(std::move(state), options)) {}
MemorySnapshot::~MemorySnapshot() = default;

Resumed MemorySnapshot::resume(const FromDisk& from_disk, std::optional<int64_t> step_on_disk) {
  return impl_->resume(from_disk, step_on_disk);
}
void MemorySnapshot::step(int64_t step) { impl_->step(step); }
void MemorySnapshot::before_step() { impl_->before_step(); }
std::optional<int64_t> MemorySnapshot::complete_step() const { return impl_->complete_step(); }
bool MemorySnapshot::is_on() const { return impl_->is_on(); }

}  // namespace cohort::checkpoint
