#include "cohort/shm/trace/call_sites.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

namespace cohort::shm {
namespace {

std::string demangle(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                          &std::free);
  return status == 0 ? plain.get() : name;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// The loader names the main program by its argv[0], which need not be its file's name.
std::string module_name(const Dl_info& info, const link_map* module) {
  if (module != nullptr && module->l_name[0] != '\0') return file_name(module->l_name);
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).filename();
  return error ? file_name(info.dli_fname) : program;
}

}  // namespace

std::string describe_call_site(const void* return_address) {
  const auto address = reinterpret_cast<uintptr_t>(return_address) - 1;
  Dl_info info{};
  link_map* module = nullptr;
  if (::dladdr1(reinterpret_cast<const void*>(address), &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) ==
      0) {
    return fmt::format("{:#x}", address);
  }
  const std::string place =
      fmt::format("{}+{:#x}", module_name(info, module), address - (module != nullptr ? module->l_addr : 0));
  return info.dli_sname == nullptr ? place : fmt::format("{} ({})", place, demangle(info.dli_sname));
}

CallSites::Entry& CallSites::find(const void* address) {
  // Call instructions are some bytes apart; a multiplicative hash spreads them.
  size_t place = (reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15ULL) >> 56;
  for (;; place = (place + 1) % kEntries) {
    const void* const found = entries_[place].address.load(std::memory_order_acquire);
    if (found == address || found == nullptr) return entries_[place];
  }
}

uint8_t CallSites::index_of(const void* address) {
  if (address == nullptr) return 0;
  const Entry& entry = find(address);
  // Acquire: the index was written before the address.
  if (entry.address.load(std::memory_order_acquire) == address) return entry.index;
  return is_full_.load(std::memory_order_relaxed) ? kManyCallSites : add(address);
}

uint8_t CallSites::add(const void* address) {
  const std::lock_guard lock(mutex_);
  Entry& entry = find(address);
  if (entry.address.load(std::memory_order_relaxed) == address) return entry.index;
  const uint32_t count = area_.num_call_sites.load(std::memory_order_relaxed);
  if (count == kCallSiteTexts) {
    is_full_.store(true, std::memory_order_relaxed);
    return kManyCallSites;
  }
  std::string text = describe_call_site(address);
  if (text.size() >= kCallSiteBytes) text = text.substr(0, kCallSiteBytes - 4) + "...";
  std::memcpy(area_.call_sites[count].data(), text.c_str(), text.size() + 1);
  area_.num_call_sites.store(count + 1, std::memory_order_release);
  entry.index = static_cast<uint8_t>(count + 1);
  entry.address.store(address, std::memory_order_release);
  return entry.index;
}

}  // namespace cohort::shm
