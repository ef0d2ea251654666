#include "cohort/comm/start/rendezvous.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <optional>
#include <thread>

#include "cohort/base/net/interfaces.h"
#include "cohort/base/net/port.h"
#include "cohort/base/process/lock_file.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/start/membership_check.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/job/store_address.h"

namespace cohort::comm {
namespace {

using base::IpFamily;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using std::chrono::milliseconds;

constexpr milliseconds kPauseBeforeAnotherTry{20};

// The prefixes are Python's.
constexpr const char* kJobPrefix = "default_pg";
constexpr const char* kDefaultGroupPrefix = "0/";

std::string who(const RendezvousPlan& plan) { return fmt::format("rank {} of {}", plan.rank, plan.world_size); }

c10d::TCPStoreOptions store_options(const RendezvousPlan& plan, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = plan.port;
  options.numWorkers = plan.world_size;
  options.timeout = timeout;
  options.multiTenant = true;
  options.useLibUV = plan.use_libuv;
  return options;
}

IpFamily checked_family() { return or_throw_value(base::forced_ip_family()); }

StorePtr join_store(const RendezvousPlan& plan, milliseconds timeout) {
  const auto end = base::deadline_after(timeout);
  const auto left = [&] { return base::time_left(end); };
  for (;;) {
    const auto address = job::find_store({.host = plan.host,
                                          .port = plan.port,
                                          .family = checked_family(),
                                          .timeout = left(),
                                          .who = who(plan),
                                          .source = plan.source});
    if (!address) throw_error<c10::DistNetworkError>(address.error());
    try {
      // c10d rounds to whole seconds, and 0 would mean no limit.
      auto options = store_options(plan, std::max(left(), milliseconds(1000)));
      return c10::make_intrusive<c10d::TCPStore>(*address, options);
    } catch (const c10::DistNetworkError&) {
      // The store has ended since it was found. A group's store does so if its rank 0 goes on to the next one.
      if (left() <= kPauseBeforeAnotherTry) throw;
      std::this_thread::sleep_for(kPauseBeforeAnotherTry);
    }
  }
}

// Called if the port is taken. If a store with a rank 0 has it, two processes have rank 0.
void refuse_if_second_host(const RendezvousPlan& plan, const std::string& own_address, IpFamily family) {
  const job::StoreSearch search{.host = own_address,
                                .port = plan.port,
                                .family = family,
                                .timeout = milliseconds(500),
                                .who = who(plan),
                                .source = plan.source};
  if (!job::find_store(search)) return;
  std::optional<Failure> refusal;
  try {
    auto options = store_options(plan, milliseconds(5000));
    options.waitWorkers = false;
    const auto store = c10::make_intrusive<c10d::TCPStore>(own_address, options);
    refusal = refuse_second_host(c10::make_intrusive<c10d::PrefixStore>(
        kDefaultGroupPrefix, c10::make_intrusive<c10d::PrefixStore>(kJobPrefix, store)));
  } catch (const std::exception&) {
    return;  // the store has ended meanwhile; the caller reports who had the port
  }
  if (refusal) throw_failure(*refusal);
}

[[noreturn]] void cannot_host(const RendezvousPlan& plan, const std::string& engine_text) {
  const auto use = base::look_up_port(plan.port);
  std::string cause = base::first_line(engine_text);
  std::string hint = "choose another port in " + plan.source + ", the same on every rank";
  if (use.holder) {
    cause = fmt::format("pid {} listens on it: {}", use.holder->pid, use.holder->command);
    hint = "end that process, or " + hint;
  } else if (use.is_listened_on) {
    cause = "the system does not show who listens on it: a process of another user or container";
  }
  C10_THROW_ERROR(
      DistNetworkError,
      fmt::format("[cohort] {} on {} cannot host the store: port {} {}\n  caused by: {}\n  hint: {}", who(plan),
                  base::host_name(), plan.port, use.is_listened_on ? "is in use" : "cannot be opened", cause, hint));
}

StorePtr host_store(const RendezvousPlan& plan, milliseconds timeout, Attendance attendance) {
  const auto family = checked_family();
  const auto addresses = base::resolve(plan.host, family);
  if (base::lacks_family(plan.host, family)) {
    throw_error<c10::ValueError>(
        base::Error(addresses.error())
            .with_hint("unset COHORT_IP_FAMILY, or give an address of that family in " + plan.source),
        fmt::format("{} on {} cannot host the store", who(plan), base::host_name()));
  }
  // The client connects without the host name: wherever that leads, the server is here.
  const auto own =
      base::choose_own_address(addresses ? *addresses : std::vector<std::string>{}, family, base::list_interfaces());
  TORCH_CHECK_VALUE(!own.empty(), "[cohort] COHORT_IP_FAMILY=", family == IpFamily::kV4 ? 4 : 6,
                    ": this host has no such address\n",
                    "  hint: this host's interfaces: ", base::describe_interfaces(base::list_interfaces()));
  auto options = store_options(plan, timeout);
  options.isServer = true;
  options.waitWorkers = attendance == Attendance::kStore;
  try {
    return c10::make_intrusive<c10d::TCPStore>(own, options);
  } catch (const c10::DistNetworkError& error) {
    refuse_if_second_host(plan, own, family);
    cannot_host(plan, error.what_without_backtrace());
  }
}

// A rank needs milliseconds to leave. A rank that is stopped during its turn must not hold up the others for ever.
constexpr std::chrono::seconds kTimeToLeave{30};

struct LeavingTurn {
  std::optional<base::LockFile> lock;
};

// c10d counts ranks that leave in two steps: if two ranks leave at once, neither may find itself the last, and the file stays and
// stops the next run. So ranks leave in turn. The turn is a base class before the store, so it ends after the store's destructor.
class FileStoreLeftInTurn final : private LeavingTurn, public c10d::FileStore {
 public:
  FileStoreLeftInTurn(const std::string& path, int num_workers) : c10d::FileStore(path, num_workers) {}
  ~FileStoreLeftInTurn() override {
    if (auto turn = base::LockFile::take(getPath() + ".leaving", kTimeToLeave)) lock.emplace(std::move(*turn));
  }
};

}  // namespace

StorePtr meet(const RendezvousPlan& plan, milliseconds timeout, Attendance attendance) {
  StorePtr store;
  if (plan.kind == RendezvousPlan::Kind::kFile) {
    store = c10::make_intrusive<FileStoreLeftInTurn>(plan.path, plan.world_size);
  } else {
    store = plan.hosts_store ? host_store(plan, timeout, attendance) : join_store(plan, timeout);
  }
  store->setTimeout(timeout);
  return c10::make_intrusive<c10d::PrefixStore>(kJobPrefix, store);
}

std::string unreachable_master_note(const RendezvousPlan& plan) {
  const auto addresses = base::resolve(plan.host, IpFamily::kAny);
  if (!addresses) return addresses.error().message();
  const auto interfaces = base::list_interfaces();
  const bool leads_here = std::any_of(addresses->begin(), addresses->end(),
                                      [&](const auto& address) { return base::is_own_address(address, interfaces); });
  if (leads_here) return {};
  return fmt::format("{} resolves to {}, which is not an address of this host: {}", plan.host,
                     base::join(*addresses, ", "), base::describe_interfaces(interfaces));
}

}  // namespace cohort::comm
