#include "cohort/comm/watch/unawaited_works.h"

#include <mutex>
#include <utility>
#include <vector>

#include "cohort/base/log.h"
#include "cohort/base/text.h"

namespace cohort::comm {
namespace {

// Longer lists help nobody.
constexpr size_t kMostNamed = 4;

// Leaked: a Work may go while the process exits.
struct Unawaited {
  std::mutex mutex;
  std::vector<std::string> names;
  size_t count = 0;
};
Unawaited& unawaited() {
  static auto* const all = new Unawaited;
  return *all;
}

}  // namespace

void note_unawaited(const std::string& operation, uint64_t sequence, const std::string& group) {
  auto& all = unawaited();
  const std::lock_guard lock(all.mutex);
  if (all.count++ < kMostNamed) {
    all.names.push_back(operation + " #" + std::to_string(sequence) + " on group \"" + group + "\"");
  }
}

void warn_of_unawaited(bool says) {
  auto& all = unawaited();
  std::vector<std::string> names;
  size_t count = 0;
  {
    const std::lock_guard lock(all.mutex);
    names = std::exchange(all.names, {});
    count = std::exchange(all.count, 0);
  }
  if (count == 0 || !says) return;
  if (count > names.size()) names.push_back(std::to_string(count - names.size()) + " more");
  base::log_warning(
      "nobody has called wait() on the Work of " + base::join(names, ", ") +
      ": their tensors may have been read before the results were there. Call wait() on every Work before "
      "you use its tensors.");
}

}  // namespace cohort::comm
