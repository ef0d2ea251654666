/// Checks of a backend's arguments. All throw c10::ValueError with a text that begins with `name`, the operation's name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace cohort::comm {

/// Checks that there are tensors, all defined and of one dtype.
void check_tensors(const char* name, const std::vector<at::Tensor>& tensors);
/// Checks that each whole has its part's dtype and `factor` times its elements. `whole`: its name in texts, "output" or "input".
void check_pairs(const char* name, const std::vector<at::Tensor>& wholes, const std::vector<at::Tensor>& parts,
                 int factor, const char* whole = "output");
enum class Sizes { kEven, kUneven };
/// Checks one list of one tensor per rank, of the dtype of `like`; the tensor of rank `own` has as many elements as `like`.
/// Returns kUneven if a tensor of another rank has not.
Sizes check_list(const char* name, const std::vector<std::vector<at::Tensor>>& lists, const at::Tensor& like, int own,
                 int world_size);
/// Checks the arguments of all_to_all_single. Splits are rows per rank. If `splits` is empty, the tensor is split evenly.
void check_splits(const at::Tensor& tensor, const std::vector<int64_t>& splits, int world_size, const char* side);
/// Checks that `peer` is another rank of the group; `name` is "send" or "recv".
void check_peer(const char* name, int peer, int rank, int world_size);
/// Checks that `root` is a rank of the group. The engines check it, too, but of a background operation only wait() fails.
void check_root(const char* name, int64_t root, int world_size);

/// Returns "[2, 3], [4]".
std::string shapes_text(at::TensorList tensors);

}  // namespace cohort::comm
