/// What differs between LibTorch 2.11, 2.12 and 2.13, in one place.
#pragma once

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::comm {

/// Arguments of c10d::Reducer that we set; the constructor's other parameters keep their defaults (2.12 added one at the
/// end, which has one in the header too).
struct C10dReducerArguments {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<size_t>> buckets;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::vector<bool> expect_sparse_gradient;
  int64_t bucket_bytes_cap;
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  std::unordered_map<size_t, std::string> parameter_names;
  int64_t first_bucket_bytes_cap;
};

inline std::shared_ptr<c10d::Reducer> make_c10d_reducer(C10dReducerArguments a) {
  return std::make_shared<c10d::Reducer>(std::move(a.parameters), std::move(a.buckets), std::move(a.group),
                                         std::move(a.expect_sparse_gradient), a.bucket_bytes_cap,
                                         a.find_unused_parameters, a.gradient_as_bucket_view,
                                         std::move(a.parameter_names), a.first_bucket_bytes_cap,
                                         /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                                         /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
}

}  // namespace cohort::comm
