// A fuzz target with a fault of each kind, for driver_test.cpp.
#include <unistd.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/fuzz/fuzz.h"

namespace {

volatile int sink = 0;

void do_harm(std::string_view word, const uint8_t* data, size_t size) {
  if (word == "overrun") sink = data[size + sink];
  if (word == "throw") throw std::runtime_error("thrown by the target");
  if (word == "check") FUZZ_CHECK(word.empty());
  while (word == "endless") sink = 1;
  if (word == "memory") sink = static_cast<int>(std::string(size_t{200} << 20, 'x').size());
  if (word == "exit") _exit(7);
  if (word == "leak") sink = *new int(1);
  if (word == "overflow") sink = INT32_MAX + static_cast<int>(size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  do_harm(cohort::fuzz::text_of(data, size), data, size);
  return 0;
}
