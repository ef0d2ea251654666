#include "cohort/job/peer.h"

#include <unistd.h>

#include <map>
#include <sstream>

#include "cohort/base/system/host.h"
#include "cohort/base/system/process_state.h"
#include "cohort/base/text/text.h"

namespace cohort::job {
namespace {

std::string own_pid_scope() { return base::boot_id() + "/" + base::namespace_of("/proc/self/ns/pid"); }

int to_int(const std::string& text) { return static_cast<int>(base::parse_int(text).value_or(0)); }

}  // namespace

Peer this_process() {
  Peer peer;
  peer.pid = getpid();
  peer.host = base::host_name();
  peer.pid_scope = own_pid_scope();
  peer.network_scope = base::boot_id() + "/" + base::namespace_of("/proc/self/ns/net");
  peer.started_at = base::read_process_state(peer.pid).started_at;
  return peer;
}

std::string encode(const Peer& peer) {
  std::ostringstream out;
  out << "pid " << peer.pid << "\nhost " << peer.host << "\npid_scope " << peer.pid_scope << "\nstarted_at "
      << peer.started_at << "\nnetwork_scope " << peer.network_scope << "\nworld_size " << peer.world_size
      << "\nstart_count " << peer.start_count;
  if (!peer.addresses.empty()) out << "\naddresses " << base::join(peer.addresses, ",");
  if (!peer.interfaces.empty()) out << "\ninterfaces " << peer.interfaces;
  if (!peer.accelerator.empty()) out << "\naccelerator " << peer.accelerator;
  if (!peer.shm_scope.empty()) out << "\nshm_scope " << peer.shm_scope;
  if (!peer.shm_obstacle.empty()) out << "\nshm_obstacle " << peer.shm_obstacle;
  return out.str();
}

Peer decode_peer(const std::vector<uint8_t>& bytes) {
  std::map<std::string, std::string> values;
  for (const auto& line : base::split(std::string(bytes.begin(), bytes.end()), '\n')) {
    const auto space = line.find(' ');
    if (space != std::string::npos) values[line.substr(0, space)] = line.substr(space + 1);
  }
  Peer peer;
  peer.pid = to_int(values["pid"]);
  peer.host = values["host"];
  peer.pid_scope = values["pid_scope"];
  peer.started_at = values["started_at"];
  peer.network_scope = values["network_scope"];
  peer.world_size = to_int(values["world_size"]);
  peer.start_count = to_int(values["start_count"]);
  if (!values["addresses"].empty()) peer.addresses = base::split(values["addresses"], ',');
  peer.interfaces = values["interfaces"];
  peer.accelerator = values["accelerator"];
  peer.shm_scope = values["shm_scope"];
  peer.shm_obstacle = values["shm_obstacle"];
  return peer;
}

bool is_same_process(const Peer& a, const Peer& b) {
  return a.pid == b.pid && a.pid_scope == b.pid_scope && a.started_at == b.started_at;
}

bool is_seen_gone(const Peer& peer) {
  if (peer.pid_scope != own_pid_scope()) return false;
  const auto state = base::read_process_state(peer.pid);
  return state.is_gone_since(peer.started_at);
}

std::string describe_process(const Peer& peer) { return "pid " + std::to_string(peer.pid) + " on " + peer.host; }

}  // namespace cohort::job
