/// The roof probe: moves the bytes of collective_traffic.h without any waiting, with memcpy or with vector loops. No operation
/// can be faster on the same buffers.
#pragma once

#include "benchmarks/collectives/collective_traffic.h"
#include "benchmarks/collectives/collective_worker.h"

namespace cohort::bench {

/// A way to move the bytes.
struct RoofStyle {
  TrafficPlan plan = TrafficPlan::kWhole;
  /// Copies with memcpy instead of the vector loop; sums always use the vector loop.
  bool uses_memcpy = false;
  /// Total staging bytes. In shared memory nothing is staged, and streams are processed in one go.
  size_t stage_bytes = size_t{256} << 10;
};

/// Returns the styles worth trying for a case, and all styles: "roof-whole-loop-256KiB" and the like.
std::vector<std::string> roof_styles(const CollectiveCase& what);
std::vector<std::string> all_roof_styles();
/// Throws std::runtime_error for an unknown name.
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
