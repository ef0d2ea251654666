/// read_pickle: the one reader of Python's pickles, protocols 0 to 5, that runs nothing of what they say.
///
///     Result<PickleRead> read = read_pickle(bytes, {.refuse_name = [](const PythonName& name) { ... }});
///
/// A name stands for what it says only if the caller lets it pass. Sizes are checked against what is there before memory is
/// taken, and what is read needs memory in proportion to the pickle. Values that contain themselves, sets, ints of more than 64
/// bits, keyword arguments and out-of-band buffers are errors.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/pickle/pickle_value.h"

namespace cohort::base {

struct PickleReaderOptions {
  /// Called when a name is met, before anything is done with it: the whole text of the error, or "" if it may stand there.
  /// Required. Of names that pass, those with which Python writes plain values (builtins.complex, bytes, bytearray,
  /// _codecs.encode) become those values; calls of others become objects.
  std::function<std::string(const PythonName&)> refuse_name;
  /// Persistent ids may occur, of every kind.
  bool persistent_ids = false;
  /// Objects that are made by cls.__new__ may occur.
  bool new_objects = false;
  /// Names and persistent ids may stand where values do, not only as arguments of calls.
  bool names_as_values = false;
  /// Tuples, None, bytes, objects and names may be keys of dicts. Two equal ones of these are not found to be equal.
  bool any_keys = false;
  /// Python 2's strings are read: as str where they are UTF-8, as bytes where they are not. The bytes are the same either way.
  bool python2_strings = false;
  /// Texts and bytes refer to the pickle, which must outlive the value.
  bool borrow = false;
};

struct PickleRead {
  PickleValue value;
  /// Where the next pickle would begin.
  size_t end = 0;
};

/// One pickle; bytes after its end are ignored. Errors: `cannot unpickle: a line has no end (byte 0 of 4)`.
Result<PickleRead> read_pickle(std::string_view data, const PickleReaderOptions& options);

}  // namespace cohort::base
