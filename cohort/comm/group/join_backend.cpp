#include "cohort/comm/group/join_backend.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <memory>
#include <numeric>

#include "cohort/comm/registry/backends.h"
#include "cohort/comm/shm/open_sessions.h"
#include "cohort/comm/start/roll_call.h"
#include "cohort/comm/watch/peers.h"
#include "cohort/comm/watch/process_watch.h"
#include "cohort/comm/watch/reports.h"
#include "cohort/job/shm_choice.h"

namespace cohort::comm {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Who is who in a job, or in a group of it.
struct Roll {
  std::shared_ptr<Peers> peers;
  std::shared_ptr<Reports> reports;
};

// What the groups of this process share. Nothing of it keeps a group or its store alive.
struct Joined {
  std::weak_ptr<Peers> peers;  // of the default group
  std::weak_ptr<Reports> reports;
  const c10d::Store* last_store = nullptr;
  c10::weak_intrusive_ptr<c10d::Backend> last_backend{BackendPtr()};
};

Joined& joined() {
  static auto* const instance = new Joined;
  return *instance;
}

StorePtr store_of_group(const JoinRequest& request) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(request.store.get());
  TORCH_CHECK_VALUE(prefixed, "backend \"", request.backend,
                    "\" needs the store that torch.distributed gives to a backend, a PrefixStore");
  return prefixed->getUnderlyingStore();
}

std::string name_in_texts(const JoinRequest& request) {
  return request.global_ranks.empty() ? "default_pg" : request.group_name;
}

Roll call_roll_of(const JoinRequest& request, const StorePtr& store) {
  auto peers = std::make_shared<Peers>(store, request.rank, request.world_size);
  peers->learn(call_roll({.store = store,
                          .rank = request.rank,
                          .world_size = request.world_size,
                          .timeout = request.timeout,
                          .plan = std::nullopt,
                          .uses_gloo = request.backend == "cohort",
                          .is_among_own_kind = true,
                          .needs_shared_memory = request.backend == "shm",
                          .group = name_in_texts(request)}));
  auto reports = std::make_shared<Reports>(store, peers, request.rank, request.world_size);
  return {std::move(peers), std::move(reports)};
}

std::vector<int> numbered(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class Joining {
 public:
  explicit Joining(const JoinRequest& request) : request_(request), store_(store_of_group(request)) { meet(); }

  BackendPtr connect() {
    try {
      return backend_kind(request_.backend).create(make_request());
    } catch (const c10::ValueError&) {
      throw;
    } catch (const std::exception&) {
      if (is_own_roll_) leave_roll(store_, request_.rank);
      throw;
    }
  }

 private:
  // Groups after the first know each other from the default group, if that is one of ours.
  void meet() {
    roll_ = {joined().peers.lock(), joined().reports.lock()};
    is_own_roll_ = request_.global_ranks.empty() || !roll_.peers || !roll_.reports;
    members_ = is_own_roll_ ? numbered(request_.world_size) : request_.global_ranks;
    if (!is_own_roll_) return;
    roll_ = call_roll_of(request_, store_);
    if (!request_.global_ranks.empty()) return;
    joined().peers = roll_.peers;
    joined().reports = roll_.reports;
  }

  BackendRequest make_request() {
    std::vector<job::Arrival> arrivals;
    std::vector<int> pids;
    for (const int rank : members_) {
      arrivals.push_back(roll_.peers->arrival(rank));
      if (arrivals.back().peer) pids.push_back(arrivals.back().peer->pid);
    }
    if (pids.size() != arrivals.size()) pids.clear();
    const auto obstacles = job::obstacles_to_shm(arrivals);
    const auto name = name_in_texts(request_);
    TORCH_CHECK_VALUE(request_.backend != "shm" || obstacles.empty(), job::shm_refusal_text(name, obstacles));
    return {.store = request_.store,
            .rank = request_.rank,
            .world_size = request_.world_size,
            .timeout = request_.timeout,
            .group_name = name,
            .global_ranks = {request_.global_ranks.begin(), request_.global_ranks.end()},
            .watch = make_process_watch(roll_.peers, roll_.reports,
                                        {name, members_, request_.rank, request_.timeout, store_}),
            .device_id = std::nullopt,
            .c10d_name = request_.group_name,
            .start_count = roll_.peers->start_count(),
            .pids = std::move(pids),
            .shm_obstacles = obstacles};
  }

  const JoinRequest& request_;
  const StorePtr store_;
  Roll roll_;
  bool is_own_roll_ = false;
  std::vector<int> members_;
};

}  // namespace

bool end_background_threads() { return end_shm_threads() > 0; }

BackendPtr join_backend(const JoinRequest& request) {
  auto& last = joined();
  const auto store = store_of_group(request);
  if (auto known = last.last_backend.lock(); known && last.last_store == store.get()) return known;
  auto backend = Joining(request).connect();
  last.last_store = store.get();
  last.last_backend = c10::weak_intrusive_ptr<c10d::Backend>(backend);
  return backend;
}

}  // namespace cohort::comm
