/// Collectives on plain values instead of tensors, with the names and wire format of PyTorch (torch/distributed/
/// distributed_c10d.py), so that C++ and Python ranks exchange them in one group.
///
/// Objects are c10::IValue (None, bool, int, double, complex, string, bytes_value, list, tuple, dict, CPU copies of
/// tensors), which Python ranks see as their own types, or std::string, which they see as bytes. Received objects are never
/// executed. All calls block; a rank outside of the group warns and returns.
///
/// Throws: c10::ValueError for wrong arguments, for objects that cannot be pickled, and, naming the sender, for objects
/// that cannot be read here; c10::DistBackendError if the exchange fails. Thread-safety: as in collectives.h.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/export.h"

namespace cohort {

using ObjectList = std::vector<c10::IValue>;
using BytesList = std::vector<std::string>;

struct ObjectOptions {
  Group group = {};
  /// The device on which the pickles travel. If absent, the CPU if the group serves it, otherwise the group's first device.
  std::optional<c10::Device> device = {};
  /// Makes send_object_list and recv_object_list use batch_isend_irecv, as NCCL groups may need.
  bool use_batch = false;
};

/// Copies every rank's `object` to `object_list` (at least one entry per rank).
COHORT_API void all_gather_object(ObjectList& object_list, const c10::IValue& object,
                                  const ObjectOptions& options = {});
COHORT_API void all_gather_object(BytesList& object_list, const std::string& object, const ObjectOptions& options = {});

/// Copies every rank's `object` to `object_gather_list` (at least one entry per rank) of rank `dst`; elsewhere it is null.
COHORT_API void gather_object(const c10::IValue& object, ObjectList* object_gather_list, RankArgument dst = 0,
                              const ObjectOptions& options = {});
COHORT_API void gather_object(const std::string& object, BytesList* object_gather_list, RankArgument dst = 0,
                              const ObjectOptions& options = {});

/// Replaces every rank's `object_list` by rank `src`'s. All lists have one length.
COHORT_API void broadcast_object_list(ObjectList& object_list, RankArgument src = 0, const ObjectOptions& options = {});
COHORT_API void broadcast_object_list(BytesList& object_list, RankArgument src = 0, const ObjectOptions& options = {});

/// Copies to the first entry of `output_list` (at least one) this rank's entry of rank `src`'s `input_list` (one per rank).
/// Other ranks' `input_list` is ignored.
COHORT_API void scatter_object_list(ObjectList& output_list, const ObjectList* input_list, RankArgument src = 0,
                                    const ObjectOptions& options = {});
COHORT_API void scatter_object_list(BytesList& output_list, const BytesList* input_list, RankArgument src = 0,
                                    const ObjectOptions& options = {});

COHORT_API void send_object_list(const ObjectList& object_list, RankArgument dst, const ObjectOptions& options = {});
COHORT_API void send_object_list(const BytesList& object_list, RankArgument dst, const ObjectOptions& options = {});

/// Fills `object_list`, which must have the sender's length. If `src` is absent, receives from any rank.
/// Returns: the sender's rank in the default group; -1 outside of the group.
COHORT_API int recv_object_list(ObjectList& object_list, std::optional<RankArgument> src = std::nullopt,
                                const ObjectOptions& options = {});
COHORT_API int recv_object_list(BytesList& object_list, std::optional<RankArgument> src = std::nullopt,
                                const ObjectOptions& options = {});

}  // namespace cohort
