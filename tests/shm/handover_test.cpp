#include "cohort/shm/memory/handover.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "cohort/shm/engine/group.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;

Meeting meeting(const std::string& address, int rank, milliseconds limit = milliseconds(20000)) {
  return {address, rank, 2, std::chrono::steady_clock::now() + limit, {}};
}

// Connects to the abstract name and says `text`.
base::Fd connect_and_say(const std::string& address, const std::string& text) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.data(), address.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  while (true) {
    base::Fd connection(socket(AF_UNIX, SOCK_STREAM, 0));
    if (connect(connection.get(), reinterpret_cast<sockaddr*>(&name), length) == 0) {
      EXPECT_EQ(send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
      return connection;
    }
    std::this_thread::yield();
  }
}

TEST(Handover, StrangersAreIgnoredAndOursStillServed) {
  const auto address = new_address();
  std::thread host([&] {
    base::Fd fd;
    const auto memory = SharedMemory::create(5000, &fd);
    ASSERT_TRUE(memory);
    (*memory)->data()[0] = std::byte{42};
    const auto done = hand_over(meeting(address, 0), fd);
    EXPECT_TRUE(done) << done.error().describe();
  });
  const auto silent = connect_and_say(address, "");
  const auto talkative = connect_and_say(address, std::string(1000, 'x'));
  const auto fd = receive_handed_over(meeting(address, 1));
  ASSERT_TRUE(fd) << fd.error().describe();
  const auto memory = SharedMemory::open(*fd, 5000);
  ASSERT_TRUE(memory);
  EXPECT_EQ((*memory)->data()[0], std::byte{42});
  host.join();
}

TEST(Handover, ARankThatIsAlreadyThereIsRefusedMessage) {
  const auto address = new_address();
  std::thread host([&] {
    base::Fd fd;
    const auto memory = SharedMemory::create(1, &fd);
    auto wider = meeting(address, 0, milliseconds(1500));
    wider.world_size = 3;
    EXPECT_FALSE(hand_over(wider, fd));
  });
  auto one = meeting(address, 1);
  one.world_size = 3;
  EXPECT_TRUE(receive_handed_over(one));
  const auto again = receive_handed_over(one);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().describe(),
            "rank 0 refused to hand over shared memory: it runs another release of Cohort, expects another number of "
            "ranks, or already has this rank");
  host.join();
}

TEST(SharedMemory, IsOneMappingPerProcessAndGoesWithItsLastOwner) {
  base::Fd fd;
  auto memory = SharedMemory::create(5000, &fd);
  ASSERT_TRUE(memory);
  EXPECT_EQ((*memory)->size(), 8192u);
  auto again = SharedMemory::open(fd, 5000);
  ASSERT_TRUE(again);
  EXPECT_EQ(memory->get(), again->get());
  const std::weak_ptr<SharedMemory> watched = *memory;
  memory->reset();
  again->reset();
  EXPECT_TRUE(watched.expired());
  EXPECT_TRUE(SharedMemory::open(fd, 5000));
}

TEST(SharedMemory, WhatCouldShrinkUnderAReaderIsRefusedMessage) {
  const base::Fd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  const auto memory = SharedMemory::open(unsealed, 8192);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().describe(), "was given something other than shared memory of 8.0 KiB with a fixed size");
  base::Fd fd;
  ASSERT_TRUE(SharedMemory::create(4096, &fd));
  EXPECT_FALSE(SharedMemory::open(fd, 8192));
  EXPECT_NE(ftruncate(fd.get(), 0), 0);
}

}  // namespace
}  // namespace cohort::shm
