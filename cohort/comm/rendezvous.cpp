#include "cohort/comm/rendezvous.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace cohort::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

StorePtr open_tcp_store(const RendezvousPlan& plan, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = plan.port;
  options.isServer = plan.hosts_store;
  options.numWorkers = plan.world_size;
  options.timeout = timeout;
  options.multiTenant = true;
  options.useLibUV = plan.use_libuv;
  return c10::make_intrusive<c10d::TCPStore>(plan.host, options);
}

}  // namespace

StorePtr meet(const RendezvousPlan& plan, std::chrono::milliseconds timeout) {
  StorePtr store;
  if (plan.kind == RendezvousPlan::Kind::kFile) {
    store = c10::make_intrusive<c10d::FileStore>(plan.path, plan.world_size);
  } else {
    store = open_tcp_store(plan, timeout);
  }
  store->setTimeout(timeout);
  return c10::make_intrusive<c10d::PrefixStore>("default_pg", store);
}

}  // namespace cohort::comm
