/// LibTorch's Gloo engine with failures that explain themselves, and AVG, which Gloo lacks.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/tracked_work.h"
#include "cohort/export.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace cohort::comm {

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout;
  std::string group_name;
  std::vector<uint64_t> global_ranks;
  /// Turns Gloo's exceptions into ours; null: they pass unchanged.
  std::shared_ptr<const FailureExplainer> explainer;
};

/// Blocks until every rank of the group has connected, or throws c10::DistBackendError.
COHORT_API c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                               const GlooOptions& options);

}  // namespace cohort::comm
