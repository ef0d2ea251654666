/// Reads CIFAR's pickled batches and lists of names.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::data::detail {

/// Returns (images, labels) of a batch: uint8 [n, 3072], int64 [n]. `path`: for errors. `key`: of the labels ("fine_labels").
/// Throws c10::Error unless the bytes are a dict with "data" and `key`, and labels are below num_classes.
std::pair<at::Tensor, at::Tensor> read_pickled_batch(const std::string& path, std::string_view bytes,
                                                     const std::string& key, int64_t num_classes);

/// Returns the `num_classes` names under `key` in a pickled dict.
std::vector<std::string> read_pickled_names(const std::string& path, std::string_view bytes, const std::string& key,
                                            int64_t num_classes);

}  // namespace cohort::data::detail
