// Pickles from files and other ranks. Whatever they hold, nothing is executed: a value that is not nested too deep and can be
// written again, or an error.
#include <unordered_set>

#include "cohort/base/pickle/pickle_reader.h"
#include "cohort/base/pickle/pickle_writer.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::base {
namespace {

using Seen = std::unordered_set<const void*>;

// Each node once: values that share others have exponentially many paths.
void check_value(const PickleValue& value, int depth, Seen* seen) {
  FUZZ_CHECK(depth <= kMaxPickleDepth + 1);
  if (value.identity() && !seen->insert(value.identity()).second) return;
  for (const PickleValue& item : value.items()) check_value(item, depth + 1, seen);
  for (const PickleValue& item : value.arguments()) check_value(item, depth + 1, seen);
  for (const PickleEntry& entry : value.entries()) {
    check_value(entry.key, depth + 1, seen);
    check_value(entry.value, depth + 1, seen);
  }
  if (value.is(PickleKind::kObject)) check_value(value.object_state(), depth + 1, seen);
  if (value.is(PickleKind::kPersistent)) check_value(value.id(), depth + 1, seen);
}

void check_pickle(std::string_view data, const PickleReaderOptions& options, const PickleReaderOptions& all_allowed) {
  const auto read = read_pickle(data, options);
  if (!read) return;
  FUZZ_CHECK(read->end <= data.size());
  Seen seen;
  check_value(read->value, 0, &seen);
  for (const int protocol : {2, 4}) {
    const auto written = write_pickle(read->value, protocol);
    FUZZ_CHECK(written.ok());
    FUZZ_CHECK(read_pickle(*written, all_allowed).ok());
  }
}

}  // namespace
}  // namespace cohort::base

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const base::PickleReaderOptions none_allowed{
      .refuse_name = [](const base::PythonName& name) { return name.text() + "!"; }};
  const base::PickleReaderOptions all_allowed{.refuse_name = [](const base::PythonName&) { return ""; },
                                              .persistent_ids = true,
                                              .new_objects = true,
                                              .names_as_values = true,
                                              .any_keys = true,
                                              .python2_strings = true,
                                              .borrow = true};
  base::check_pickle(fuzz::text_of(data, size), none_allowed, all_allowed);
  base::check_pickle(fuzz::text_of(data, size), all_allowed, all_allowed);
  return 0;
}
