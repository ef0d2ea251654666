#include "cohort/rendezvous/meeting_place.h"

#include <fmt/format.h>
#include <algorithm>
#include <random>
#include <thread>

#include "cohort/base/log/log.h"
#include "cohort/base/net/address.h"
#include "cohort/base/net/interfaces.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/env.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/rendezvous/environment/own_host.h"
#include "cohort/rendezvous/environment/scheduler_environment.h"
#include "cohort/store/etcd/etcd_store.h"
#include "cohort/store/file/file_store.h"
#include "cohort/store/tcp/tcp_client.h"
#include "cohort/store/tcp/token.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using base::Result;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kOneTry{1000};
constexpr milliseconds kShortestTry{100};
constexpr milliseconds kPatience = std::chrono::seconds(5);

// Returns "10.0.0.1 or node0", for users who need another name than the one they gave.
std::string names_for_others() {
  std::vector<std::string> names;
  for (const auto& address : base::own_addresses()) {
    if (!base::is_loopback(address) && !base::is_link_local(address)) names.push_back(address);
  }
  names.push_back(base::host_name());
  return base::join(names, " or ");
}

// Removes hints, because the caller has a better one.
Error without_hints(const Error& error) {
  Error bare(error.message());
  return error.cause() ? std::move(bare).caused_by(without_hints(*error.cause())) : bare;
}

std::string root_cause(const Error& error) { return error.cause() ? root_cause(*error.cause()) : error.message(); }

bool is_in_use(const Error& error) {
  for (const auto* each = &error; each; each = each->cause()) {
    if (each->message().find("EADDRINUSE") != std::string::npos) return true;
  }
  return false;
}

// A time that differs between processes, so that two do not block each other again.
milliseconds short_try() {
  static std::mt19937 random{std::random_device{}()};
  return milliseconds(std::uniform_int_distribution<int>(50, 250)(random));
}

}  // namespace

Result<std::unique_ptr<MeetingPlace>> MeetingPlace::open(const Settings& settings) {
  std::unique_ptr<MeetingPlace> place(new MeetingPlace(settings));
  place->port_ = settings.port;
  if (settings.backend == Settings::Backend::kEtcd || settings.backend == Settings::Backend::kFile) return place;
  auto token = store::find_token(settings.token_file);
  if (!token) return token.error();
  place->token_ = std::move(*token);
  if (auto chosen = place->choose_role(); !chosen) return chosen.error();
  return place;
}

Result<void> MeetingPlace::choose_role() {
  const bool is_static = settings_.backend == Settings::Backend::kStatic;
  const auto resolved = base::resolve(settings_.host, settings_.family);
  const auto where = find_place(settings_.host, resolved ? *resolved : std::vector<std::string>(), own_host());
  is_here_ = where == Place::kHere;
  const bool is_told = is_static || settings_.is_host;
  // A loopback address means every host, so the rank of this node decides. A name or address of this host is enough.
  const bool is_other = is_static           ? settings_.node_rank != 0
                        : settings_.is_host ? !*settings_.is_host
                                            : is_later_node();
  is_lost_guest_ = is_other && (where == Place::kLoopback || where == Place::kForeignName);
  if (is_told) return is_other ? Result<void>() : host();
  if (where == Place::kElsewhere || is_lost_guest_) return {};
  if (where == Place::kForeignName) {
    return Error(fmt::format("--rdzv-endpoint={} is not this host's name ({}), but means a loopback address here ({})",
                             settings_.host, base::host_name(), base::join(*resolved, ", ")))
        .with_hint(
            "give the address of the node that should host the rendezvous; on that node itself --rdzv-conf is_host=1 "
            "works too");
  }
  if (where == Place::kLoopback) {
    doubt_ =
        fmt::format("--rdzv-endpoint={} means each host itself: on other hosts give {}", name(), names_for_others());
  }
  return host();
}

bool MeetingPlace::is_later_node() const {
  const auto scheduler = read_scheduler(base::environment());
  return settings_.is_other_node || (scheduler && scheduler->node_rank.value_or(0) > 0);
}

store::TcpServerOptions MeetingPlace::server_options() const {
  store::TcpServerOptions options;
  options.host = settings_.bind;
  // Others may use another name for this host, so it listens on all interfaces, unless there are no other nodes.
  if (options.host.empty() && settings_.max_nodes == 1 && !is_here_) options.host = loopback();
  options.port = settings_.port;
  options.family = settings_.family;
  options.token = token_;
  return options;
}

std::string MeetingPlace::loopback() const { return settings_.family == base::IpFamily::kV6 ? "::1" : "127.0.0.1"; }

// With the endpoint's name this host learns which address the others see. If that name is not its own, any address will do.
std::string MeetingPlace::host_to_ask() const {
  if (!server_ || is_here_) return settings_.host;
  return settings_.bind.empty() ? loopback() : settings_.bind;
}

Result<void> MeetingPlace::host() {
  const auto options = server_options();
  auto server = store::TcpServer::start(options);
  if (!server) {
    // Another agent of this job on this host may host it.
    const bool may_be_guest = settings_.backend == Settings::Backend::kC10d && !settings_.is_host;
    is_passed_over_ = may_be_guest && is_in_use(server.error());
    if (is_passed_over_) return {};
    return Error(fmt::format("the rendezvous cannot be hosted at {}", name())).caused_by(server.error());
  }
  is_passed_over_ = false;
  server_ = std::move(*server);
  port_ = server_->port();
  base::log_info(fmt::format("this node hosts the rendezvous at {} and listens on {}", name(),
                             options.host.empty() ? "all interfaces" : options.host));
  return {};
}

std::string MeetingPlace::name() const {
  if (settings_.backend == Settings::Backend::kFile) return settings_.path;
  return base::host_and_port(settings_.host, port_);
}

