/// Overlap: tensors of one call that lie over each other in memory.
///
/// Engines move one tensor after the other, and in pieces. Where what one of them writes is also to be read, or is written
/// twice, outputs get stand-ins (stand_ins.h) that are copied back in the order of the list when everything has been read: so
/// every input counts as it was before the call, and of outputs that overlap the last one wins, as in ProcessGroupGloo.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/export.h"

namespace cohort::comm {

/// True if an output shares bytes with another output or with an input. Goes by the first and the last byte of each tensor, so
/// it is also true of columns of one matrix that lie between each other: then a copy more is made than is needed.
COHORT_TEST_API bool overlap(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs = {});

/// True if the tensors have an element in common; exact. Takes as many bytes as the longer one's extent.
COHORT_TEST_API bool share_elements(const at::Tensor& first, const at::Tensor& second);

/// True if `part` is the `index`-th of the equal parts of `whole`, both plain: such an input of a gather is in its place already.
bool is_in_place(const at::Tensor& part, const at::Tensor& whole, int index = 0);

/// Throws c10::ValueError if one of the tensors repeats an element, as expand() makes them: it cannot be written to.
void check_can_be_written(const char* name, const std::vector<at::Tensor>& outputs);

}  // namespace cohort::comm
