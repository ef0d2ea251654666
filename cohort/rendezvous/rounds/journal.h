/// Journal: the lists of notices and news of a rendezvous, in a store. Private to this folder.
///
/// Keys, each after "cohort/<run id>/":
///     notices, notice/<k>   the number of notices begun; the k-th notice
///     news/<k>              the k-th news; written once, with compare_set
///     beat/<id>             a counter that the node increases while it lives
///     settings, why, rank/<node rank>, workers/<round>
/// The counter `notices` is the only key that all nodes write, so a thousand nodes can share one store.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/rendezvous/rounds/records.h"
#include "cohort/store/keys/store.h"

namespace cohort::rendezvous {

class Journal {
 public:
  using Milliseconds = std::chrono::milliseconds;

  Journal(std::unique_ptr<store::Store> store, std::string run_id);

  /// Writes a notice and returns its place. A call after an error continues the failed one, so no notice is written twice.
  base::Result<int64_t> tell(const Notice& notice);
  /// Returns the number of notices begun so far.
  base::Result<int64_t> num_notices();
  /// Returns the notices from `place` on that exist. Stops at a gap, which a node leaves that dies while it writes.
  base::Result<std::vector<Notice>> notices_from(int64_t place);
  /// Fills a gap, so that the notices after it can be read.
  base::Result<void> close_gap(int64_t place);
  /// Returns false if no notice came within `timeout`; it may return earlier.
  base::Result<bool> wait_for_notice(int64_t place, Milliseconds timeout);

  base::Result<bool> wait_for_news(int64_t place, Milliseconds timeout);
  base::Result<News> news_at(int64_t place);
  /// Returns nullopt if nothing has been written at `place` yet.
  base::Result<std::optional<News>> news_if_at(int64_t place);
  /// Writes news at `place`. Returns false if other news exists there.
  base::Result<bool> announce(int64_t place, const News& news);

  base::Result<void> beat(NodeId id);
  /// Reads the heartbeat counters of nodes that have arrived.
  base::Result<std::vector<std::string>> beats(const std::vector<NodeId>& ids);

  base::Result<void> set(const std::string& name, const std::string& value);
  /// Returns nothing if the key does not exist within `timeout`; it may return earlier.
  base::Result<std::optional<std::string>> get(const std::string& name, Milliseconds timeout = Milliseconds(0));
  /// Sets the key if it does not exist. Returns its value afterwards.
  base::Result<std::string> set_once(const std::string& name, const std::string& value);

  store::Store& store() { return *store_; }
  /// Whether an entry was read that this program does not understand. Then the error is not one of the store.
  bool has_misread() const { return has_misread_; }
  base::Result<std::unique_ptr<Journal>> clone();

 private:
  std::string key(const std::string& name) const { return prefix_ + name; }
  std::string key(const char* list, int64_t place) const { return prefix_ + list + std::to_string(place); }
  base::Result<bool> wait(const std::string& key, Milliseconds timeout);

  /// The limit for one wait, so that stores that cannot be interrupted do not block a thread.
  static constexpr Milliseconds kLongestWait{300};

  const std::unique_ptr<store::Store> store_;
  const std::string run_id_;
  const std::string prefix_;
  std::atomic<bool> has_misread_ = false;
  /// A notice that has a place and may have been written there.
  struct Begun {
    std::string text;
    int64_t place = 0;
  };
  std::optional<Begun> begun_;
};

}  // namespace cohort::rendezvous
