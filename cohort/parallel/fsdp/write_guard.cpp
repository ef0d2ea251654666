#include "cohort/parallel/fsdp/write_guard.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace cohort::fsdp {
namespace {

struct GuardedText {
  const std::byte* begin;
  const std::byte* end;
  std::string text;
};
using GuardedTexts = std::vector<GuardedText>;

// A handler may take no lock. Guards beyond the last place have no text.
constexpr size_t kMaxGuards = 1024;
std::array<std::atomic<const GuardedTexts*>, kMaxGuards> guards;
struct sigaction action_before;

std::string text_of(const std::string& name) {
  return "[cohort] error: a write to parameter '" + name +
         "', which fully_shard keeps once for all ranks of this host, so that none may write it\n"
         "  hint: initialise and load parameters inside of model->write(...), change them elementwise by the shards "
         "that "
         "model->parameters() gives, and build optimizers on these\n";
}

void explain_and_pass_on(int number, siginfo_t* info, void* /*context*/) {
  const auto* const address = static_cast<const std::byte*>(info->si_addr);
  for (const auto& guard : guards) {
    const auto* const texts = guard.load(std::memory_order_acquire);
    if (!texts) continue;
    for (const auto& guarded : *texts) {
      if (address < guarded.begin || address >= guarded.end) continue;
      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, guarded.text.data(), guarded.text.size());
    }
  }
  // The write is made again, and meets who was there before.
  sigaction(number, &action_before, nullptr);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = explain_and_pass_on;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &action_before);
  });
}

}  // namespace

WriteGuard::WriteGuard(const std::vector<Range>& ranges) : place_(kMaxGuards) {
  auto texts = std::make_unique<GuardedTexts>();
  for (const auto& range : ranges) {
    texts->push_back(
        {range.begin, range.begin + range.num_bytes, range.text.empty() ? text_of(range.name) : range.text});
  }
  install_handler();
  for (size_t i = 0; i < kMaxGuards; ++i) {
    const GuardedTexts* free = nullptr;
    if (!guards[i].compare_exchange_strong(free, texts.get())) continue;
    place_ = i;
    (void)texts.release();
    return;
  }
}

// The texts stay: a handler in another thread may be reading them.
WriteGuard::~WriteGuard() {
  if (place_ < kMaxGuards) guards[place_].store(nullptr, std::memory_order_release);
}

}  // namespace cohort::fsdp
