#include "cohort/dtensor/wrapper/comm_log.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iostream>

#include "cohort/base/system/env.h"

namespace cohort {
namespace {

thread_local dtensor::CommCounts counts;
thread_local const dtensor::AtWork* at_work = nullptr;

bool is_logged() {
  static const bool logged = base::get_env("COHORT_DTENSOR_LOG") == "1";
  return logged;
}

const char* name_of(int64_t dtensor::CommCounts::*kind) {
  if (kind == &dtensor::CommCounts::all_reduce) return "all_reduce";
  if (kind == &dtensor::CommCounts::all_gather) return "all_gather";
  return kind == &dtensor::CommCounts::reduce_scatter ? "reduce_scatter" : "all_to_all";
}

}  // namespace

}  // namespace cohort

namespace cohort::dtensor {

CommCounts comm_counts() { return counts; }

}  // namespace cohort::dtensor

namespace cohort {

namespace dtensor {

AtWork::AtWork(const void* operation, NameOf name) : operation_(operation), name_(name), outer_(at_work) {
  at_work = this;
}

AtWork::~AtWork() { at_work = outer_; }

std::string AtWork::name() { return at_work ? at_work->name_(at_work->operation_) : std::string("redistribute"); }

void note_collective(int64_t CommCounts::*kind, const DeviceMesh& mesh, int64_t axis, const Placement& from,
                     const Placement& to, int64_t num_bytes) {
  ++(counts.*kind);
  if (!is_logged()) return;
  const auto& place = *mesh.coordinate();
  if (std::any_of(place.begin(), place.end(), [](int64_t index) { return index != 0; })) return;
  const auto& names = mesh.axis_names();
  const auto axis_name = names.empty() ? std::to_string(axis) : c10::str('"', names[axis], '"');
  std::cerr << c10::str("[cohort] dtensor: ", AtWork::name(), ": ", name_of(kind), " over axis ", axis_name, " of ",
                        mesh.size(axis), " ranks: ", from, " -> ", to, ", ", num_bytes, " bytes\n");
}

}  // namespace dtensor
}  // namespace cohort
