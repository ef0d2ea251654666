// A worker of `recovery` that does nothing: in the first attempt rank 1 crashes after a moment, in the second both end at once.
#include "benchmarks/launcher/crash_times.h"

int main(int, char** argv) {
  using namespace cohort::bench;
  if (!is_first_attempt()) {
    write_time(argv[1], "done");
    return 0;
  }
  ::usleep(300'000);
  if (!is_rank("1")) ::pause();
  write_time(argv[1], "crash");
  ::_exit(1);
}
