/// Checks of what backends are given. All throw c10::ValueError with a text that begins with `name`, the operation's.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace cohort::comm {

/// There are tensors, all defined and of one dtype.
void check_tensors(const char* name, const std::vector<at::Tensor>& tensors);
/// Each whole has its part's dtype and `factor` times its elements. `whole`: what texts call one, "output" or "input".
void check_pairs(const char* name, const std::vector<at::Tensor>& wholes, const std::vector<at::Tensor>& parts,
                 int factor, const char* whole = "output");
enum class Sizes { kEven, kUneven };
/// One list of one tensor per rank, of the dtype of `like`; rank `own`'s has the elements of `like`. kUneven: some of the others
/// have not.
Sizes check_list(const char* name, const std::vector<std::vector<at::Tensor>>& lists, const at::Tensor& like, int own,
                 int world_size);
/// Of all_to_all_single. Splits are rows per rank; empty: equal parts.
void check_splits(const at::Tensor& tensor, const std::vector<int64_t>& splits, int world_size, const char* side);
/// `peer` is another rank of the group; `name` is "send" or "recv".
void check_peer(const char* name, int peer, int rank, int world_size);
/// `root` is a rank of the group. The engines check it, too, but where an operation runs in the background only its wait tells.
void check_root(const char* name, int64_t root, int world_size);

/// "[2, 3], [4]".
std::string shapes_text(at::TensorList tensors);

}  // namespace cohort::comm
