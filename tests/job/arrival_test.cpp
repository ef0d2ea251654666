#include "cohort/job/arrival.h"

#include <gtest/gtest.h>

namespace cohort::job {
namespace {

Arrival cpp_rank(int rank, const std::string& host, const std::string& address) {
  Peer peer;
  peer.pid = 100 + rank;
  peer.host = host;
  peer.network_scope = host;
  peer.world_size = 2;
  peer.addresses = {address};
  return {rank, peer, {}};
}

Arrival python_rank(int rank, const std::string& host, const std::string& address) {
  return {rank, {}, GlooEntry{host, address, 4711}};
}

std::string conflict_text(const std::vector<Arrival>& arrivals) {
  const auto conflict = find_conflict(arrivals);
  return conflict ? failure_text(*conflict) : "none";
}

TEST(Arrival, FindsNoConflictInAGoodStart) {
  EXPECT_EQ(conflict_text({}), "none");
  EXPECT_EQ(conflict_text({cpp_rank(0, "a", "127.0.0.1"), cpp_rank(1, "a", "127.0.0.1")}), "none");
  EXPECT_EQ(conflict_text({cpp_rank(0, "a", "127.0.0.1"), python_rank(1, "a", "127.0.0.1")}), "none");
  EXPECT_EQ(conflict_text({cpp_rank(0, "a", "10.0.0.1"), python_rank(1, "b", "10.0.0.2")}), "none");
  EXPECT_EQ(conflict_text({cpp_rank(0, "a", "127.0.0.1"), Arrival{1, {}, {}}}), "none");
}

TEST(Arrival, WorldSizesThatDifferMessage) {
  auto other = cpp_rank(1, "b", "10.0.0.2");
  other.peer->world_size = 3;
  EXPECT_EQ(conflict_text({cpp_rank(0, "a", "10.0.0.1"), other, cpp_rank(2, "a", "10.0.0.1")}),
            "[cohort] the ranks disagree on the world size\n"
            "  world size 2: rank 0 (pid 100 on a), rank 2 (pid 102 on a)\n"
            "  world size 3: rank 1 (pid 101 on b)\n"
            "  hint: give every rank the same WORLD_SIZE, or InitOptions::world_size");
}

TEST(Arrival, TwoRanksWithOneAcceleratorMessage) {
  auto first = cpp_rank(0, "a", "10.0.0.1");
  auto second = cpp_rank(1, "a", "10.0.0.1");
  first.peer->accelerator = second.peer->accelerator = "GPU-7";
  EXPECT_EQ(conflict_text({first, second}),
            "[cohort] two ranks use one accelerator, GPU-7\n  rank 0 (pid 100 on a)\n  rank 1 (pid 101 on a)\n"
            "  hint: give each rank of a host its own device, by its LOCAL_RANK for instance");
  second.peer->host = "b";
  EXPECT_EQ(conflict_text({first, second}), "none");
  second.peer->host = "a";
  second.peer->accelerator = "GPU-8";
  EXPECT_EQ(conflict_text({first, second}), "none");
}

TEST(Arrival, LoopbackBetweenHostsMessage) {
  auto lost = cpp_rank(1, "b", "127.0.1.1");
  lost.peer->interfaces = "eth0 (10.0.0.2)";
  EXPECT_EQ(
      conflict_text({cpp_rank(0, "a", "10.0.0.1"), lost}),
      "[cohort] ranks on different hosts cannot connect: rank 1 (pid 101 on b) announces a loopback address\n"
      "  rank 1 (pid 101 on b) announces 127.0.1.1\n  rank 0 (pid 100 on a) announces 10.0.0.1\n"
      "  hint: set GLOO_SOCKET_IFNAME on b to one of its interfaces: eth0 (10.0.0.2); or let its host name resolve to "
      "such an address (Debian's /etc/hosts says 127.0.1.1)");
  EXPECT_EQ(
      conflict_text({cpp_rank(0, "a", "10.0.0.1"), python_rank(1, "b", "127.0.0.1")}),
      "[cohort] ranks on different hosts cannot connect: rank 1 (a Python process on b) announces a loopback address\n"
      "  rank 1 (a Python process on b) announces 127.0.0.1\n  rank 0 (pid 100 on a) announces 10.0.0.1\n"
      "  hint: set GLOO_SOCKET_IFNAME on b to one of its interfaces: those that `ip addr` shows; or let its host name "
      "resolve to such an address (Debian's /etc/hosts says 127.0.1.1)");
}

TEST(Arrival, MixedFamiliesMessage) {
  EXPECT_EQ(conflict_text({cpp_rank(0, "a", "10.0.0.1"), cpp_rank(1, "b", "fd00::2")}),
            "[cohort] ranks announce addresses of different families and cannot connect\n"
            "  rank 0 (pid 100 on a) announces 10.0.0.1 (IPv4)\n  rank 1 (pid 101 on b) announces fd00::2 (IPv6)\n"
            "  hint: set COHORT_IP_FAMILY=4, or 6, on every rank, or name interfaces in GLOO_SOCKET_IFNAME");
}

TEST(Arrival, ManyRanksAreCounted) {
  std::vector<Arrival> many;
  for (int rank = 0; rank < 10; ++rank) many.push_back(python_rank(rank, "a", "127.0.0.1"));
  many.resize(1);
  EXPECT_EQ(describe(many), "rank 0 (a Python process on a)");
  for (int rank = 1; rank < 10; ++rank) many.push_back({rank, {}, {}});
  EXPECT_EQ(describe(many),
            "rank 0 (a Python process on a), rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7 and 2 more");
  EXPECT_EQ(describe(std::vector<Arrival>{}), "none");
}

TEST(Peer, SurvivesTheStore) {
  Peer peer = this_process();
  peer.world_size = 5;
  peer.addresses = {"10.0.0.1", "fd00::1"};
  peer.interfaces = "eth0 (10.0.0.1), eth1 (down)";
  peer.accelerator = "GPU-1 of 2";
  peer.start_count = 3;
  peer.shm_scope = "boot 1, user 2";
  peer.shm_obstacle = "memfd_create: not permitted";
  const auto text = encode(peer) + "\nlater news";
  const auto read = decode_peer({text.begin(), text.end()});
  EXPECT_TRUE(is_same_process(peer, read));
  EXPECT_EQ(encode(read), encode(peer));
  EXPECT_EQ(read.accelerator, peer.accelerator);
  EXPECT_EQ(read.shm_scope, peer.shm_scope);
  EXPECT_EQ(read.network_scope, peer.network_scope);
  EXPECT_FALSE(is_seen_gone(read));
  Peer reused = read;
  reused.started_at = "1";
  EXPECT_TRUE(is_seen_gone(reused));
  reused.pid_scope = "another host";
  EXPECT_FALSE(is_seen_gone(reused));
  EXPECT_EQ(decode_peer({}).pid, 0);
}

}  // namespace
}  // namespace cohort::job
