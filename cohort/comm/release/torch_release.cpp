// Ends the process if the LibTorch that it has loaded is not of the release for which Cohort was compiled: LibTorch has no binary
// compatibility between releases (2.12 to 2.13; patch releases fit).
//
// [Note: before the first symbol is bound]
// A release that lacks a symbol makes the dynamic linker stop with "undefined symbol: _ZN4c10d16..." before any constructor
// runs. So the comparison sits in a small library of its own, on which libcohort.so depends, as the resolver of an
// indirect function: the dynamic linker calls it while it binds this library's symbols, and it binds dependencies first.
// Nothing else may be ready then, the C library included, hence the bare system calls.
#include <torch/headeronly/version.h>

#include <cstdint>

// Part of LibTorch's stable C interface since 2.9; returns the release in its upper bytes. Weak: null means an older release.
extern "C" __attribute__((weak)) uint64_t aoti_torch_abi_version();

namespace {

#if defined(__x86_64__)
constexpr long kWrite = 1, kExitGroup = 231;
long system_call(long number, long a, long b, long c) {
  long result;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
constexpr long kWrite = 64, kExitGroup = 94;
long system_call(long number, long a, long b, long c) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
#endif

void print(const char* text) {
  long length = 0;
  while (text[length] != '\0') ++length;
  system_call(kWrite, 2, reinterpret_cast<long>(text), length);
}

void print(int number) {
  char text[] = "...";
  text[0] = static_cast<char>('0' + number / 100 % 10);
  text[1] = static_cast<char>('0' + number / 10 % 10);
  text[2] = static_cast<char>('0' + number % 10);
  print(text + (number < 10 ? 2 : number < 100 ? 1 : 0));
}

void print_release(int major, int minor) {
  print("LibTorch ");
  print(major);
  print(".");
  print(minor);
}

void compare_releases() {
  const uint64_t packed = &aoti_torch_abi_version != nullptr ? aoti_torch_abi_version() : 0;
  const int major = static_cast<int>(packed >> 56 & 0xff);
  const int minor = static_cast<int>(packed >> 48 & 0xff);
  if (major == TORCH_VERSION_MAJOR && minor == TORCH_VERSION_MINOR) return;
  print("[cohort] libcohort.so was built against ");
  print_release(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
  print(", but this process has loaded ");
  if (packed != 0) {
    print_release(major, minor);
  } else {
    print("a LibTorch older than 2.9");
  }
  print(
      "\n  hint: take the other release out of LD_LIBRARY_PATH or the Python environment, or build Cohort again with "
      "-DCOHORT_TORCH_ROOT=<that LibTorch>\n");
  system_call(kExitGroup, 1, 0, 0);
}

void nothing() {}

}  // namespace

extern "C" {
__attribute__((used)) static void (*cohort_resolve_torch_release())() {
  compare_releases();
  return nothing;
}
void cohort_compare_torch_release() __attribute__((ifunc("cohort_resolve_torch_release")));
// Storing its address in data makes the dynamic linker call the resolver at once.
__attribute__((used, visibility("default"))) void (*cohort_torch_release_compared)() = cohort_compare_torch_release;
}
