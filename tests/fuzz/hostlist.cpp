// SLURM's lists of hosts and of numbers.
#include "cohort/rendezvous/environment/hostlist.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  constexpr size_t kMaxNames = 65'536;
  const auto text = fuzz::text_of(data, size);
  if (const auto hosts = rendezvous::expand_hostlist(text)) {
    FUZZ_CHECK(!hosts->empty() && hosts->size() <= kMaxNames);
    for (const auto& host : *hosts) FUZZ_CHECK(!host.empty() && host.find_first_of("[],") == std::string::npos);
  }
  if (const auto counts = rendezvous::expand_counts(text)) {
    FUZZ_CHECK(!counts->empty() && counts->size() <= kMaxNames);
    for (const int count : *counts) FUZZ_CHECK(count >= 0);
  }
  return 0;
}
