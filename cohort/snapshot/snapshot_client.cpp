#include "cohort/snapshot/snapshot_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "cohort/base/net/address.h"
#include "cohort/store/tcp/tcp_client.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

namespace {

constexpr uint64_t kShareAlignment = 64;
/// The time for telling the other ranks why this rank stopped waiting.
constexpr std::chrono::milliseconds kTellTime{5'000};

/// Returns the part of rank `index` of `count`.
std::pair<uint64_t, uint64_t> share_of(uint64_t total, int index, int count) {
  const auto ranks = static_cast<uint64_t>(count);
  const uint64_t part = (total / ranks + kShareAlignment) / kShareAlignment * kShareAlignment;
  const uint64_t begin = std::min(total, part * static_cast<uint64_t>(index));
  return {begin, std::min(part, total - begin)};
}

}  // namespace

Result<std::unique_ptr<SnapshotClient>> SnapshotClient::create(const Place& place, const std::string& name,
                                                               const RankWaitOptions& waits) {
  std::unique_ptr<SnapshotClient> client(new SnapshotClient(place, name, waits));
  Result<ServerConnection> server = ServerConnection::connect(place.server);
  if (!server) return server.error();
  client->server_.emplace(std::move(*server));
  const Result<base::IpFamily> family = base::forced_ip_family();
  if (!family) return family.error();
  auto store = store::TcpClient::connect({.host = place.store_host, .port = place.store_port, .family = *family});
  if (!store) return store.error();
  client->store_ = std::move(*store);
  client->thread_ = std::thread([raw = client.get()] { raw->run(); });
  return client;
}

SnapshotClient::~SnapshotClient() {
  {
    const std::lock_guard lock(mutex_);
    background_ = Background::kOver;
  }
  partner_.interrupt();
  if (store_) store_->interrupt();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<Finding> SnapshotClient::look() { return search_.look(*server_, *store_, prefix_); }

Result<void> SnapshotClient::settle(const Found* found) {
  for (auto& [id, file] : search_.own_files()) {
    const auto version = file.read(!is_copy_id(id));
    const bool is_chosen =
        found && version && version->world_size == found->choice.world_size && version->step == found->choice.step;
    for (int slot = 0; slot < 2; ++slot) {
      if (id == id_of(place_.rank, slot)) slots_.adopt(slot, file, is_chosen);
    }
    const bool is_older =
        found && version && version->world_size == found->choice.world_size && version->step < found->choice.step;
    if (place_.local_rank == 0 && !is_chosen && !is_older) file.invalidate();
  }
  search_.end();
  {
    const std::lock_guard lock(mutex_);
    complete_step_ = found ? std::optional(found->choice.step) : std::nullopt;
  }
  return waits_.meet(*store_, key("settled"), [this, begin = Clock::now()] {
    return waits_.look_around(begin, "the other ranks to go on from the same memory snapshot");
  });
}

Result<Slot> SnapshotClient::begin(Version version, const std::string& meta) {
  if (Result<void> waited = wait(); !waited) return waited.error();
  version.rank = place_.rank;
  version.world_size = place_.world_size;
  version.first_rank = place_.first_rank();
  version.local_world_size = place_.local_world_size;
  version.num_meta_bytes = meta.size();
  std::tie(version.shared_begin, version.num_shared_bytes) =
      share_of(version.shared_total, place_.local_rank, place_.local_world_size);
  const auto parts = parts_of(version);
  if (!parts) return Error("the state is too large for a snapshot");
  if (Result<void> made = slots_.reserve(*server_, parts->end); !made) {
    tell_failure(made.error());
    return made.error();
  }
  VersionFile& file = slots_.next();
  file.begin(version, meta);
  written_ = version;
  return Slot{file.own(version), file.shared(version), version.shared_begin};
}

void SnapshotClient::commit() {
  slots_.next().commit();
  start_background();
}

void SnapshotClient::start_background() {
  {
    const std::lock_guard lock(mutex_);
    background_ = Background::kBusy;
  }
  changed_.notify_all();
}

// Tells the other ranks, which wait for this rank or soon will.
void SnapshotClient::tell_failure(const Error& error) {
  failure_ = error.describe();
  start_background();
}

Result<void> SnapshotClient::wait() {
  const auto begin = Clock::now();
  std::optional<Clock::time_point> ended_at;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kFirstSlice, [this] { return background_ != Background::kBusy; })) {
    if (ended_at && Clock::now() - *ended_at > kTellTime) return *obstacle_;
    if (ended_at) continue;
    lock.unlock();
    const Result<void> looked =
        waits_.look_around(begin, fmt::format("the other ranks to finish a memory snapshot ({} of {} have)",
                                              waits_.num_come(), place_.world_size));
    lock.lock();
    if (looked) continue;
    obstacle_ = looked.error();
    ended_at = Clock::now();
  }
  if (error_) return *error_;
  return {};
}

void SnapshotClient::abandon() { slots_.next().invalidate(); }

std::optional<int64_t> SnapshotClient::complete_step() {
  const std::lock_guard lock(mutex_);
  return complete_step_;
}

