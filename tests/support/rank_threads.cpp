#include "tests/support/rank_threads.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <latch>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "cohort/base/system/env.h"
#include "cohort/comm/gloo/make_gloo_backend.h"
#include "cohort/comm/shm/make_shm_backend.h"

namespace cohort::test {
namespace {

// Of this thread's rank, with those of split_rank_threads().
thread_local std::vector<Group> groups_of_rank;
thread_local RankThreadsOptions options_of_rank;

Group make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                 const RankThreadsOptions& options) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, world_size);
  const comm::BackendRequest request{.store = c10::make_intrusive<c10d::PrefixStore>("cpu/", store),
                                     .rank = rank,
                                     .world_size = world_size,
                                     .timeout = options.timeout,
                                     .group_name = "threads",
                                     .global_ranks = {},
                                     .watch = nullptr,
                                     .device_id = std::nullopt};
  const auto make = options.make_backend          ? options.make_backend
                    : backend_of_tests() == "shm" ? MakeBackend(comm::make_shm_backend)
                                                  : MakeBackend(comm::make_gloo_backend);
  const auto backend = make(request);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  return group;
}

}  // namespace

std::string backend_of_tests() { return base::get_env("COHORT_TEST_BACKEND").value_or("shm"); }

void run_rank_threads(int world_size, const std::function<void(int, const Group&)>& fn,
                      const RankThreadsOptions& options) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(options.timeout);
  std::mutex mutex;
  std::string first_error;
  const auto succeeds = [&](int rank, const std::function<void()>& body) {
    try {
      body();
      return true;
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (first_error.empty()) first_error = "rank " + std::to_string(rank) + ": " + error.what();
      return false;
    }
  };
  // Who leaves a group of Gloo's while another rank still connects to it, or to a part of it, makes that fail. A rank that has
  // failed leaves at once, so that others do not wait for it.
  std::latch made(world_size);
  std::latch done(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      options_of_rank = options;
      bool is_fine = succeeds(rank, [&] { groups_of_rank.push_back(make_group(store, rank, world_size, options)); });
      made.arrive_and_wait();
      if (is_fine) is_fine = succeeds(rank, [&, group = groups_of_rank.front()] { fn(rank, group); });
      if (is_fine) {
        done.arrive_and_wait();
      } else {
        done.count_down();
      }
      groups_of_rank.clear();
    });
  }
  for (auto& thread : threads) thread.join();
  if (!first_error.empty()) throw std::runtime_error(first_error);
}

Group split_rank_threads(const Group& group, const std::vector<std::vector<int>>& lists) {
  for (const auto& ranks : lists) {
    const auto found = std::find(ranks.begin(), ranks.end(), group->getRank());
    if (found == ranks.end()) continue;
    std::string name = "list";
    for (const int rank : ranks) name += "-" + std::to_string(rank);
    // A rank may be alone in having made other groups, but not this one.
    thread_local std::map<std::string, int> times;
    const auto key = name + "/" + std::to_string(times[name]++) + "/";
    const auto store = c10::make_intrusive<c10d::PrefixStore>(key, group->getStore());
    return groups_of_rank.emplace_back(
        make_group(store, static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size()), options_of_rank));
  }
  throw std::logic_error("rank " + std::to_string(group->getRank()) + " is in none of the lists");
}

}  // namespace cohort::test
