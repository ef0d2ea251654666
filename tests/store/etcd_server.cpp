#include "tests/store/etcd_server.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "cohort/store/etcd_client.h"
#include "cohort/store/etcd_keys.h"

namespace cohort::store {
namespace {

std::string url(int port) { return "http://127.0.0.1:" + std::to_string(port); }

}  // namespace

bool EtcdServer::is_installed() { return base::find_program("etcd").ok(); }

EtcdServer::EtcdServer() : client_port_(base::reserve_port().value()), peer_port_(base::reserve_port().value()) {
  start();
}

void EtcdServer::start() {
  // Times of a cluster on one host: it elects itself at once.
  auto process = base::Process::start(
      {.arguments = {"etcd", "--data-dir", folder_ / "data", "--listen-client-urls", url(client_port_.port),
                     "--advertise-client-urls", url(client_port_.port), "--listen-peer-urls", url(peer_port_.port),
                     "--initial-advertise-peer-urls", url(peer_port_.port), "--initial-cluster",
                     "default=" + url(peer_port_.port), "--heartbeat-interval", "20", "--election-timeout", "100"},
       .standard_output = base::Stream::null(),
       .standard_error = base::Stream::file(folder_ / "log")});
  if (!process) throw std::runtime_error(process.error().describe());
  process_ = std::make_unique<base::Process>(std::move(*process));
  EtcdClient client({.host = "127.0.0.1", .port = client_port_.port, .family = Family::kV4});
  if (const auto answer = client.call("/v3/kv/range", one_key("x")); !answer) {
    const auto log = base::read_file(folder_ / "log");
    throw std::runtime_error(answer.error().describe() + "\n" + (log ? *log : ""));
  }
}

long long EtcdServer::num_keys() const {
  EtcdClient client({.host = "127.0.0.1", .port = client_port_.port, .family = Family::kV4});
  auto request = all_keys_under("cohort/");
  request["count_only"] = true;
  const auto answer = client.call("/v3/kv/range", request);
  if (!answer) throw std::runtime_error(answer.error().describe());
  return number_at(*answer, "count");
}

}  // namespace cohort::store
