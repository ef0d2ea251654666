/// Reads pickles of NumPy's arrays without running their code.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

namespace cohort::data::detail {

/// Reads a pickle of protocol 0 to 5, of Python 2 or 3 and of any NumPy from 2009 on: dicts, lists, numbers, texts, and arrays of
/// uint8, which become uint8 tensors (contiguous, with their own memory). Python 2's strings become str if they are UTF-8, else
/// bytes. Throws c10::ValueError for anything else, above all for all names except those that make such arrays.
c10::IValue unpickle_numpy(std::string_view data);

}  // namespace cohort::data::detail
