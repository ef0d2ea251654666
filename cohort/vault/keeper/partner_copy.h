/// PartnerCopy: the copy of this rank's own bytes on the next node's snapshot server, for a job that loses this node.
///
/// Thread-safety: one thread calls send(); any thread may call the others.
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
  /// `place` must outlive this object.
  explicit PartnerCopy(const Place& place) : place_(place) {}

  int node() const { return (place_.node + 1) % place_.num_nodes; }
  /// Sends the content of `file`, of slot `slot`. For `where` see RemoteVault::connect. Blocks as a RemoteVault does. A failure
  /// is a problem to report and not an error: training goes on without a copy.
  void send(VaultClient& own, const std::string& where, GenerationFile& file, const Generation& generation, int slot);
  /// Interrupts send(), because this rank ends.
  void interrupt();
  /// Returns, once, why there is no copy; "" if there is one.
  std::string take_problem();

 private:
  base::Result<void> send_to(RemoteVault& partner, GenerationFile& file, const Generation& generation, int slot);

  const Place& place_;
  std::optional<RemoteVault> partner_;
  uint64_t sizes_[2] = {0, 0};

  std::mutex mutex_;  ///< guards the members below
  int socket_ = -1;
  bool is_interrupted_ = false;
  std::string problem_;
};

}  // namespace cohort::vault
