#include "cohort/comm/shm/open_sessions.h"

#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cohort/comm/shm/shm_session.h"

namespace cohort::comm {
namespace {

// Leaked on purpose: read at exit.
struct Sessions {
  std::mutex mutex;
  std::set<ShmSession*> open;
};

Sessions& sessions() {
  static auto* const instance = new Sessions;
  return *instance;
}

size_t close_sessions(bool idle_ones_too) {
  std::vector<std::shared_ptr<ShmSession>> found;
  {
    const std::lock_guard lock(sessions().mutex);
    for (auto* session : sessions().open) {
      if (!idle_ones_too && session->num_pending() == 0) continue;
      if (auto owner = session->weak_from_this().lock()) found.push_back(std::move(owner));
    }
  }
  for (const auto& session : found) session->close();
  return found.size();
}

}  // namespace

void add_open_session(ShmSession& session) {
  const std::lock_guard lock(sessions().mutex);
  sessions().open.insert(&session);
}

void remove_open_session(ShmSession& session) {
  const std::lock_guard lock(sessions().mutex);
  sessions().open.erase(&session);
}

size_t num_pending_shm_operations() {
  const std::lock_guard lock(sessions().mutex);
  size_t count = 0;
  for (auto* session : sessions().open) count += session->num_pending();
  return count;
}

void end_shm_operations() { close_sessions(/*idle_ones_too=*/false); }

size_t end_shm_threads() { return close_sessions(/*idle_ones_too=*/true); }

}  // namespace cohort::comm
