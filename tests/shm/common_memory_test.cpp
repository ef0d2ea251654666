#include "cohort/shm/memory/common_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <optional>

namespace cohort::shm {
namespace {

constexpr size_t kBytes = 8192;

CommonMemory make_memory() {
  base::Fd fd;
  auto writable = SharedMemory::create(kBytes, &fd);
  EXPECT_TRUE(writable) << writable.error().describe();
  auto readable = ReadOnlyMapping::create(fd, kBytes);
  EXPECT_TRUE(readable) << readable.error().describe();
  return {*writable, *readable};
}

// The exit code of a forked child, or minus the signal that has ended it.
int end_of_child(const std::function<int()>& fn) {
  const auto pid = fork();
  if (pid == 0) {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer would tell of it
    _exit(fn());
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(CommonMemory, IsReadWhereItIsWritten) {
  const auto memory = make_memory();
  EXPECT_NE(static_cast<const std::byte*>(memory.writable->data()), memory.readable->data());
  std::memcpy(memory.writable->data() + 5000, "text", 5);
  EXPECT_STREQ(reinterpret_cast<const char*>(memory.readable->data()) + 5000, "text");
  EXPECT_TRUE(memory.readable->is_here());
}

TEST(CommonMemory, IsNotThereInForkedChildren) {
  auto memory = make_memory();
  memory.writable->keep_from_children();
  std::memcpy(memory.writable->data(), "text", 5);
  const auto first_of = [](const std::byte* data) {
    return static_cast<int>(*static_cast<const volatile std::byte*>(data));
  };
  EXPECT_EQ(end_of_child([&] { return first_of(memory.readable->data()); }), -SIGSEGV);
  EXPECT_EQ(end_of_child([&] { return first_of(memory.writable->data()); }), -SIGSEGV);
  EXPECT_EQ(end_of_child([&] { return memory.readable->is_here() ? 1 : 0; }), 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(memory.readable->data()), "text");
}

// Another mapping of the child may have the addresses when the memory's owners end there.
TEST(CommonMemory, ForkedChildrenLetGoOfNothing) {
  auto memory = make_memory();
  memory.writable->keep_from_children();
  EXPECT_EQ(end_of_child([&] {
              const auto take = [](const std::byte* where) {
                auto* const wanted = const_cast<std::byte*>(where);
                auto* const taken = mmap(wanted, kBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                return taken == wanted ? static_cast<char*>(taken) : nullptr;
              };
              char* const first = take(memory.readable->data());
              char* const second = take(memory.writable->data());
              if (!first || !second) return 1;
              memory = {};
              *first = 2;
              *second = 3;
              return *first + *second;
            }),
            5);
}

// As arenas and the memory of groups, of which children have a copy or a part.
TEST(CommonMemory, SharedMemoryStaysInForkedChildrenUnlessItIsKept) {
  base::Fd fd;
  const auto memory = *SharedMemory::create(kBytes, &fd);
  EXPECT_EQ(end_of_child([&] {
              *memory->data() = std::byte{7};
              return 4;
            }),
            4);
  EXPECT_EQ(*memory->data(), std::byte{7});
}

}  // namespace
}  // namespace cohort::shm
