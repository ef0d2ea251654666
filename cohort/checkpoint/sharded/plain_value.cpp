#include "cohort/checkpoint/sharded/plain_value.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include "cohort/base/pickle/pickle_reader.h"
#include "cohort/base/pickle/pickle_writer.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/files/tensors/elements/plain_json.h"

namespace cohort::checkpoint::detail {

// Converts through a pickle, which both sides know: values are few and small.
files::Json to_json(const std::string& key, const c10::IValue& value) {
  const std::string pickled = comm::pickle(value);
  const auto read = base::read_pickle(pickled, {.refuse_name = [](const base::PythonName& name) -> std::string {
                                        return name.module.starts_with("torch") ? "a tensor" : "";
                                      }});
  const std::string what = "the value \"" + key + "\" cannot be stored";
  if (!read) {
    comm::throw_error<c10::ValueError>(
        base::Error(read.error()).with_hint("give tensors keys of their own, not a place in a list or dict"), what);
  }
  return comm::or_throw_value(files::plain_json(read->value), what);
}

c10::IValue to_ivalue(const std::string& key, const files::Json& json) {
  const std::string what = "the value \"" + key + "\" cannot be read";
  const auto value = comm::or_throw_value(files::plain_value(json), what);
  return comm::unpickle(comm::or_throw_value(base::write_pickle(value, 4), what));
}

}  // namespace cohort::checkpoint::detail
