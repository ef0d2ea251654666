#include "cohort/parallel/fsdp/host/write_guard.h"

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
  pid_t process;
  std::string text;
  std::string text_in_child;
};
using GuardedTexts = std::vector<GuardedText>;

// A handler must not take a lock. Guards beyond the last place have no text.
constexpr size_t kMaxGuards = 1024;
std::array<std::atomic<const GuardedTexts*>, kMaxGuards> guards;
// The number of handlers that may be reading a guard's texts.
std::atomic<int> num_readers = 0;
struct sigaction action_before;

std::string text_of(const std::string& name) {
  return "[cohort] error: a write to parameter '" + name +
         "', which is read-only: fully_shard keeps it once for all ranks of this host\n"
         "  hint: initialize and load parameters inside model->write(...), and build optimizers on the shards, "
         "model->parameters(), which may also be changed elementwise\n";
}

std::string text_in_child_of(const std::string& name) {
  return "[cohort] error: a forked process has no parameter '" + name +
         "': fully_shard keeps it for the ranks of this host, but not for the processes that they fork\n"
         "  hint: give the child a copy that was made before the fork: parameter.detach().clone()\n";
}

const std::string* find_text(const void* address) {
  for (const auto& guard : guards) {
    const auto* const texts = guard.load();
    if (!texts) continue;
    for (const auto& guarded : *texts) {
      if (address < guarded.begin || address >= guarded.end) continue;
      return getpid() == guarded.process ? &guarded.text : &guarded.text_in_child;
    }
  }
  return nullptr;
}

void explain(const void* address) {
  ++num_readers;
  if (const auto* const text = find_text(address)) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text->data(), text->size());
  }
  --num_readers;
}

// Calls it as the kernel would have done.
void call_handler_before(const struct sigaction& before, int number, siginfo_t* info, void* context) {
  if (before.sa_flags & SA_RESETHAND) {
    action_before.sa_handler = SIG_DFL;
    action_before.sa_flags = 0;
  }
  pthread_sigmask(SIG_BLOCK, &before.sa_mask, nullptr);
  if (before.sa_flags & SA_NODEFER) {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, number);
    pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  }
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else {
    before.sa_handler(number);
  }
}

void explain_and_pass_on(int number, siginfo_t* info, void* context) {
  const bool is_sent = info->si_code <= 0;  // by kill or raise, without an address
  if (!is_sent) explain(info->si_addr);
  const auto before = action_before;
  const bool is_handled =
      (before.sa_flags & SA_SIGINFO) || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
  if (is_handled) {
    call_handler_before(before, number, info, context);
    return;
  }
  if (is_sent && before.sa_handler == SIG_IGN) return;
  // After the return an access is repeated, and cannot be ignored. A sent signal must be raised again; it is blocked until the
  // return.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(number, &standard, nullptr);
  if (is_sent) raise(number);
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
    texts->push_back({range.begin, range.begin + range.num_bytes, getpid(),
                      range.text.empty() ? text_of(range.name) : range.text,
                      range.text_in_child.empty() ? text_in_child_of(range.name) : range.text_in_child});
  }
  install_handler();
  for (size_t i = 0; i < kMaxGuards; ++i) {
    const GuardedTexts* free = nullptr;
    if (!guards[i].compare_exchange_strong(free, texts.get())) continue;
    place_ = i;
    [[maybe_unused]] const auto* const kept = texts.release();
    return;
  }
}

// A handler that begins now does not find the texts. If a handler in another thread may be reading them, they are leaked.
WriteGuard::~WriteGuard() {
  if (place_ == kMaxGuards) return;
  const auto* const texts = guards[place_].exchange(nullptr);
  if (num_readers == 0) delete texts;
}

}  // namespace cohort::fsdp
