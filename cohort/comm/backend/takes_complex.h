/// TakesComplex: the mark of a backend that moves complex tensors, and reads and writes lazily conjugated and negated views.
/// Any other is given pairs of reals.
#pragma once

namespace cohort::comm {

class TakesComplex {
 public:
  virtual ~TakesComplex() = default;
};

}  // namespace cohort::comm
