#include "tests/store/etcd_server.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cohort/store/etcd/etcd_keys.h"
#include "cohort/store/stream/socket.h"
#include "tests/store/times.h"

namespace cohort::store {
bool EtcdServer::is_installed() { return base::find_program("etcd").ok(); }

EtcdServer::EtcdServer(std::optional<EtcdTls> tls)
    : tls_(std::move(tls)), client_port_(base::reserve_port().value()), peer_port_(base::reserve_port().value()) {
  start();
}

std::vector<std::string> EtcdServer::command() const {
  const auto url = (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(client_port_.port);
  const auto peer_url = "http://127.0.0.1:" + std::to_string(peer_port_.port);
  // Times of a cluster on one host: it elects itself at once.
  std::vector<std::string> words = {"etcd",
                                    "--data-dir",
                                    folder_ / "data",
                                    "--listen-client-urls",
                                    url,
                                    "--advertise-client-urls",
                                    url,
                                    "--listen-peer-urls",
                                    peer_url,
                                    "--initial-advertise-peer-urls",
                                    peer_url,
                                    "--initial-cluster",
                                    "default=" + peer_url,
                                    "--heartbeat-interval",
                                    "20",
                                    "--election-timeout",
                                    "100"};
  if (!tls_) return words;
  for (const auto& word : {"--cert-file=" + tls_->files.certificate_file, "--key-file=" + tls_->files.key_file}) {
    words.push_back(word);
  }
  if (tls_->asks_for_certificates) words.push_back("--client-cert-auth");
  if (tls_->asks_for_certificates) words.push_back("--trusted-ca-file=" + tls_->files.ca_file);
  return words;
}

EtcdClient::Options EtcdServer::client_options() const {
  return {.host = "127.0.0.1", .port = client_port_.port, .family = base::IpFamily::kV4};
}

void EtcdServer::start() {
  auto process = base::Process::start({.arguments = command(),
                                       .standard_output = base::Stream::null(),
                                       .standard_error = base::Stream::file(folder_ / "log")});
  if (!process) throw std::runtime_error(process.error().describe());
  process_ = std::make_unique<base::Process>(std::move(*process));
  std::optional<base::Error> problem;
  if (tls_) {
    if (auto there = connect_to("127.0.0.1", port(), kHangLimit, base::IpFamily::kV4); !there) problem = there.error();
  } else if (auto answer = EtcdClient(client_options()).call("/v3/kv/range", one_key("x")); !answer) {
    problem = answer.error();
  }
  if (!problem) return;
  const auto log = base::read_file(folder_ / "log");
  throw std::runtime_error(problem->describe() + "\n" + (log ? *log : ""));
}

long long EtcdServer::num_keys() const {
  EtcdClient client(client_options());
  auto request = all_keys_under("cohort/");
  request["count_only"] = true;
  const auto answer = client.call("/v3/kv/range", request);
  if (!answer) throw std::runtime_error(answer.error().describe());
  return number_at(*answer, "count");
}

}  // namespace cohort::store
