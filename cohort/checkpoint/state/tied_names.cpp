#include "cohort/checkpoint/state/tied_names.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/comm/notes/tensor_notes.h"

namespace cohort::checkpoint {
namespace {

comm::TensorNotes<std::vector<std::string>>& tied_names() {
  static auto& all = *new comm::TensorNotes<std::vector<std::string>>;
  return all;
}

}  // namespace

void tie_names(const at::Tensor& parameter, std::vector<std::string> names) {
  TORCH_CHECK_VALUE(parameter.defined(), "[cohort] tie_names: the parameter is undefined");
  TORCH_CHECK_VALUE(names.size() > 1, "[cohort] tie_names: a tied parameter has two names or more, but got ",
                    names.size(),
                    "\n  hint: give all names that the whole model has for it, this stage's own among them");
  tied_names().set(parameter, std::move(names));
}

namespace detail {

std::vector<std::string> other_names(const at::Tensor& parameter, const std::string& name) {
  std::vector<std::string> names = tied_names().of(parameter);
  size_t own_length = 0;
  for (const std::string& each : names) {
    const bool is_own = name == each || name.ends_with("." + each);
    if (is_own) own_length = std::max(own_length, each.size());
  }
  if (own_length == 0) return {};
  const std::string prefix = name.substr(0, name.size() - own_length);
  for (std::string& each : names) each = prefix + each;
  std::erase(names, name);
  return names;
}

}  // namespace detail

}  // namespace cohort::checkpoint
