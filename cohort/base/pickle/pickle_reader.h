/// read_pickle: the only reader of Python's pickles, protocols 0 to 5. It runs no code that a pickle names.
///
///     Result<PickleRead> read = read_pickle(bytes, {.refuse_name = [](const PythonName& name) { ... }});
///
/// A pickle may name only what the caller allows. Sizes are checked against the number of bytes left before memory is allocated,
/// and the memory that values need is proportional to the pickle. Values that contain themselves, sets, ints of more than 64
/// bits, keyword arguments and out-of-band buffers are errors.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/pickle/pickle_value.h"

namespace cohort::base {

struct PickleReaderOptions {
  /// Called for each name before anything is done with it. Returns the complete text of the error, or "" to allow the name.
  /// Required. Allowed names with which Python writes plain values (builtins.complex, bytes, bytearray, _codecs.encode) become
  /// those values; calls of others become objects.
  std::function<std::string(const PythonName&)> refuse_name;
  /// Whether persistent ids of every kind may occur.
  bool persistent_ids = false;
  /// Whether objects that are made with cls.__new__ may occur.
  bool new_objects = false;
  /// Whether names and persistent ids may occur as values, not only as arguments of calls.
  bool names_as_values = false;
  /// Whether tuples, None, bytes, objects and names may be keys of dicts. Two equal keys of these kinds count as different.
  bool any_keys = false;
  /// Whether strings of Python 2 are read: as str if they are UTF-8, otherwise as bytes. The bytes are the same either way.
  bool python2_strings = false;
  /// Whether texts and bytes refer to the pickle's memory, which must then outlive the value.
  bool borrow = false;
};

struct PickleRead {
  PickleValue value;
  /// The position behind the pickle, where another may begin.
  size_t end = 0;
};

/// Reads one pickle and ignores bytes after its end. Errors: `cannot unpickle: a line has no end (byte 0 of 4)`.
Result<PickleRead> read_pickle(std::string_view data, const PickleReaderOptions& options);

}  // namespace cohort::base
