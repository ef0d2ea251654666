/// Ranks that have exchanges over shared memory of their own, without a group around them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/shm/memory/regions.h"
#include "cohort/shm/transfer/exchange.h"

namespace cohort::shm {

/// Memory for the channels of some ranks, threads or forked processes, and what they know about each other.
class ExchangeRanks {
 public:
  /// With an arena of `arena_bytes` per rank, which all ranks map; 0: none.
  explicit ExchangeRanks(int world_size, size_t arena_bytes = 0);
  ~ExchangeRanks();
  ExchangeRanks(const ExchangeRanks&) = delete;
  ExchangeRanks& operator=(const ExchangeRanks&) = delete;

  int world_size() const { return world_size_; }
  std::byte* channel(int source, int destination) const;
  uint8_t* arena(int rank) const { return reinterpret_cast<uint8_t*>(arenas_[static_cast<size_t>(rank)]->data()); }
  std::unique_ptr<Exchange> make(int rank, std::chrono::milliseconds timeout = std::chrono::seconds(60),
                                 const std::vector<int>& global_ranks = {});
  /// What the neighbors of all ranks say from now on.
  void set_lost(int rank, bool is_lost = true);
  void set_aborted(int rank);
  /// Number of failures that this rank's exchange reported. Of this process.
  int num_reports(int rank) const;

  /// Calls fn(exchange, rank) on a thread per rank; a rank that returns destroys its exchange, and counts as lost.
  void run(const std::function<void(Exchange&, int)>& fn, std::chrono::milliseconds timeout = std::chrono::seconds(60));
  /// The same in a forked process. It exits with 1 if an expectation failed.
  pid_t fork_rank(int rank, const std::function<void(Exchange&)>& fn);
  /// Kills the process, and tells the others once it has ended.
  void kill_rank(int rank, pid_t pid);
  void expect_success(pid_t pid);

 private:
  struct Shared;
  class Notes;
  int world_size_;
  size_t num_bytes_;
  std::byte* memory_;
  std::vector<std::unique_ptr<Notes>> notes_;
  std::vector<SharedMemoryPtr> arenas_;
  std::vector<std::unique_ptr<Regions>> regions_;
};

/// Waits, and expects success.
void expect_done(Exchange& exchange, const TransferPtr& transfer);
/// Waits; the causes, then the hint, a line each; "success" for none.
std::string wait_text(Exchange& exchange, const TransferPtr& transfer);
/// Bytes that depend on the seed and their place.
std::vector<uint8_t> pattern(size_t num_bytes, uint32_t seed);
inline Elements bytes_of(const std::vector<uint8_t>& bytes) { return {DType::kUInt8, bytes.size()}; }

}  // namespace cohort::shm
