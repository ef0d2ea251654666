/// Objects among plain values (OrderedDicts and tensors), and the Python names that pickles of these and of plain values use.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

namespace cohort::comm {

/// Throws c10::ValueError.
c10::IValue read_plain_values(std::string_view data);

}  // namespace cohort::comm
