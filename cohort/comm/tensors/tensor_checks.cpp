#include "cohort/comm/tensors/tensor_checks.h"

#include <c10/util/Exception.h>

#include <numeric>

#include "cohort/comm/tensors/operation_text.h"

namespace cohort::comm {

void check_tensors(const char* name, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), "[cohort] ", name, " needs at least one tensor");
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.defined(), "[cohort] ", name, " was given an undefined tensor");
    TORCH_CHECK_VALUE(tensor.scalar_type() == tensors[0].scalar_type(), "[cohort] ", name,
                      " needs tensors of one dtype, got ", dtype_name(tensors[0].scalar_type()), " and ",
                      dtype_name(tensor.scalar_type()));
  }
}

void check_pairs(const char* name, const std::vector<at::Tensor>& wholes, const std::vector<at::Tensor>& parts,
                 int factor, const char* whole) {
  TORCH_CHECK_VALUE(wholes.size() == parts.size(), "[cohort] ", name, " needs as many outputs as inputs, got ",
                    wholes.size(), " and ", parts.size());
  TORCH_CHECK_VALUE(!parts.empty(), "[cohort] ", name, " needs at least one tensor");
  for (size_t i = 0; i < parts.size(); ++i) {
    check_tensors(name, {parts[i], wholes[i]});
    TORCH_CHECK_VALUE(wholes[i].numel() == parts[i].numel() * factor, "[cohort] ", name, " needs an ", whole, " of ",
                      parts[i].numel() * factor, " elements, got ", wholes[i].numel());
  }
}

Sizes check_list(const char* name, const std::vector<std::vector<at::Tensor>>& lists, const at::Tensor& like, int own,
                 int world_size) {
  TORCH_CHECK_VALUE(lists.size() == 1, "[cohort] ", name, " needs one list of tensors, got ", lists.size());
  const auto& list = lists[0];
  TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(world_size), "[cohort] ", name, " needs one tensor per rank, ",
                    world_size, ", got ", list.size());
  auto sizes = Sizes::kEven;
  for (const auto& tensor : list) {
    check_tensors(name, {like, tensor});
    if (tensor.numel() != like.numel()) sizes = Sizes::kUneven;
  }
  const auto& mine = list[static_cast<size_t>(own)];
  TORCH_CHECK_VALUE(mine.numel() == like.numel(), "[cohort] ", name, " needs a tensor of ", like.numel(),
                    " elements at place ", own, " of the list, this rank's, got ", mine.numel());
  return sizes;
}

void check_splits(const at::Tensor& tensor, const std::vector<int64_t>& splits, int world_size, const char* side) {
  TORCH_CHECK_VALUE(tensor.dim() > 0, "[cohort] all_to_all_single: the ", side, " tensor needs at least one dimension");
  const auto rows = tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % world_size == 0, "[cohort] all_to_all_single: the ", side, " tensor's dim 0 is ", rows,
                      ", which does not divide equally among ", world_size, " ranks; give ", side, "_split_sizes");
    return;
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(world_size), "[cohort] all_to_all_single: ", side,
                    "_split_sizes needs one number per rank, ", world_size, ", got ", splits.size());
  for (const auto split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "[cohort] all_to_all_single: ", side, "_split_sizes must not be negative, got ",
                      split);
  }
  const auto sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK_VALUE(sum == rows, "[cohort] all_to_all_single: ", side, "_split_sizes add up to ", sum, ", but the ",
                    side, " tensor's dim 0 is ", rows);
}

void check_peer(const char* name, int peer, int rank, int world_size) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < world_size, "[cohort] ", name, ": rank ", peer,
                    " is out of range. Valid ranks are 0 to ", world_size - 1, " (world_size=", world_size, ")");
  TORCH_CHECK_VALUE(peer != rank, "[cohort] ", name, ": a rank cannot ", name, name[0] == 's' ? " to" : " from",
                    " itself");
}

void check_root(const char* name, int64_t root, int world_size) {
  TORCH_CHECK_VALUE(root >= 0 && root < world_size, "[cohort] ", name, ": root ", root,
                    " is out of range. Valid ranks are 0 to ", world_size - 1);
}

std::string shapes_text(at::TensorList tensors) {
  std::string text;
  for (const auto& tensor : tensors) text += (text.empty() ? "" : ", ") + shape_text(tensor.sizes());
  return text;
}

}  // namespace cohort::comm
