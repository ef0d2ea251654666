/// The differences between LibTorch 2.11, 2.12 and 2.13, in one place.
#pragma once

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::comm {

/// Arguments of c10d::Reducer that we set. 2.12 added batched_grad_copy.
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
  std::vector<int64_t> bucket_bytes_cap_list;
  bool skip_all_reduce_unused_params = false;
  bool batched_grad_copy = false;
};

/// A template, so that the constructor of another release need not exist.
template <class Reducer = c10d::Reducer>
std::shared_ptr<Reducer> make_c10d_reducer(C10dReducerArguments a) {
  const auto make = [&](auto... last) {
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets), std::move(a.group),
                                     std::move(a.expect_sparse_gradient), a.bucket_bytes_cap, a.find_unused_parameters,
                                     a.gradient_as_bucket_view, std::move(a.parameter_names), a.first_bucket_bytes_cap,
                                     a.skip_all_reduce_unused_params, /*use_python_reducer=*/false,
                                     std::move(a.bucket_bytes_cap_list), last...);
  };
  constexpr bool kCopiesInBatches =
      std::is_constructible_v<Reducer, std::vector<at::Tensor>, std::vector<std::vector<size_t>>,
                              c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>, int64_t, bool, bool,
                              std::unordered_map<size_t, std::string>, int64_t, bool, bool, std::vector<int64_t>, bool>;
  if constexpr (kCopiesInBatches) {
    return make(a.batched_grad_copy);
  } else {
    TORCH_CHECK_VALUE(!a.batched_grad_copy,
                      "[cohort] batched_grad_copy with ddp::Engine::kC10d needs LibTorch 2.12 or newer");
    return make();
  }
}

}  // namespace cohort::comm
