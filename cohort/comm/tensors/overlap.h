/// Overlap: tensors of one call that share memory.
///
/// Engines move one tensor after the other, and in pieces. If a call writes memory that it also reads or writes elsewhere, its
/// outputs get contiguous copies (contiguous_copies.h), which are copied back in the order of the list when everything has been
/// read. So every input is read as it was before the call, and the last of overlapping outputs wins, as in ProcessGroupGloo.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/export.h"

namespace cohort::comm {

/// Whether an output shares bytes with another output or with an input. Compares the first and the last byte of each tensor, so
/// it is also true for interleaved columns of one matrix: the call then makes a copy that it does not need.
COHORT_TEST_API bool overlap(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs = {});

/// Whether the tensors have an element in common; exact. Takes as many bytes as the longer tensor's extent.
COHORT_TEST_API bool share_elements(const at::Tensor& first, const at::Tensor& second);

/// Whether `part` is the `index`-th of the equal parts of `whole`, both plain: such an input of a gather is in its place already.
bool is_in_place(const at::Tensor& part, const at::Tensor& whole, int index = 0);

/// Throws c10::ValueError if one of the tensors repeats an element, as after expand(): it cannot be written to.
void check_can_be_written(const char* name, const std::vector<at::Tensor>& outputs);

}  // namespace cohort::comm
