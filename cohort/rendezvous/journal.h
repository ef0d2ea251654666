/// Journal: the lists of notices and news of a rendezvous, in a store. Private to this folder.
///
/// Keys, each after "cohort/<run id>/":
///     notices, notice/<k>   how many were begun; the k-th
///     news/<k>              the k-th; written once, by compare_set
///     beat/<id>             counts up while the node lives
///     settings, why, rank/<node rank>, workers/<round>
/// No key is written by all nodes but the counter `notices`, so that a thousand of them share one store.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cohort/rendezvous/records.h"
#include "cohort/store/keys/store.h"

namespace cohort::rendezvous {

class Journal {
 public:
  using Milliseconds = std::chrono::milliseconds;

  Journal(std::unique_ptr<store::Store> store, std::string run_id);

  /// Returns the notice's place. Called again after an error, it goes on where it was: nothing is told twice.
  base::Result<int64_t> tell(const Notice& notice);
  /// The number of notices begun so far.
  base::Result<int64_t> num_notices();
  /// Notices from `place` on, as far as they are there. A gap, of a node that died while it wrote, ends them.
  base::Result<std::vector<Notice>> notices_from(int64_t place);
  /// Fills a gap, so that the list goes on behind it.
  base::Result<void> close_gap(int64_t place);
  /// Returns false when none came in time, or earlier.
  base::Result<bool> wait_for_notice(int64_t place, Milliseconds timeout);

  base::Result<bool> wait_for_news(int64_t place, Milliseconds timeout);
  base::Result<News> news_at(int64_t place);
  base::Result<bool> has_news_at(int64_t place);
  /// Writes news at `place`. Returns false if other news is there.
  base::Result<bool> announce(int64_t place, const News& news);

  base::Result<void> beat(NodeId id);
  /// Of nodes that have come.
  base::Result<std::vector<std::string>> beats(const std::vector<NodeId>& ids);

  base::Result<void> set(const std::string& name, const std::string& value);
  /// Nothing if it is not there within `timeout`, or less.
  base::Result<std::optional<std::string>> get(const std::string& name, Milliseconds timeout = Milliseconds(0));
  /// Sets it if it is not there. Returns what is there afterwards.
  base::Result<std::string> set_once(const std::string& name, const std::string& value);

  store::Store& store() { return *store_; }
  /// An entry was there that this program does not understand: what failed then was not the store.
  bool has_misread() const { return has_misread_; }
  base::Result<std::unique_ptr<Journal>> clone();

 private:
  std::string key(const std::string& name) const { return prefix_ + name; }
  std::string key(const char* list, int64_t place) const { return prefix_ + list + std::to_string(place); }
  base::Result<bool> wait(const std::string& key, Milliseconds timeout);

  /// Waits may end early, so that stores that cannot be interrupted let go of a thread.
  static constexpr Milliseconds kLongestWait{300};

  const std::unique_ptr<store::Store> store_;
  const std::string run_id_;
  const std::string prefix_;
  std::atomic<bool> has_misread_ = false;
  /// A notice that has a place, and may be written there.
  struct Begun {
    std::string text;
    int64_t place = 0;
  };
  std::optional<Begun> begun_;
};

}  // namespace cohort::rendezvous
