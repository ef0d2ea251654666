/// Axis: maps numbers to places, and positions grid lines.
#pragma once

#include <string>
#include <vector>

namespace cohort::report {

struct Tick {
  double value = 0.0;
  std::string label;
};

class Axis {
 public:
  /// Spans the range from the smallest to the largest number, widened to whole steps of 1, 2 or 5 times a power of ten, at most
  /// `max_ticks` of them (at least 3); with `is_log`, to whole powers of ten. Both numbers are finite; with is_log both are
  /// positive. Numbers beyond 1e300 are at the axis's ends.
  Axis(double low, double high, int max_ticks, bool is_log = false);

  const std::vector<Tick>& ticks() const { return ticks_; }
  /// 0 at the axis's beginning, 1 at its end.
  double place(double value) const;

 private:
  void make_linear(double low, double high, int max_ticks);
  void make_log(double low, double high, int max_ticks);
  bool is_log_;
  double begin_ = 0.0, end_ = 1.0;
  std::vector<Tick> ticks_;
};

/// Returns "0", "0.25", "2000", "20k", "1.5M", "1e-05". `step`: the difference between labels.
std::string tick_label(double value, double step);

}  // namespace cohort::report