Result<std::unique_ptr<store::Store>> MeetingPlace::connect(milliseconds timeout, const std::atomic<bool>& stops) {
  const auto begin = Clock::now();
  // The first node may be another agent on this host that starts a little later.
  if (is_lost_guest_) timeout = std::min(timeout, kPatience);
  bool was_said = false;
  while (true) {
    const auto tried_at = Clock::now();
    const auto left = base::time_left(base::deadline_after(timeout, begin), tried_at);
    auto client = connect_once(std::clamp(left, milliseconds(1), is_passed_over_ ? short_try() : kOneTry));
    if (client || store::is_refusal(client.error()) || store::is_tls_hopeless(client.error())) return client;
    // Two agents that started at once may have blocked each other, one on IPv4 and one on IPv6, and both have given up the port.
    if (is_passed_over_) {
      if (auto hosted = host(); !hosted) return hosted.error();
    }
    const auto elapsed = Clock::now() - begin;
    const bool is_file = settings_.backend == Settings::Backend::kFile;
    if (stops || is_file || left <= kOneTry) {
      if (is_lost_guest_) return lost_guest(client.error());
      if (is_file) return client.error();
      return Error(fmt::format("no rendezvous store answered at {} within {}", name(), base::format_duration(elapsed)))
          .caused_by(without_hints(client.error()))
          .with_hint(
              "see whether the node that hosts it was started, whether --rdzv-endpoint is the same on every node, and "
              "whether a firewall is in the way");
    }
    if (!was_said && elapsed >= kRendezvousSilence) {
      base::log_warning(fmt::format("no rendezvous store answers at {} yet ({}); trying for {} more", name(),
                                    root_cause(client.error()), base::format_duration(left)));
      was_said = true;
    }
    // Something other than a store answers at once, each time.
    std::this_thread::sleep_until(tried_at + kShortestTry);
  }
}

Result<std::unique_ptr<store::Store>> MeetingPlace::connect_once(milliseconds timeout) {
  if (settings_.backend == Settings::Backend::kFile) return open_file();
  return settings_.backend == Settings::Backend::kEtcd ? connect_to_etcd(timeout) : connect_to_server(timeout);
}

milliseconds MeetingPlace::answer_timeout() const { return std::min(settings_.read_timeout, settings_.lost_after()); }

void MeetingPlace::allow_silence(milliseconds time) {
  patience_->extend(time, [time, name = name(), usual = answer_timeout()] {
    base::log_warning(fmt::format(
        "the rendezvous store at {} has not answered for {}; the agent that hosts it may be stopped. This node's "
        "workers have ended with 0, so it waits for the other nodes, for {} more",
        name, base::format_duration(usual), base::format_duration(time - usual)));
  });
}

Result<std::unique_ptr<store::Store>> MeetingPlace::connect_to_server(milliseconds timeout) {
  store::TcpClientOptions options;
  options.host = host_to_ask();
  options.port = port_;
  options.family = settings_.family;
  options.token = token_;
  options.answer_timeout = answer_timeout();
  options.patience = patience_;
  options.timeout = timeout;
  auto client = store::TcpClient::connect(options);
  if (!client) return client.error();
  own_address_ = (*client)->own_address();
  store_address_ = (*client)->server_address();
  (*client)->set_timeout(options.answer_timeout);
  return std::unique_ptr<store::Store>(std::move(*client));
}

Result<std::unique_ptr<store::Store>> MeetingPlace::connect_to_etcd(milliseconds timeout) {
  store::EtcdStoreOptions options;
  options.host = settings_.host;
  options.port = port_;
  options.family = settings_.family;
  options.job = settings_.run_id;
  options.timeout = settings_.read_timeout;
  options.retry_time = timeout;
  if (settings_.is_https.value_or(false)) options.tls = settings_.tls;
  auto client = store::EtcdStore::connect(options);
  if (!client) return client.error();
  own_address_ = base::address_towards(settings_.host, port_, settings_.family);
  return std::unique_ptr<store::Store>(std::move(*client));
}

Result<std::unique_ptr<store::Store>> MeetingPlace::open_file() {
  store::FileStoreOptions options;
  options.path = settings_.path;
  options.num_workers = 0;
  options.timeout = settings_.read_timeout;
  auto file = store::FileStore::open(options);
  if (!file) return file.error();
  own_address_ = base::reachable_address(settings_.family);
  return std::unique_ptr<store::Store>(std::move(*file));
}

Error MeetingPlace::lost_guest(const Error& cause) const {
  const bool is_static = settings_.backend == Settings::Backend::kStatic;
  const auto* flag = is_static ? "--master-addr" : "--rdzv-endpoint";
  return Error(fmt::format("{}={} means this host itself ({}), but another node hosts the rendezvous, and "
                           "nothing listens here",
                           flag, is_static ? settings_.host : name(), base::host_name()))
      .caused_by(without_hints(cause))
      .with_hint(fmt::format("give {} the name or address of the first node, on every node", flag));
}

Error MeetingPlace::lost(const Error& cause) const {
  if (settings_.backend == Settings::Backend::kFile) {
    return Error(fmt::format("the rendezvous' file {} can no longer be used", name())).caused_by(cause);
  }
  if (settings_.backend == Settings::Backend::kEtcd) {
    return Error(fmt::format("etcd at {} does not answer", name())).caused_by(cause);
  }
  return Error(fmt::format("the rendezvous store at {} is gone", name()))
      .caused_by(without_hints(cause))
      .with_hint(
          "see why the agent that hosts it has ended or cannot be reached, and start the job again; with "
          "--rdzv-backend=etcd a job outlives its first node");
}

}  // namespace cohort::rendezvous
