#include "cohort/comm/watch/unawaited_works.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"

namespace cohort::comm {
namespace {

// A longer list does not help the reader.
constexpr size_t kMostNamed = 4;

// Leaked: a Work may be destroyed while the process exits.
struct UnawaitedWorks {
  std::vector<std::string> names;
  size_t count = 0;
};
struct Unawaited {
  std::mutex mutex;
  UnawaitedWorks of_all_ranks, of_this_rank;
};
Unawaited& unawaited() {
  static auto* const all = new Unawaited;
  return *all;
}

}  // namespace

void note_unawaited(const std::string& operation, uint64_t sequence, const std::string& group, UnawaitedOn where) {
  auto& all = unawaited();
  const std::lock_guard lock(all.mutex);
  auto& works = where == UnawaitedOn::kAllRanks ? all.of_all_ranks : all.of_this_rank;
  if (works.count++ < kMostNamed) {
    works.names.push_back(operation + " #" + std::to_string(sequence) + " on group \"" + group + "\"");
  }
}

void warn_of_unawaited(bool says_for_all) {
  auto& all = unawaited();
  UnawaitedWorks collectives, own;
  {
    const std::lock_guard lock(all.mutex);
    collectives = std::exchange(all.of_all_ranks, {});
    own = std::exchange(all.of_this_rank, {});
  }
  if (!says_for_all) collectives = {};
  const size_t count = collectives.count + own.count;
  if (count == 0) return;
  auto names = std::move(collectives.names);
  names.insert(names.end(), own.names.begin(), own.names.end());
  names.resize(std::min(names.size(), kMostNamed));
  if (count > names.size()) names.push_back(std::to_string(count - names.size()) + " more");
  base::log_warning(
      "nobody has called wait() on the Work of " + base::join(names, ", ") +
      ": their tensors may have been read before the results were there. Call wait() on every Work before "
      "you use its tensors.");
}

}  // namespace cohort::comm
