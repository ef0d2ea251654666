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

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/result.h"
#include "cohort/store/store.h"
#include "cohort/vault/choice.h"
#include "cohort/vault/generation_file.h"
#include "cohort/vault/place.h"
#include "cohort/vault/vault_client.h"

namespace cohort::vault {

/// A generation to go on from, as this rank gets it. Valid until the next begin().
struct Found {
  Choice choice;
  /// The node whose memory this rank's own state comes from, and the shared bytes, if that is another node; -1: its own.
  int from_node = -1;
  /// Of a run with this number of ranks, and made by this rank.
  bool is_same_world = true;
  std::string meta;
  std::span<const std::byte> own;
  struct Share {
    uint64_t begin = 0;
    std::span<const std::byte> bytes;
  };
  /// In order; together all that ranks have alike.
  std::vector<Share> shares;
  std::vector<shm::SharedMemoryPtr> mapped = {};
  std::vector<std::vector<std::byte>> fetched = {};
};

struct Finding {
  std::optional<Found> found;
  /// Why nothing was found although there are snapshots; "" otherwise.
  std::string why_not;
};

/// Where to copy to.
struct Room {
  std::span<std::byte> own;
  std::span<std::byte> shared;
  /// Of `shared` in all that ranks have alike.
  uint64_t shared_begin = 0;
};

/// Added in the place of a layout by a rank that cannot go on; more than all ranks' layouts together.
inline constexpr int64_t kCannotGoOn = int64_t{1} << 56;

/// What a rank does while it waits for others in a call.
struct KeeperWaits {
  using Milliseconds = std::chrono::milliseconds;
  /// Looked at every two seconds at least: why the wait should end, such as a signal; "": it goes on. What it throws leaves the
  /// call. May be null.
  std::function<std::string(Milliseconds waited)> find_obstacle = nullptr;
  /// A wait says after this time that it is one, and after twice as much again, and so on.
  Milliseconds first_word{10'000};
};

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
  std::string partner_problem();

 private:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;
  /// Error: the wait is to end.
  using Look = std::function<base::Result<void>()>;

  Keeper(const Place& place, const std::string& name, const KeeperWaits& waits)
      : place_(place), prefix_("snapshots/" + name + "/"), waits_(waits) {}
  base::Result<void> meet(const std::string& name, const Look& look);
  base::Result<bool> is_met(const std::string& name);
  base::Result<void> await(const store::Store::Keys& keys);
  base::Result<void> look_around(Clock::time_point begin, const std::string& what);
  base::Result<void> look_in_background(const std::string& name);
  base::Result<void> read_own_vault();
  base::Result<void> exchange_lists();
  base::Result<void> fetch(Found& found);
  base::Result<std::span<const std::byte>> bytes_from(const Held& held, uint64_t offset, uint64_t size, Found& found);
  base::Result<RemoteVault*> remote(int node);
  base::Result<void> make_room(uint64_t num_bytes);
  void tell_failure(const base::Error& error);
  void start_background();

  void run();
  base::Result<void> finish(const Generation& generation, int slot);
  base::Result<bool> agree(int64_t layout);
  base::Error end_meeting(const std::string& name, const base::Error& why);
  base::Error give_back(const std::string& why);
  void send_copy(const Generation& generation, int slot);
  base::Result<void> send_copy_to(RemoteVault& partner, const Generation& generation, int slot);
  base::Result<void> drop_stale(int64_t step);
  std::string key(const std::string& name) const { return prefix_ + name; }

  const Place place_;
  const std::string prefix_;
  const KeeperWaits waits_;
  std::optional<VaultClient> vault_;
  std::unique_ptr<store::Store> store_;
  /// What the nodes hold, as they said in exchange_lists, and where each can be reached.
  std::vector<Held> all_;
  std::vector<std::string> where_;
  std::vector<std::pair<std::string, GenerationFile>> own_vault_;
  std::vector<std::pair<int, RemoteVault>> remotes_;
  std::optional<GenerationFile> files_[2];
  /// The one that all ranks have; the other is written next.
  int complete_slot_ = 1;
  Generation written_;
  /// Why nothing was written.
  std::optional<std::string> failure_;
  bool shares_ = true;
  bool has_settled_ = false;
  bool has_dropped_ = false;
  int64_t sequence_ = 0;
  std::optional<RemoteVault> partner_;
  uint64_t copy_sizes_[2] = {0, 0};
  /// When the wait began that look_around() has looked at last, and after how long it says something next.
  Clock::time_point said_of_{};
  Milliseconds next_word_{0};
  /// Ranks that have come to where this one waits.
  std::atomic<int64_t> num_come_ = 1;

  std::mutex mutex_;  ///< of what stands below
  std::condition_variable changed_;
  bool is_busy_ = false;
  bool is_over_ = false;
  /// Why the caller of wait() waits no longer.
  std::optional<base::Error> obstacle_;
  std::optional<base::Error> error_;
  std::optional<int64_t> complete_step_;
  std::string partner_problem_;
  int partner_socket_ = -1;
  std::thread thread_;
};

}  // namespace cohort::vault
