/// SnapshotClient: writes states of this rank alternately into two memory files that the launcher keeps,
/// and after a restart finds the version from which all ranks can go on.
///
///     auto client = SnapshotClient::create(place, "0");
///     auto look = (*client)->look();                    // on every rank: finds a version
///     (*client)->settle(look->found ? &*look->found : nullptr);
///     ...
///     auto slot = (*client)->begin(version, meta);      // waits until all ranks have the version before
///     (copy into slot->own and slot->shared)
///     (*client)->commit();                              // the rest happens in the background
///
/// A version counts once every rank has committed it and, on several nodes, sent its own bytes to the next node's launcher. Only
/// then the version before is overwritten, so there always is one that all ranks have. Ranks communicate through the round's
/// store.
///
/// A wait for other ranks logs a line after 10 s. It ends when its caller asks for that (RankWaitOptions), and when somebody has
/// deleted this job's keys: then all ranks get an error instead of waiting for each other.
///
/// Thread-safety: one thread at a time. An own thread does the work that need not block training.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "cohort/base/error/result.h"
#include "cohort/snapshot/client/file_slots.h"
#include "cohort/snapshot/client/partner_copy.h"
#include "cohort/snapshot/client/rank_waits.h"
#include "cohort/snapshot/client/snapshot_search.h"
#include "cohort/snapshot/place.h"
#include "cohort/snapshot/server_connection.h"
#include "cohort/snapshot/version_file.h"
#include "cohort/store/keys/store.h"

namespace cohort::snapshot {

/// The memory of a version, to copy to.
struct Slot {
  std::span<std::byte> own;
  std::span<std::byte> shared;
  /// The offset of `shared` in the replicated bytes.
  uint64_t shared_begin = 0;
};

/// Added instead of a layout by a rank that cannot go on; larger than the sum of all ranks' layouts.
inline constexpr int64_t kCannotGoOn = int64_t{1} << 56;

class SnapshotClient {
 public:
  /// Creates the client. `name` must be the same on all ranks, and is used once in a round.
  static base::Result<std::unique_ptr<SnapshotClient>> create(const Place& place, const std::string& name,
                                                              const RankWaitOptions& waits = {});
  /// Leaves committed versions to the launcher. Does not wait for other ranks.
  ~SnapshotClient();
  SnapshotClient(const SnapshotClient&) = delete;
  SnapshotClient& operator=(const SnapshotClient&) = delete;

  /// Finds the version from which all ranks can go on. Collective. Changes nothing.
  base::Result<Finding> look();
  /// Deletes newer versions than `found`, which not all ranks have; if `found` is null, deletes all. Collective; requires look()
  /// before.
  base::Result<void> settle(const Found* found);

  /// Whether each rank keeps only its part of the replicated bytes. False once the ranks' replicated bytes turned out to differ:
  /// then each keeps all of its bytes.
  bool shares() const { return shares_; }
  /// Begins a version. The caller sets step, suits_other_worlds, num_own_bytes, shared_total and shared_layout of `version`.
  /// Waits until the background work on the last version is done, and returns its error. Errors are final, and every rank gets
  /// them at this or the next call: no rank keeps versions any more, and existing ones are deleted. If find_obstacle has ended a
  /// wait, they are kept, because the next start of the run goes on from them.
  base::Result<Slot> begin(Version version, const std::string& meta);
  /// Commits the version, whose copy is complete.
  void commit();
  /// Discards the version, because the copy failed.
  void abandon();
  /// Blocks until the background work is done. Returns its error, or the reason that has ended the wait.
  base::Result<void> wait();
  /// The step of the newest version that all ranks have.
  std::optional<int64_t> complete_step();
  /// Returns, once, why states are not copied to another node.
  std::string partner_problem() { return partner_.take_problem(); }

 private:
  using Clock = RankWaits::Clock;
  enum class Background : uint8_t {
    kIdle,
    kBusy,  ///< works on the committed version
    kOver   ///< its thread ends
  };

  SnapshotClient(const Place& place, const std::string& name, const RankWaitOptions& waits)
      : place_(place),
        prefix_("snapshots/" + name + "/"),
        waits_(place_, waits),
        search_(place_, waits_),
        slots_(place_),
        partner_(place_) {}
  void tell_failure(const base::Error& error);
  void start_background();

  void run();
  base::Result<void> finish(const Version& version);
  base::Result<bool> agree(int64_t layout);
  base::Result<void> look_in_background(const std::string& name);
  base::Error end_meeting(const std::string& name, const base::Error& why);
  base::Error give_back(const std::string& why);
  base::Result<void> drop_stale(int64_t step);
  std::string key(const std::string& name) const { return prefix_ + name; }

  const Place place_;
  const std::string prefix_;
  std::optional<ServerConnection> server_;
  std::unique_ptr<store::Store> store_;
  RankWaits waits_;
  SnapshotSearch search_;
  FileSlots slots_;
  PartnerCopy partner_;
  Version written_;
  /// The reason why nothing was written.
  std::optional<std::string> failure_;
  bool shares_ = true;
  bool has_dropped_ = false;
  int64_t sequence_ = 0;

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  Background background_ = Background::kIdle;
  /// The reason why the caller of wait() stopped waiting.
  std::optional<base::Error> obstacle_;
  std::optional<base::Error> error_;
  std::optional<int64_t> complete_step_;
  std::thread thread_;
};

}  // namespace cohort::snapshot
