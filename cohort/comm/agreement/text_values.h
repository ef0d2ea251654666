/// Texts and failures as they travel between ranks: as bytes, since the texts of exceptions need not be UTF-8.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "cohort/comm/agreement/rank_error.h"

namespace cohort::comm {

c10::IValue value_of(const std::vector<std::string>& texts);
c10::IValue value_of(const RankFailures& failures);
/// Throw c10::ValueError for other values.
std::vector<std::string> texts_of(const c10::IValue& value);
RankFailures failures_of(const c10::IValue& value);

}  // namespace cohort::comm
