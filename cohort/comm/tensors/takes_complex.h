/// TakesComplex: marks a backend that moves complex tensors, and reads and writes lazily conjugated and negated views.
/// Other backends get pairs of reals.
#pragma once

namespace cohort::comm {

class TakesComplex {
 public:
  virtual ~TakesComplex() = default;
};

}  // namespace cohort::comm
