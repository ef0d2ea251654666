// What a WriteGuard leaves to whoever handled SIGSEGV before it, in a process of its own each time.
#include "cohort/parallel/fsdp/host/write_guard.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <thread>

#include "tests/support/rank_processes.h"

namespace cohort::fsdp {
namespace {

constexpr size_t kPageBytes = 4096;

const std::string kText =
    "[cohort] error: a write to parameter 'weight', which is read-only: fully_shard keeps it once for all ranks of "
    "this host\n  hint: initialize and load parameters inside model->write(...), and build optimizers on the shards, "
    "model->parameters(), which may also be changed elementwise\n";

// Two pages, of which the first is guarded; neither can be written.
struct Pages {
  Pages() { data = static_cast<char*>(mmap(nullptr, 2 * kPageBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); }
  WriteGuard guard() const { return WriteGuard({{reinterpret_cast<const std::byte*>(data), kPageBytes, "weight"}}); }
  void write(size_t page = 0) const { *static_cast<volatile char*>(data + page * kPageBytes) = 1; }
  void protect() const { mprotect(data, 2 * kPageBytes, PROT_READ); }
  char* data;
};

Pages* pages;
int num_calls = 0;
sigjmp_buf before_the_write;

void set_handler(void (*handler)(int), int flags = 0) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaction(SIGSEGV, &action, nullptr);
}

void set_handler(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

bool is_blocked(int number) {
  sigset_t now;
  sigemptyset(&now);
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return sigismember(&now, number) == 1;
}

void say(const std::string& text) { std::cout << text << "\n" << std::flush; }

// As a program that lets pages be written when somebody does so.
void unprotect(int /*number*/, siginfo_t* info, void* /*context*/) {
  ++num_calls;
  if (info->si_code > 0) mprotect(pages->data, 2 * kPageBytes, PROT_READ | PROT_WRITE);
  say(info->si_code <= 0 ? "sent" : "at " + std::to_string(static_cast<char*>(info->si_addr) - pages->data));
}

void tell_mask(int /*number*/) {
  ++num_calls;
  mprotect(pages->data, 2 * kPageBytes, PROT_READ | PROT_WRITE);
  say(std::string("SIGSEGV ") + (is_blocked(SIGSEGV) ? "blocked" : "open") + ", SIGUSR1 " +
      (is_blocked(SIGUSR1) ? "blocked" : "open"));
}

void jump(int /*number*/) { siglongjmp(before_the_write, 1); }

COHORT_WORKER(meets_sigsegv) {
  signal(SIGSEGV, SIG_DFL);  // a sanitizer would tell of it
  const auto& what = cohort::test::worker_arguments().at(0);
  Pages both;
  pages = &both;
  if (what == "handler") set_handler(unprotect);
  if (what == "mask") set_handler(tell_mask);
  if (what == "open mask") set_handler(tell_mask, SA_NODEFER);
  if (what == "once") set_handler(tell_mask, SA_RESETHAND);
  if (what == "jump") set_handler(jump);
  if (what == "ignored" || what == "ignored write") set_handler(SIG_IGN);
  const auto guard = both.guard();
  if (what == "raised" || what == "ignored") raise(SIGSEGV);
  if (what == "sent") kill(getpid(), SIGSEGV);
  if (what == "sent to a thread") std::thread([] { raise(SIGSEGV); }).join();
  if (what == "unguarded page") both.write(1);
  if (what == "write" || what == "ignored write") both.write();
  if (what == "handler") {
    raise(SIGSEGV);
    for (const size_t page : {0, 1, 0}) {
      both.write(page);
      both.protect();
    }
  }
  if (what == "mask" || what == "open mask" || what == "once") both.write();
  if (what == "once") {
    both.protect();
    both.write();
  }
  if (what == "jump") {
    if (sigsetjmp(before_the_write, 1) == 0) both.write();
    if (sigsetjmp(before_the_write, 1) == 0) both.write();
  }
  say("lives on");
}

void expect_end(const std::string& what, int exit_code, const std::string& output, const std::string& errors) {
  SCOPED_TRACE(what);
  const auto results = cohort::test::run_workers("meets_sigsegv", {.world_size = 1, .arguments = {what}});
  const auto& result = results[0];
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_EQ(result.output, output);
  EXPECT_EQ(result.errors, errors);
}

TEST(WriteGuard, NobodyHandlesTheSignal) {
  expect_end("write", -SIGSEGV, "", kText);
  expect_end("unguarded page", -SIGSEGV, "", "");
  expect_end("raised", -SIGSEGV, "", "");
  expect_end("sent", -SIGSEGV, "", "");
  expect_end("sent to a thread", -SIGSEGV, "", "");
}

TEST(WriteGuard, TheSignalIsIgnored) {
  expect_end("ignored", 0, "lives on\n", "");
  expect_end("ignored write", -SIGSEGV, "", kText);
}

TEST(WriteGuard, StaysWhereAHandlerSurvives) {
  expect_end("handler", 0, "sent\nat 0\nat 4096\nat 0\nlives on\n", kText + kText);
  expect_end("jump", 0, "lives on\n", kText + kText);
}

TEST(WriteGuard, CallsAHandlerAsTheKernelWould) {
  expect_end("mask", 0, "SIGSEGV blocked, SIGUSR1 blocked\nlives on\n", kText);
  expect_end("open mask", 0, "SIGSEGV open, SIGUSR1 blocked\nlives on\n", kText);
  expect_end("once", -SIGSEGV, "SIGSEGV blocked, SIGUSR1 blocked\n", kText + kText);
}

}  // namespace
}  // namespace cohort::fsdp
