/// Keeper: one rank's snapshots. It writes states of this rank into memory files that the launcher holds, two by turns, and after
/// a restart finds what all ranks can go on from.
///
///     auto keeper = Keeper::create(place, "0");
///     auto look = (*keeper)->look();                    // on every rank: what there is
///     (*keeper)->settle(look->found ? &*look->found : nullptr);
///     ...
///     auto room = (*keeper)->begin(generation, meta);   // waits until all ranks have the one before
///     (copy into room->own and room->shared)
///     (*keeper)->commit();                              // the rest happens in the background
///
/// A generation counts once every rank has committed it and, on several nodes, sent its own bytes to the next node's launcher.
/// Only then is the one before written over: at any moment there is one that all ranks have. Ranks tell each other through the
/// round's store.
///
/// A wait for other ranks says so after 10 s. It ends when its caller asks for that (KeeperWaits), and when somebody has deleted
/// this job's keys: then all ranks get an error instead of waiting for each other.
///
/// Thread-safety: one thread at a time. A thread of its own does what need not hold up training.
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
#include "cohort/store/keys/store.h"
#include "cohort/vault/generation_file.h"
#include "cohort/vault/keeper/file_slots.h"
#include "cohort/vault/keeper/partner_copy.h"
#include "cohort/vault/keeper/rank_waits.h"
#include "cohort/vault/keeper/snapshot_search.h"
#include "cohort/vault/place.h"
#include "cohort/vault/vault_client.h"

namespace cohort::vault {

/// Where to copy to.
struct Room {
  std::span<std::byte> own;
  std::span<std::byte> shared;
  /// Of `shared` in all that ranks have alike.
  uint64_t shared_begin = 0;
};

/// Added in the place of a layout by a rank that cannot go on; more than all ranks' layouts together.
inline constexpr int64_t kCannotGoOn = int64_t{1} << 56;

class Keeper {
 public:
  /// `name`: the same on all ranks, used once in a round.
  static base::Result<std::unique_ptr<Keeper>> create(const Place& place, const std::string& name,
                                                      const KeeperWaits& waits = {});
  /// Leaves what is committed to the launcher. Does not wait for other ranks.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// Collective. Changes nothing.
  base::Result<Finding> look();
  /// Collective, after look(): newer states than `found`'s, which not all ranks have, are forgotten, without one all of them.
  base::Result<void> settle(const Found* found);

  /// False once ranks have turned out to have different things in what they should have alike: then each keeps all that it has.
  bool shares() const { return shares_; }
  /// Of `generation` the caller sets step, suits_other_worlds, num_own_bytes, shared_total and shared_layout. Waits until the
  /// background is done with the last one; its error is returned here. Errors are final, and every rank gets them, at this or the
  /// next call: no rank keeps anything any more, and what was kept is given back; but not where find_obstacle has ended a wait,
  /// as the run's next start goes on from it.
  base::Result<Room> begin(Generation generation, const std::string& meta);
  /// The copy is whole.
  void commit();
  /// The copy failed: forgets it.
  void abandon();
  /// Blocks until the background is done. Error: of what it did, or what has ended the wait.
  base::Result<void> wait();
  /// The newest that all ranks have.
  std::optional<int64_t> complete_step();
  /// Said once: why states are not copied to another node.
  std::string partner_problem() { return partner_.take_problem(); }

 private:
  using Clock = RankWaits::Clock;
  enum class Background : uint8_t {
    kIdle,
    kBusy,  ///< with what was committed
    kOver   ///< its thread ends
  };

  Keeper(const Place& place, const std::string& name, const KeeperWaits& waits)
      : place_(place),
        prefix_("snapshots/" + name + "/"),
        waits_(place_, waits),
        search_(place_, waits_),
        slots_(place_),
        partner_(place_) {}
  void tell_failure(const base::Error& error);
  void start_background();

  void run();
  base::Result<void> finish(const Generation& generation);
  base::Result<bool> agree(int64_t layout);
  base::Result<void> look_in_background(const std::string& name);
  base::Error end_meeting(const std::string& name, const base::Error& why);
  base::Error give_back(const std::string& why);
  base::Result<void> drop_stale(int64_t step);
  std::string key(const std::string& name) const { return prefix_ + name; }

  const Place place_;
  const std::string prefix_;
  std::optional<VaultClient> vault_;
  std::unique_ptr<store::Store> store_;
  RankWaits waits_;
  SnapshotSearch search_;
  FileSlots slots_;
  PartnerCopy partner_;
  Generation written_;
  /// Why nothing was written.
  std::optional<std::string> failure_;
  bool shares_ = true;
  bool has_dropped_ = false;
  int64_t sequence_ = 0;

  std::mutex mutex_;  ///< of what stands below
  std::condition_variable changed_;
  Background background_ = Background::kIdle;
  /// Why the caller of wait() waits no longer.
  std::optional<base::Error> obstacle_;
  std::optional<base::Error> error_;
  std::optional<int64_t> complete_step_;
  std::thread thread_;
};

}  // namespace cohort::vault
