/// PartnerCopy: the copy of this rank's own bytes in the vault of the next node, for a job that loses this one.
///
/// Thread-safety: send() in one thread; the others from any.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "cohort/vault/generation_file.h"
#include "cohort/vault/place.h"
#include "cohort/vault/vault_client.h"

namespace cohort::vault {

class PartnerCopy {
 public:
  /// `place` must outlive this.
  explicit PartnerCopy(const Place& place) : place_(place) {}

  int node() const { return (place_.node + 1) % place_.num_nodes; }
  /// Sends what is written to `file`, of slot `slot`. `where`: see RemoteVault::connect. Blocks as a RemoteVault. What fails is a
  /// problem and no error: training goes on without a copy.
  void send(VaultClient& own, const std::string& where, GenerationFile& file, const Generation& generation, int slot);
  /// Ends send(), as this rank ends.
  void interrupt();
  /// Said once: why there is no copy; "" if there is one.
  std::string take_problem();

 private:
  base::Result<void> send_to(RemoteVault& partner, GenerationFile& file, const Generation& generation, int slot);

  const Place& place_;
  std::optional<RemoteVault> partner_;
  uint64_t sizes_[2] = {0, 0};

  std::mutex mutex_;  ///< of what stands below
  int socket_ = -1;
  bool is_interrupted_ = false;
  std::string problem_;
};

}  // namespace cohort::vault
