// pickle_echo IN OUT: reads pickles (each with its length before it as 8 bytes) and writes what Cohort makes of each: the
// value pickled again, or the error as a str.
#include <c10/util/Exception.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cohort/comm/pickle/pickle.h"

namespace {

std::string echo(std::string_view data) {
  try {
    return cohort::comm::pickle(cohort::comm::unpickle(data));
  } catch (const c10::Error& error) {
    return cohort::comm::pickle(std::string("error: ") + error.what_without_backtrace());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: pickle_echo IN OUT\n";
    return 2;
  }
  std::ifstream in(argv[1], std::ios::binary);
  std::ofstream out(argv[2], std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (size_t at = 0; at + 8 <= all.size();) {
    uint64_t length = 0;
    std::memcpy(&length, all.data() + at, 8);
    const auto answer = echo(std::string_view(all).substr(at + 8, length));
    const uint64_t answer_length = answer.size();
    out.write(reinterpret_cast<const char*>(&answer_length), 8);
    out << answer;
    at += 8 + length;
  }
  return out.flush() ? 0 : 1;
}
