#include "cohort/store/keys/store.h"

#include <fmt/format.h>

#include "cohort/base/text/text.h"
#include "cohort/store/keys/waiting.h"

namespace cohort::store {

// The keys are those of PyTorch's stores that have no barrier of their own, so that both can meet at one barrier.
Store::Result<void> Store::barrier(const std::string& key, int64_t world_size, Milliseconds timeout) {
  const auto is_open = key + "/last_member";
  const auto count = add(key + "/num_members", 1);
  if (!count) return count.error();
  if (*count == world_size) return set(is_open, "1");
  const auto waited = wait({is_open}, timeout);
  if (waited || !is_timeout(waited.error())) return waited;
  return barrier_timed_out(timeout, key);
}

bool is_timeout(const base::Error& error) {
  return error.message().starts_with("wait timeout after ") || error.message().starts_with("barrier timeout after ");
}

base::Error wrong_count(size_t num_keys, size_t num_values) {
  return base::Error(fmt::format("multi_set got {} keys and {} values", num_keys, num_values));
}

}  // namespace cohort::store
