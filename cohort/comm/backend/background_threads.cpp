#include "cohort/comm/backend/background_threads.h"

#include <map>
#include <mutex>
#include <vector>

namespace cohort::comm {
namespace {

// Leaked on purpose: read at exit.
struct BackgroundList {
  std::mutex mutex;
  std::map<BackgroundThreads*, std::weak_ptr<BackgroundThreads>> running;
};

BackgroundList& background() {
  static auto* const instance = new BackgroundList;
  return *instance;
}

size_t close_background(bool idle_ones_too) {
  std::vector<std::shared_ptr<BackgroundThreads>> found;
  {
    const std::lock_guard lock(background().mutex);
    for (const auto& [threads, reference] : background().running) {
      if (!idle_ones_too && threads->num_pending() == 0) continue;
      if (auto owner = reference.lock()) found.push_back(std::move(owner));
    }
  }
  for (const auto& threads : found) threads->close();
  return found.size();
}

}  // namespace

void add_background_threads(const std::shared_ptr<BackgroundThreads>& threads) {
  const std::lock_guard lock(background().mutex);
  background().running[threads.get()] = threads;
}

void remove_background_threads(BackgroundThreads& threads) {
  const std::lock_guard lock(background().mutex);
  background().running.erase(&threads);
}

size_t num_pending_in_background() {
  const std::lock_guard lock(background().mutex);
  size_t count = 0;
  for (const auto& [threads, reference] : background().running) count += threads->num_pending();
  return count;
}

void end_background_operations() { close_background(/*idle_ones_too=*/false); }

bool end_background_threads() { return close_background(/*idle_ones_too=*/true) > 0; }

}  // namespace cohort::comm
