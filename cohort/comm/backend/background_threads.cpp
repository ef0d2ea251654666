#include "cohort/comm/backend/background_threads.h"

#include <atomic>
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

std::atomic<bool> is_ending_without_waiting = false;

// Functions of these objects, and their destructors, may run foreign code, so they run without the lock.
std::vector<std::shared_ptr<BackgroundThreads>> running_threads() {
  std::vector<std::shared_ptr<BackgroundThreads>> found;
  const std::lock_guard lock(background().mutex);
  for (const auto& [threads, reference] : background().running) {
    if (auto owner = reference.lock()) found.push_back(std::move(owner));
  }
  return found;
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
  size_t count = 0;
  for (const auto& threads : running_threads()) count += threads->num_pending();
  return count;
}

size_t complete_background_operations() {
  size_t num_lost = 0;
  for (const auto& threads : running_threads()) num_lost += threads->complete();
  return num_lost;
}

void end_background_operations() {
  for (const auto& threads : running_threads()) {
    if (threads->num_pending() > 0) threads->close();
  }
}

void end_without_waiting() { is_ending_without_waiting = true; }

bool ends_without_waiting() { return is_ending_without_waiting; }

bool end_background_threads() {
  const auto all = running_threads();
  for (const auto& threads : all) threads->close();
  return !all.empty();
}

}  // namespace cohort::comm