void SnapshotClient::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return background_ != Background::kIdle; });
    if (background_ == Background::kOver) return;
    lock.unlock();
    const Result<void> finished = finish(written_);
    lock.lock();
    if (!finished && !error_) error_ = finished.error();
    if (background_ == Background::kBusy) background_ = Background::kIdle;
    changed_.notify_all();
  }
}

// The caller of begin() and commit() touches none of this before wait() has returned.
Result<void> SnapshotClient::finish(const Version& version) {
  if (failure_) {
    (void)store_->set(key("failure"), fmt::format("rank {}: {}", place_.rank, *failure_));
    (void)agree(kCannotGoOn);
    return give_back(*failure_);
  }
  if (place_.num_nodes > 1) {
    partner_.send(*server_, search_.where(partner_.node()), slots_.next(), version, slots_.next_slot());
  }
  const Result<bool> agreed = agree(static_cast<int64_t>(version.shared_layout & 0x7FFFFFFF));
  if (!agreed) return agreed.error();
  if (!*agreed) {
    slots_.next().invalidate();
    shares_ = false;
    return {};
  }
  slots_.turn();
  {
    const std::lock_guard lock(mutex_);
    complete_step_ = version.step;
  }
  if (place_.local_rank != 0 || std::exchange(has_dropped_, true)) return {};
  return drop_stale(version.step);
}

Result<void> SnapshotClient::look_in_background(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (background_ == Background::kOver) return Error("interrupted");
    if (obstacle_) return *obstacle_;
  }
  const Result<int64_t> sum = store_->add(name + "/layouts", 0);
  if (!sum) return sum.error();
  if (*sum >= kCannotGoOn) return Error("another rank cannot go on");
  return {};
}

// Waits until all ranks have arrived here. Returns false if their replicated bytes differ.
Result<bool> SnapshotClient::agree(int64_t layout) {
  const std::string name = key(std::to_string(sequence_));
  if (const auto sum = store_->add(name + "/layouts", layout); !sum) return sum.error();
  const Result<void> met = waits_.meet(*store_, name, [&] { return look_in_background(name); });
  const auto sum = store_->add(name + "/layouts", 0);
  if (!met && (!sum || *sum < kCannotGoOn)) return end_meeting(name, met.error());
  if (!sum) return sum.error();
  if (*sum >= kCannotGoOn && layout != kCannotGoOn) {
    const auto why = store_->get(key("failure"));
    const std::string text = why ? *why : "another rank cannot go on";
    const auto ends = store_->check({key("ends")});
    return ends && *ends ? described_error(text) : give_back(text);
  }
  // No rank waits for the previous keys any more.
  if (place_.rank == 0 && sequence_ > 0) {
    const std::string former = key(std::to_string(sequence_ - 1));
    for (const char* suffix : {"/layouts", "/num_members", "/last_member", "/waiting"})
      (void)store_->delete_key(former + suffix);
  }
  ++sequence_;
  return *sum == layout * place_.world_size;
}

// Tells the others, which may wait for this rank, unless it is about to end or has lost the store. If an obstacle has ended the
// wait, training ends, and the next start of the run goes on from the kept versions.
Error SnapshotClient::end_meeting(const std::string& name, const Error& why) {
  bool ends = false;
  {
    const std::lock_guard lock(mutex_);
    if (background_ == Background::kOver) return why;
    ends = obstacle_.has_value();
  }
  if (ends && !store_->set(key("ends"), "")) return why;
  if (!store_->set(key("failure"), why.describe())) return why;
  (void)store_->add(name + "/layouts", kCannotGoOn);
  return ends ? why : give_back(why.describe());
}

// Deletes the kept versions: training goes on and they grow old, so no rank should go on from them.
Error SnapshotClient::give_back(const std::string& why) {
  slots_.drop(*server_);
  if (place_.local_rank == 0) {
    const Result<std::vector<StoredFile>> files = server_->take_all();
    for (size_t i = 0; files && i < files->size(); ++i) (void)server_->drop((*files)[i].id);
  }
  return described_error(why);
}

// Deletes files of runs with other ranks on this node, and copies of ranks whose partner is another node now.
Result<void> SnapshotClient::drop_stale(int64_t step) {
  Result<std::vector<StoredFile>> files = server_->take_all();
  if (!files) return files.error();
  std::set<int> copied;
  std::vector<std::string> own;
  for (int i = 0; i < place_.local_world_size; ++i) {
    for (int slot = 0; slot < 2; ++slot) own.push_back(id_of(place_.first_rank() + i, slot));
  }
  for (const StoredFile& file : *files) {
    const auto opened = is_copy_id(file.id) ? VersionFile::open(file.fd, file.size) : Result<VersionFile>(Error(""));
    const auto version = opened ? opened->read(/*has_shared=*/false) : std::nullopt;
    if (version && version->world_size == place_.world_size && version->step >= step) copied.insert(version->rank);
  }
  for (const StoredFile& file : *files) {
    bool is_used = std::find(own.begin(), own.end(), file.id) != own.end();
    for (const int rank : copied) is_used = is_used || file.id == copy_id(rank, 0) || file.id == copy_id(rank, 1);
    if (is_used) continue;
    if (Result<void> dropped = server_->drop(file.id); !dropped) return dropped;
  }
  return {};
}

}  // namespace cohort::snapshot
