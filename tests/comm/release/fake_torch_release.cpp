// Preloaded in a test: says that another release of LibTorch is in the process.
#include <cstdint>

extern "C" __attribute__((visibility("default"))) uint64_t aoti_torch_abi_version() {
  return uint64_t{2} << 56 | uint64_t{9} << 48 | uint64_t{1} << 40;
}
