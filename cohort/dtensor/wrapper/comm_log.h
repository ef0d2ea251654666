/// Counts and logs communication (comm_counts.h), with the operation that caused it.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"

namespace cohort::dtensor {

/// Names the operation that runs in this thread, for the log, as long as the object lives.
class AtWork {
 public:
  using NameOf = std::string (*)(const void*);
  AtWork(const void* operation, NameOf name);
  ~AtWork();
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

  static std::string name();

 private:
  const void* operation_;
  NameOf name_;
  const AtWork* outer_;
};

/// Counts and logs one collective along `axis`. `kind`: a member of the counts.
void note_collective(int64_t CommCounts::*kind, const DeviceMesh& mesh, int64_t axis, const Placement& from,
                     const Placement& to, int64_t num_bytes);

}  // namespace cohort::dtensor
