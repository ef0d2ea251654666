#include "cohort/checkpoint/sharded/plain_value.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include "cohort/base/pickle_reader.h"
#include "cohort/base/pickle_writer.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/files/tensors/plain_json.h"

namespace cohort::checkpoint::detail {

// By way of the pickle, which both sides know: values are few and small.
files::Json to_json(const std::string& key, const c10::IValue& value) {
  const std::string pickled = comm::pickle(value);
  const auto read = base::read_pickle(pickled, {.refuse_name = [](const base::PythonName& name) -> std::string {
                                        return name.module.starts_with("torch") ? "a tensor" : "";
                                      }});
  TORCH_CHECK_VALUE(read.ok(), "the value \"", key, "\" cannot be stored: ", read.error().describe(),
                    "\n  hint: tensors need keys of their own, ", "not a place in a list or dict");
  auto json = files::plain_json(read->value);
  TORCH_CHECK_VALUE(json.ok(), "the value \"", key, "\" cannot be stored: ", json.error().describe());
  return std::move(*json);
}

c10::IValue to_ivalue(const std::string& key, const files::Json& json) {
  const auto value = files::plain_value(json);
  TORCH_CHECK_VALUE(value.ok(), "the value \"", key, "\" cannot be read: ", value.error().describe());
  const auto pickled = base::write_pickle(*value, 4);
  TORCH_CHECK_VALUE(pickled.ok(), "the value \"", key, "\" cannot be read: ", pickled.error().describe());
  return comm::unpickle(*pickled);
}

}  // namespace cohort::checkpoint::detail
