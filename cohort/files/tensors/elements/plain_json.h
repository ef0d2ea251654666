/// Python's plain values as JSON, exactly: null, true, 3, 0.5, "text" and lists stay as they are. A value that JSON does not have
/// is an object with one key: {"tuple": [...]}, {"dict": [[key, value], ...]}, {"bytes": "00ff"}, {"complex": [real, imaginary]},
/// {"float": "nan"} (or "inf", "-inf").
#pragma once

#include "cohort/base/error/result.h"
#include "cohort/base/pickle/pickle_value.h"
#include "cohort/files/tensors/elements/json_fwd.h"

namespace cohort::files {

/// Fails for names, objects and persistent ids.
base::Result<Json> plain_json(const base::PickleValue& value);
/// Fails for JSON of another form, and for nesting deeper than base::kMaxPickleDepth.
base::Result<base::PickleValue> plain_value(const Json& json);

}  // namespace cohort::files
