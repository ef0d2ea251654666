/// GlooEngine: LibTorch's own ProcessGroupGloo, called directly, as the rival of `collectives`. It does not use our backend
/// "gloo", which watches operations and adds dtypes: a rival must not pay for that.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <string>

#include "benchmarks/collectives/collective_worker.h"

namespace cohort::bench {

class GlooEngine : public Engine {
 public:
  /// Connects all ranks, which meet through the file `store_path`, on the devices that PyTorch's Python would choose.
  GlooEngine(const std::string& store_path, int rank, int num_ranks);

  Call prepare(const CollectiveCase& what, const Buffers& buffers) override;
  /// Returns the name of the class, "c10d::ProcessGroupGloo".
  std::string describe() const override;

 private:
  Call ping_pong(const at::Tensor& input, const at::Tensor& output) const;

  int rank_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

}  // namespace cohort::bench
