// Attaches the ranks of a group to its shared memory: rank 0 writes an address into the store, and the engine meets there. A rank
// that cannot attach says so in the store, which ends the others' wait.
#include "cohort/comm/shm/make_shm_backend.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <thread>
#include <typeinfo>

#include "cohort/base/machine/cpu.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/call/purpose.h"
#include "cohort/comm/shm/shm_backend.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/rendezvous/environment/launch_environment.h"

namespace cohort::comm {
namespace {

const shm::PurposeTexts kPurposeTexts{
    .named = [](std::string call, uint8_t purpose) { return with_purpose(std::move(call), purpose_of(purpose)); },
    .hint = [](uint8_t one, uint8_t other) { return comm::hint_for(purpose_of(one), purpose_of(other)); },
    .lost_hint = [](std::string hint,
                    uint8_t purpose) { return lost_rank_hint(std::move(hint), purpose_of(purpose)); }};

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kMeetInterval{1};
constexpr milliseconds kMeetGrace{2'000};

class Attachment {
 public:
  explicit Attachment(const BackendRequest& request)
      : request_(request),
        prefix_(fmt::format("shm/{}/", request.start_count)),
        deadline_(base::deadline_after(request.timeout)),
        find_obstacle_([this] { return reported_failure(); }) {}

  std::unique_ptr<shm::Group> attach() {
    const shm::GroupOptions options{.name = request_.group_name,
                                    .address = address(),
                                    .rank = request_.rank,
                                    .world_size = request_.world_size,
                                    .timeout = std::max(milliseconds(1), left()),
                                    .pids = request_.pids,
                                    .trace_name = request_.c10d_name,
                                    .global_ranks = {request_.global_ranks.begin(), request_.global_ranks.end()},
                                    .purposes = kPurposeTexts,
                                    .find_obstacle = &find_obstacle_,
                                    .has_lost_a_rank = &has_lost_a_rank_};
    auto group = shm::Group::join(options);
    if (!group.ok()) {
      const auto cause = describe(group.error());
      fail(somebody_is_missing() ? absence(cause) : inability(fmt::format("rank {}: {}", own_name(), cause)));
    }
    agree();
    return std::move(*group);
  }

 private:
  Failure failure(const std::string& cause, std::string hint) const {
    return {.causes = {cause},
            .hint = std::move(hint),
            .what = fmt::format("the ranks of group \"{}\" cannot share memory", request_.group_name)};
  }
  Failure absence(const std::string& cause) const {
    auto absent = failure(cause,
                          "see whether that rank ended, or creates other groups before this one; if it is only late, "
                          "raise the timeout");
    absent.kind = Failure::Kind::kLostRank;
    return absent;
  }
  // For a rank that is there, but cannot attach.
  Failure inability(const std::string& cause) const {
    return failure(cause, "use backend \"gloo\"; or name no backend: Cohort then uses \"shm\" where it can");
  }

  // Then another backend would wait for that rank, too.
  bool somebody_is_missing() const { return has_lost_a_rank_ || Clock::now() >= deadline_; }

  milliseconds left() const { return base::time_left(deadline_); }
  std::string key(const char* name) const { return prefix_ + name; }

  static std::string describe(const base::Error& error) {
    const auto* cause = &error;
    while (cause->cause()) cause = cause->cause();
    return cause->message();
  }

  std::string reported_failure() {
    if (!request_.store->check({key("failed")})) return {};
    const auto bytes = request_.store->get(key("failed"));
    return {bytes.begin(), bytes.end()};
  }

  std::string address() {
    if (request_.rank == 0) {
      auto address = shm::new_address();
      request_.store->set(key("address"), base::to_bytes(address));
      return address;
    }
    wait_until("rank 0 never arrived", [this] { return request_.store->check({key("address")}); });
    const auto bytes = request_.store->get(key("address"));
    return {bytes.begin(), bytes.end()};
  }

  // Makes sure that either all ranks use the group or none does.
  void agree() {
    auto count = request_.store->add(key("joined"), 1);
    wait_until("not every rank arrived", [&] {
      if (count < request_.world_size) count = request_.store->add(key("joined"), 0);
      return count >= request_.world_size;
    });
  }

  template <class Condition>
  void wait_until(const char* otherwise, Condition is_met) {
    while (!is_met()) {
      if (const auto reported = reported_failure(); !reported.empty()) end_with(decode_failure(reported));
      if (Clock::now() >= deadline_) {
        fail(absence(fmt::format("{} within the timeout of {}", otherwise, base::format_duration(request_.timeout))));
      }
      std::this_thread::sleep_for(kMeetInterval);
    }
  }

  // Ends every rank with the first failure.
  [[noreturn]] void fail(Failure first) {
    try {
      const auto there = request_.store->compareSet(key("failed"), {}, base::to_bytes(encode_failure(first)));
      first = decode_failure(std::string(there.begin(), there.end()));
    } catch (const std::exception&) {
      raise(first);  // the store has ended with its host
    }
    end_with(first);
  }

  [[noreturn]] void end_with(const Failure& first) {
    await_readers();
    raise(first);
  }

  // Stays until all ranks have read why the start fails: rank 0's process may host the store, and a rank that leaves removes its
  // entry from the membership check, where a slow rank may still look for it.
  void await_readers() {
    try {
      const auto end = Clock::now() + kMeetGrace;
      auto count = request_.store->add(key("read"), 1);
      while (count < request_.world_size && Clock::now() < end) {
        std::this_thread::sleep_for(kMeetInterval);
        count = request_.store->add(key("read"), 0);
      }
    } catch (const std::exception&) {
      return;  // the store has ended with its host
    }
  }

  uint64_t own_name() const {
    const auto rank = static_cast<size_t>(request_.rank);
    return rank < request_.global_ranks.size() ? request_.global_ranks[rank] : rank;
  }

  [[noreturn]] static void raise(const Failure& first) {
    if (first.kind == Failure::Kind::kLostRank) throw_failure(first);
    throw CannotShareMemory({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, failure_text(first),
                            base::join(first.causes, "; "));
  }

  const BackendRequest& request_;
  const std::string prefix_;
  const Clock::time_point deadline_;
  const std::function<std::string()> find_obstacle_;
  bool has_lost_a_rank_ = false;
};

Cores cores_of(const BackendRequest& request) {
  const auto local = base::parse_int(rendezvous::LaunchEnvironment().get("LOCAL_WORLD_SIZE").value_or(""));
  const auto num_ranks = std::max<long long>(request.world_size, local.value_or(0));
  const auto num_cores = base::available_cores();
  if (num_cores < num_ranks) return Cores::kShared;
  return num_cores == num_ranks ? Cores::kOwn : Cores::kSpare;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_shm_backend(const BackendRequest& request) {
  auto session = ShmSession::create(Attachment(request).attach(), request, cores_of(request));
  return c10::make_intrusive<ShmBackend>(std::move(session), request);
}

// Compares without dynamic_cast, which takes a third of the time of a call.
DirectCollectives* shm_direct_collectives(c10d::Backend& backend) {
  return typeid(backend) == typeid(ShmBackend) ? static_cast<ShmBackend*>(&backend) : nullptr;
}

}  // namespace cohort::comm
