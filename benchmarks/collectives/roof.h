/// The roof probe: moves the bytes that collective_traffic.h counts, without any waiting, by memcpy or by vector loops. An
/// operation cannot be faster than this on the same buffers.
#pragma once

#include "benchmarks/collectives/collective_traffic.h"
#include "benchmarks/collectives/collective_worker.h"

namespace cohort::bench {

/// A way to move the bytes.
struct RoofStyle {
  TrafficPlan plan = TrafficPlan::kWhole;
  /// Plain copies by memcpy instead of the vector loop; sums are always the vector loop's.
  bool uses_memcpy = false;
  /// Of staging in all. In shared memory nothing is staged, and streams are walked in one go.
  size_t stage_bytes = size_t{256} << 10;
};

/// The styles worth trying for a case, and all there are: "roof-whole-loop-256KiB" and the like.
std::vector<std::string> roof_styles(const CollectiveCase& what);
std::vector<std::string> all_roof_styles();
/// Throws std::runtime_error for a name that is none.
RoofStyle parse_roof_style(const std::string& name);

/// An engine whose calls only move bytes. Tensors lose their values.
class Roof : public Engine {
 public:
  Roof(int rank, const RoofStyle& style) : rank_(rank), style_(style) {}
  Call prepare(const CollectiveCase& what, const Buffers& buffers) override;
  bool meets() const override { return false; }

 private:
  int rank_;
  RoofStyle style_;
};

}  // namespace cohort::bench
