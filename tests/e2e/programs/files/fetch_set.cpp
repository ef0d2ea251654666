// fetch_set URL DIGEST FORM TARGET ROOT [MAX_BYTES [STALL_SECONDS]]: fetches a set of one file, which is in no catalog. FORM
// is plain, gz or tar.gz. Prints the number of files that were downloaded; after an error its text is on stderr, the exit code 1.
#include <cstdlib>
#include <iostream>
#include <string>

#include "cohort/extras/files/sets/fetch.h"

int main(int argc, char** argv) {
  using namespace cohort::files;
  if (argc < 6) return 2;
  const std::string form = argv[3];
  SetFile file{.url = argv[1], .digest = {argv[2]}, .target = argv[4]};
  file.form = form == "plain" ? SetFile::Form::kPlain : form == "gz" ? SetFile::Form::kGzip : SetFile::Form::kTarGzip;
  file.max_bytes = argc > 6 ? std::strtoull(argv[6], nullptr, 10) : 1 << 20;
  file.max_unpacked_bytes = 1 << 20;
  FetchOptions options{.mirror = "", .on_progress = {}};
  if (argc > 7) options.stall_timeout = std::chrono::seconds(std::atoi(argv[7]));
  const auto fetched =
      fetch({.name = "testset", .summary = "", .synthetic_dataset = "mnist", .files = {file}}, argv[5], options);
  if (!fetched) {
    std::cerr << fetched.error().describe() << '\n';
    return 1;
  }
  std::cout << *fetched << '\n';
  return 0;
}
