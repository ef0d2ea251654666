/// Texts and failures as values to send: as bytes, because texts of exceptions need not be UTF-8.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "cohort/comm/agreement/rank_error.h"

namespace cohort::comm {

c10::IValue value_of(const std::vector<std::string>& texts);
c10::IValue value_of(const RankFailures& failures);
/// Throw c10::ValueError for values of another form.
std::vector<std::string> texts_of(const c10::IValue& value);
RankFailures failures_of(const c10::IValue& value);

}  // namespace cohort::comm
