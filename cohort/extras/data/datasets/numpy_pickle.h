/// Pickles that hold NumPy's arrays, read without running anything of what they say.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

namespace cohort::data::detail {

/// A pickle of protocol 0 to 5, of Python 2 or 3 and of any NumPy from 2009 on: dicts, lists, numbers, texts, and arrays of
/// uint8, which become uint8 tensors (contiguous, of their own memory). Python 2's strings become str where they are UTF-8, and
/// bytes elsewhere. Throws c10::ValueError for anything else; above all for every other name than those that such arrays are
/// made with.
c10::IValue unpickle_numpy(std::string_view data);

}  // namespace cohort::data::detail
