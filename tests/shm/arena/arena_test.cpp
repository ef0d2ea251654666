// Blocks of one process: what they hold, when they come again, and what a fork does to them.
#include "cohort/shm/arena/arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cohort/shm/arena/process_arena.h"

namespace cohort::shm {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

Arena& make_arena(size_t bytes) {
  auto arena = Arena::create(bytes);
  EXPECT_TRUE(arena) << arena.error().describe();
  return **arena;
}

char* take(Arena& arena, size_t bytes, int fill) {
  auto* const block = static_cast<char*>(arena.take(bytes));
  EXPECT_NE(block, nullptr);
  std::memset(block, fill, bytes);
  return block;
}

// By memcmp, as sanitizers and emulators take long for each access of ours.
bool holds(const char* block, size_t bytes, char value) {
  return *block == value && std::memcmp(block, block + 1, bytes - 1) == 0;
}

// What a forked child prints of what `fn` returns. Its exit code must be 0.
std::string in_child(const std::function<std::string()>& fn) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  std::cout << std::flush;
  const auto pid = fork();
  if (pid == 0) {
    const auto text = fn();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[1000];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(Arena, ABlockComesAgainWithItsPages) {
  auto& arena = make_arena(64 * kMiB);
  auto* const block = take(arena, kMiB, 3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 4096, 0u);
  arena.release(block);
  EXPECT_EQ(arena.stats().cached_bytes, kMiB);
  EXPECT_EQ(arena.take(kMiB - 5), block);
  const auto stats = arena.stats();
  EXPECT_EQ(stats.num_recycled, 1u);
  EXPECT_EQ(stats.num_fresh, 1u);
  EXPECT_EQ(stats.used_bytes, kMiB);
  EXPECT_EQ(stats.peak_used_bytes, kMiB);
  EXPECT_EQ(stats.cached_bytes, 0u);
  EXPECT_EQ(stats.reserved_bytes, 64 * kMiB);
}

TEST(Arena, NoRoomIsNoBlock) {
  auto& arena = make_arena(8 * kMiB);
  EXPECT_EQ(arena.take(9 * kMiB), nullptr);
  EXPECT_EQ(arena.take(~size_t{0} - 100), nullptr);
  auto* const first = take(arena, 5 * kMiB, 1);
  EXPECT_EQ(arena.take(4 * kMiB), nullptr);
  EXPECT_EQ(arena.stats().num_refused, 3u);
  arena.release(first);
  // Neither what is cached nor what was never used has room for it: together they do.
  EXPECT_NE(arena.take(7 * kMiB), nullptr);
}

TEST(Arena, PagesOfFreeBlocksGoBackToTheSystem) {
  auto& arena = make_arena(64 * kMiB);
  auto* const block = take(arena, 4 * kMiB, 9);
  arena.release(block);
  arena.give_back(kMiB);
  EXPECT_EQ(arena.stats().cached_bytes, kMiB);
  arena.give_back();
  EXPECT_EQ(arena.stats().cached_bytes, 0u);
  auto* const again = static_cast<char*>(arena.take(4 * kMiB));
  EXPECT_EQ(again, block);
  EXPECT_TRUE(holds(again, 4 * kMiB, 0));  // pages that are gone come back as zeroes
}

TEST(Arena, FreePagesStayWithinTheBoundAndContentIsKept) {
  auto& arena = make_arena(4096 * kMiB);
  std::mt19937 random(11);
  struct Held {
    char* data = nullptr;
    size_t bytes = 0;
    char value = 0;
  };
  std::vector<Held> held(16);
  for (int step = 0; step < 600; ++step) {
    auto& slot = held[random() % held.size()];
    if (slot.data) {
      ASSERT_TRUE(holds(slot.data, slot.bytes, slot.value));
      arena.release(slot.data);
    }
    slot.bytes = 65536 + random() % (12 * kMiB);
    slot.value = static_cast<char>(step);
    slot.data = take(arena, slot.bytes, slot.value);
    const auto stats = arena.stats();
    const auto bound = static_cast<double>(stats.peak_used_bytes) * Arena::kFootprintFactor + Arena::kSlackBytes;
    ASSERT_LE(static_cast<double>(stats.used_bytes + stats.cached_bytes), bound);
  }
  EXPECT_GT(arena.stats().num_recycled, 100u);
}

size_t bytes_with_pages(const Arena& arena) {
  struct stat status {};
  EXPECT_EQ(fstat(arena.fd(), &status), 0);
  return static_cast<size_t>(status.st_blocks) * 512;
}

// A bound that is no whole number of pages must not cut pages: the neighbor would lose its own.
TEST(Arena, WholePagesGoBackAndNeighborsKeepTheirs) {
  constexpr size_t kPage = 4096;
  auto& arena = make_arena(1024 * kMiB);
  auto* const first = take(arena, 10000 * kPage, 1);
  auto* const between = take(arena, kPage, 2);
  auto* const last = take(arena, 10000 * kPage, 3);
  arena.release(first);
  arena.release(last);
  auto* const large = take(arena, 20000 * kPage, 4);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % kPage, 0u);
  const auto stats = arena.stats();
  EXPECT_LT(stats.cached_bytes, 20000 * kPage);
  EXPECT_EQ(bytes_with_pages(arena), stats.used_bytes + stats.cached_bytes);
  arena.give_back();
  EXPECT_EQ(bytes_with_pages(arena), arena.stats().used_bytes);
  EXPECT_TRUE(holds(large, 20000 * kPage, 4));
  EXPECT_TRUE(holds(between, kPage, 2));
}

TEST(Arena, HolesThatFitNobodyAreGivenBack) {
  auto& arena = make_arena(2048 * kMiB);
  std::vector<char*> blocks;
  for (int i = 0; i < 256; ++i) blocks.push_back(take(arena, kMiB, i));
  for (size_t i = 0; i < blocks.size(); i += 2) arena.release(blocks[i]);
  for (int i = 0; i < 128; ++i) take(arena, kMiB + kMiB / 2, i);
  const auto stats = arena.stats();
  const auto bound = static_cast<double>(stats.peak_used_bytes) * Arena::kFootprintFactor + Arena::kSlackBytes;
  EXPECT_LE(static_cast<double>(stats.used_bytes + stats.cached_bytes), bound + 4096);
  EXPECT_EQ(bytes_with_pages(arena), stats.used_bytes + stats.cached_bytes);
  for (size_t i = 1; i < blocks.size(); i += 2) ASSERT_TRUE(holds(blocks[i], kMiB, static_cast<char>(i)));
}

TEST(Arena, ARequestThatCannotFitLeavesTheCacheAlone) {
  auto& arena = make_arena(16 * kMiB);
  auto* const first = take(arena, 6 * kMiB, 1);
  take(arena, 4 * kMiB, 2);
  arena.release(first);
  EXPECT_EQ(arena.take(12 * kMiB), nullptr);
  EXPECT_EQ(arena.stats().cached_bytes, 6 * kMiB);
}

TEST(Arena, AQuarantinedBlockNeverComesAgain) {
  auto& arena = make_arena(64 * kMiB);
  auto* const before = take(arena, kMiB, 1);
  auto* const block = take(arena, kMiB, 2);
  auto* const after = take(arena, kMiB, 3);
  arena.quarantine(block + 100, 10);
  arena.quarantine(block, kMiB);
  EXPECT_EQ(arena.stats().quarantined_bytes, kMiB);
  for (auto* const each : {before, block, after}) arena.release(each);
  EXPECT_EQ(arena.stats().used_bytes, 0u);
  EXPECT_EQ(arena.stats().cached_bytes, 2 * kMiB);
  arena.give_back();
  for (auto* again = arena.take(kMiB); again; again = arena.take(kMiB)) EXPECT_NE(again, block);
}

TEST(Arena, AForkedChildWritesPagesOfItsOwn) {
  auto& arena = make_arena(64 * kMiB);
  auto* const block = take(arena, kMiB, 1);
  const auto text = in_child([&] {
    std::string report = holds(block, kMiB, 1) ? "sees it, " : "does not see it, ";
    std::memset(block, 2, kMiB);
    report += holds(block, kMiB, 2) && !arena.take(kMiB) ? "writes, " : "cannot write, ";
    arena.release(block);
    arena.give_back();
    return report + (arena.fd() < 0 ? "shares nothing" : "shares");
  });
  EXPECT_EQ(text, "sees it, writes, shares nothing");
  EXPECT_TRUE(holds(block, kMiB, 1));
  auto* const next = take(arena, kMiB, 4);
  EXPECT_TRUE(holds(block, kMiB, 1));
  EXPECT_TRUE(holds(next, kMiB, 4));
}

TEST(Arena, AForkedChildMakesAnArenaOfItsOwn) {
  ASSERT_TRUE(make_process_arena(64 * kMiB));
  auto* const arena = process_arena();
  auto* const block = take(*arena, kMiB, 1);
  EXPECT_EQ(*make_process_arena(32 * kMiB), arena);
  EXPECT_EQ(arena_of(block + 5), arena);
  const auto text = in_child([&]() -> std::string {
    if (process_arena()) return "the parent's is still there";
    auto made = make_process_arena(32 * kMiB);
    if (!made || process_arena() != *made || *made == arena) return "cannot make one";
    auto* const own = take(**made, kMiB, 2);
    if (arena_of(block) != arena || arena_of(own) != *made || arena_of(&made)) return "mixes them up";
    arena_of(block)->release(block);
    arena_of(own)->release(own);
    return "has its own";
  });
  EXPECT_EQ(text, "has its own");
  EXPECT_EQ(process_arena(), arena);
}

TEST(Arena, ThreadsTakeAndReleaseAtOnce) {
  auto& arena = make_arena(1024 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&arena, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 300; ++i) {
        const size_t bytes = 65536 + random() % kMiB;
        auto* const block = take(arena, bytes, t + 1);
        if (i % 10 == 0) arena.give_back(kMiB);
        ASSERT_TRUE(holds(block, bytes, static_cast<char>(t + 1)));
        arena.release(block);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(arena.stats().used_bytes, 0u);
}

TEST(Arena, IsItsOwnersAloneAndInNoCoreDump) {
  auto& arena = make_arena(64 * kMiB);
  struct stat status {};
  ASSERT_EQ(fstat(arena.fd(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  std::ifstream maps("/proc/self/smaps");
  char begin[32];
  std::snprintf(begin, sizeof(begin), "%lx-", reinterpret_cast<unsigned long>(arena.memory()->data()));
  bool is_found = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind(begin, 0) == 0) is_found = true;
    if (!is_found || line.rfind("VmFlags:", 0) != 0) continue;
    EXPECT_NE(line.find(" dd"), std::string::npos) << line;
    return;
  }
  ADD_FAILURE() << "the arena has no mapping";
}

std::string error_with_limit(decltype(RLIMIT_AS) resource, size_t limit, size_t bytes) {
  return in_child([=]() -> std::string {
    const rlimit both{limit, limit};
    setrlimit(resource, &both);
    const auto arena = Arena::create(bytes);
    return arena ? "made" : arena.error().describe();
  });
}

TEST(Arena, LimitOfFilesMessage) {
  EXPECT_EQ(
      error_with_limit(RLIMIT_FSIZE, 16 * kMiB, 64 * kMiB),
      "cannot make 64.0 MiB of shared memory: File too large (EFBIG); the size of this process's files is limited to "
      "16.0 MiB (ulimit -f)");
}

// Sanitizers take terabytes of address space for themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Arena, LimitOfAddressSpaceMessage) {
  EXPECT_EQ(
      error_with_limit(RLIMIT_AS, 4096 * kMiB, size_t{1} << 40),
      "cannot map 1.0 TiB of shared memory: Cannot allocate memory (ENOMEM); this process's address space is limited "
      "to 4.0 GiB (ulimit -v)");
}
#endif

}  // namespace
}  // namespace cohort::shm
