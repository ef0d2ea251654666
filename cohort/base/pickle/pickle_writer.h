/// write_pickle: writes values (pickle_value.h) in Python's pickle format, without frames. No other code writes pickles.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/base/pickle/pickle_value.h"

namespace cohort::base {

/// Writes `value` in protocol 2, which every Python 3 and 2.3 reads, or 4, which Python has written since 3.8. Protocol 2
/// requires texts of at most 4 GiB and bytes of at most 2 GiB. Lists, dicts, objects and persistent ids that occur more than once
/// (by identity) stay one object in Python. Returns an error for values nested deeper than kMaxPickleDepth.
Result<std::string> write_pickle(const PickleValue& value, int protocol);

}  // namespace cohort::base
