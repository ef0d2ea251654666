/// A job of one rank, this process, with a launcher's snapshot server: what MemorySnapshot needs.
#pragma once

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <memory>
#include <string>

#include "cohort/base/system/env.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/snapshot/place.h"
#include "cohort/snapshot/snapshot_server.h"
#include "cohort/store/tcp/tcp_server.h"

namespace cohort::checkpoint {

class JobOfOne {
 public:
  JobOfOne()
      : server_(snapshot::SnapshotServer::start("").value()),
        store_(store::TcpServer::start({.host = "127.0.0.1"}).value()) {
    for (const char* name : {"RANK", "GROUP_RANK"}) base::set_env(name, "0");
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"}) base::set_env(name, "1");
    base::set_env("MASTER_ADDR", "127.0.0.1");
    base::set_env("MASTER_PORT", std::to_string(store_->port()));
    base::set_env(snapshot::kPlaceVariable, snapshot::place_value(server_->name(), 0));
    init_process_group(
        {.backend = "gloo", .world_size = 1, .rank = 0, .store = c10::make_intrusive<c10d::HashStore>()});
  }
  ~JobOfOne() {
    destroy_process_group();
    for (const char* name : {"RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR",
                             "MASTER_PORT", snapshot::kPlaceVariable}) {
      base::unset_env(name);
    }
  }
  JobOfOne(const JobOfOne&) = delete;
  JobOfOne& operator=(const JobOfOne&) = delete;

  void lose_launcher() { server_.reset(); }

 private:
  std::unique_ptr<snapshot::SnapshotServer> server_;
  std::unique_ptr<store::TcpServer> store_;
};

}  // namespace cohort::checkpoint
