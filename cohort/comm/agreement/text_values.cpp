#include "cohort/comm/agreement/text_values.h"

#include <c10/util/Exception.h>

#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/comm/pickle/pickle.h"

namespace cohort::comm {

c10::IValue value_of(const std::vector<std::string>& texts) {
  std::vector<c10::IValue> values;
  for (const auto& text : texts) values.push_back(bytes_value(text));
  return c10::ivalue::Tuple::create(std::move(values));
}

c10::IValue value_of(const RankFailures& failures) {
  std::vector<std::string> words;
  for (const auto& [rank, text] : failures) words.insert(words.end(), {std::to_string(rank), text});
  return value_of(words);
}

std::vector<std::string> texts_of(const c10::IValue& value) {
  TORCH_CHECK_VALUE(value.isTuple(), "expected a tuple of texts, got a value of type ", value.tagKind());
  std::vector<std::string> texts;
  for (const auto& element : value.toTupleRef().elements()) texts.push_back(bytes_of(element));
  return texts;
}

RankFailures failures_of(const c10::IValue& value) {
  RankFailures failures;
  const auto words = texts_of(value);
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const auto rank = base::parse_int(words[i]);
    TORCH_CHECK_VALUE(rank, "expected the number of a rank, got \"", words[i], "\"");
    failures.emplace(static_cast<int>(*rank), words[i + 1]);
  }
  return failures;
}

}  // namespace cohort::comm
