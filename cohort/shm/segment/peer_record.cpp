#include "cohort/shm/segment/peer_record.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "cohort/base/file/file.h"
#include "cohort/base/machine/cpu.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/process_state.h"
#include "cohort/base/text/text.h"

namespace cohort::shm {
namespace {

uint64_t to_number(const std::string& text) { return text.empty() ? 0 : std::stoull(text); }

std::string start_of(const PeerRecord& peer) { return peer.started_at == 0 ? "" : std::to_string(peer.started_at); }

void read_affinity(PeerRecord& peer) {
  cpu_set_t* const set = CPU_ALLOC(1024);
  const auto size = CPU_ALLOC_SIZE(1024);
  static_assert(sizeof(peer.affinity) == 1024 / 8);
  if (sched_getaffinity(0, size, set) == 0) std::memcpy(peer.affinity, set, std::min(size, sizeof(peer.affinity)));
  CPU_FREE(set);
}

}  // namespace

PeerRecord this_process() {
  PeerRecord peer{};
  peer.pid = getpid();
  peer.tid = gettid();
  peer.started_at = to_number(base::read_process_state(peer.pid).started_at);
  const auto membership = base::read_file("/proc/self/cgroup");
  if (membership) peer.quota = base::cgroup_core_limit("/sys/fs/cgroup", *membership).value_or(0);
  read_affinity(peer);
  gethostname(peer.host, sizeof(peer.host) - 1);
  peer.arena = address_of_process_arena();
  return peer;
}

bool is_gone(const PeerRecord& peer) {
  if (peer.pid == getpid()) return false;
  return base::read_process_state(peer.pid).is_gone_since(start_of(peer));
}

std::string describe(const PeerRecord& peer) {
  return fmt::format("pid {} on {}", peer.pid, std::string(peer.host, strnlen(peer.host, sizeof(peer.host))));
}

std::string how_it_ended(const PeerRecord& peer) {
  const auto state = base::read_process_state(peer.pid);
  if (!state.exists || state.started_at != start_of(peer) || state.wait_status == 0) return "has ended";
  if (WIFSIGNALED(state.wait_status)) {
    return "was killed by " + base::ExitStatus{0, WTERMSIG(state.wait_status)}.describe();
  }
  return "has ended with " + base::ExitStatus{WEXITSTATUS(state.wait_status), 0}.describe();
}

bool have_cores_of_their_own(const std::vector<PeerRecord>& ranks) {
  uint64_t together[16] = {};
  for (const auto& rank : ranks) {
    if (rank.quota > 0 && rank.quota < static_cast<double>(ranks.size())) return false;
    for (int i = 0; i < 16; ++i) together[i] |= rank.affinity[i];
  }
  int num_cores = 0;
  for (const auto word : together) num_cores += std::popcount(word);
  return num_cores >= static_cast<int>(ranks.size());
}

}  // namespace cohort::shm
