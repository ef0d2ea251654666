#include "cohort/vault/keeper.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "cohort/base/address.h"
#include "cohort/store/tcp_client.h"
#include "cohort/vault/memory_room.h"

namespace cohort::vault {

using base::Error;
using base::Result;

namespace {

/// Files grow by more than is asked for, as descriptions vary a little in length.
constexpr uint64_t kSpareBytes = uint64_t{64} << 10;
constexpr uint64_t kShareAlignment = 64;

/// The part of rank `index` of `count`.
std::pair<uint64_t, uint64_t> share_of(uint64_t total, int index, int count) {
  const auto ranks = static_cast<uint64_t>(count);
  const uint64_t part = (total / ranks + kShareAlignment) / kShareAlignment * kShareAlignment;
  const uint64_t begin = std::min(total, part * static_cast<uint64_t>(index));
  return {begin, std::min(part, total - begin)};
}

}  // namespace

Result<std::unique_ptr<Keeper>> Keeper::create(const Place& place, const std::string& name, const KeeperWaits& waits) {
  std::unique_ptr<Keeper> keeper(new Keeper(place, name, waits));
  Result<VaultClient> vault = VaultClient::connect(place.vault);
  if (!vault) return vault.error();
  keeper->vault_.emplace(std::move(*vault));
  const Result<base::IpFamily> family = base::forced_ip_family();
  if (!family) return family.error();
  auto store = store::TcpClient::connect({.host = place.store_host, .port = place.store_port, .family = *family});
  if (!store) return store.error();
  keeper->store_ = std::move(*store);
  keeper->thread_ = std::thread([raw = keeper.get()] { raw->run(); });
  return keeper;
}

Keeper::~Keeper() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    if (partner_socket_ >= 0) ::shutdown(partner_socket_, SHUT_RDWR);
  }
  if (store_) store_->interrupt();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<void> Keeper::read_own_vault() {
  Result<std::vector<HeldFile>> files = vault_->take_all();
  if (!files) return files.error();
  own_vault_.clear();
  for (const HeldFile& file : *files) {
    Result<GenerationFile> opened = GenerationFile::open(file.fd, file.size);
    if (opened) own_vault_.emplace_back(file.id, std::move(*opened));
  }
  return {};
}

Result<void> Keeper::exchange_lists() {
  if (place_.local_rank == 0) {
    const Result<std::string> where = vault_->where();
    if (!where) return where.error();
    std::vector<Held> held;
    for (const auto& [id, file] : own_vault_) {
      if (const auto generation = file.read(!is_copy_id(id))) {
        held.push_back({.id = id, .size = file.size(), .generation = *generation});
      }
    }
    const std::string text = *where + "\n" + list_in_text(held);
    if (Result<void> set = store_->set(key(fmt::format("node/{}", place_.node)), text); !set) return set;
  }
  store::Store::Keys keys;
  for (int node = 0; node < place_.num_nodes; ++node) keys.push_back(key(fmt::format("node/{}", node)));
  if (Result<void> waited = await(keys); !waited) return waited;
  const Result<store::Store::Values> texts = store_->multi_get(keys);
  if (!texts) return texts.error();
  all_.clear();
  where_.clear();
  for (size_t node = 0; node < texts->size(); ++node) {
    const std::string& text = (*texts)[node];
    const size_t end = text.find('\n');
    Result<std::vector<Held>> held =
        parse_list(end == std::string::npos ? "" : text.substr(end + 1), static_cast<int>(node));
    if (!held) return held.error();
    where_.push_back(text.substr(0, end));
    all_.insert(all_.end(), held->begin(), held->end());
  }
  return {};
}

Result<Finding> Keeper::look() {
  if (Result<void> read = read_own_vault(); !read) return read.error();
  if (Result<void> exchanged = exchange_lists(); !exchanged) return exchanged.error();
  Finding look;
  const auto choice = choose(all_, place_.world_size, &look.why_not);
  if (!choice) return look;
  look.found = Found{.choice = *choice};
  if (Result<void> fetched = fetch(*look.found); !fetched) return fetched.error();
  return look;
}

Result<void> Keeper::fetch(Found& found) {
  found.is_same_world = found.choice.world_size == place_.world_size;
  const int wanted = found.is_same_world || place_.rank < found.choice.world_size ? place_.rank : 0;
  const Held* own = find_own(all_, found.choice, wanted, place_.node);
  for (int rank = 0; !own && rank < found.choice.world_size; ++rank)
    own = find_own(all_, found.choice, rank, place_.node);
  if (!own) return Error(fmt::format("the snapshot of step {} has vanished", found.choice.step));
  const GenerationParts parts = *parts_of(own->generation);
  const auto head = bytes_from(*own, parts.meta, own->generation.num_meta_bytes, found);
  if (!head) return head.error();
  found.meta.assign(reinterpret_cast<const char*>(head->data()), head->size());
  const auto bytes = bytes_from(*own, parts.own, own->generation.num_own_bytes, found);
  if (!bytes) return bytes.error();
  found.own = *bytes;
  if (own->generation.shared_total == 0) return {};
  for (const Held* held : find_shared(all_, found.choice, place_.node)) {
    const auto share = bytes_from(*held, parts_of(held->generation)->shared, held->generation.num_shared_bytes, found);
    if (!share) return share.error();
    if (held->generation.shared_layout != own->generation.shared_layout) {
      return Error(fmt::format("the snapshots of step {} do not fit together", found.choice.step));
    }
    found.shares.push_back({held->generation.shared_begin, *share});
  }
  return {};
}

// Mapped if it is in this node's vault, else fetched.
Result<std::span<const std::byte>> Keeper::bytes_from(const Held& held, uint64_t offset, uint64_t size, Found& found) {
  if (held.node == place_.node) {
    const auto file =
        std::find_if(own_vault_.begin(), own_vault_.end(), [&](const auto& f) { return f.first == held.id; });
    if (file == own_vault_.end() || offset + size > file->second.size()) {
      return Error(fmt::format("the snapshot of step {} has vanished", found.choice.step));
    }
    found.mapped.push_back(file->second.memory());
    return std::span<const std::byte>(file->second.bytes().subspan(offset, size));
  }
  found.from_node = held.node;
  const Result<RemoteVault*> vault = remote(held.node);
  if (!vault) return vault.error();
  if (Result<void> checked = check_memory_room(size); !checked) return checked.error();
  std::vector<std::byte> bytes(size);
  if (size > 0) {
    if (Result<void> read = (*vault)->read(held.id, offset, bytes); !read) return read.error();
  }
  found.fetched.push_back(std::move(bytes));
  return std::span<const std::byte>(found.fetched.back());
}

Result<RemoteVault*> Keeper::remote(int node) {
  for (auto& [number, vault] : remotes_) {
    if (number == node) return &vault;
  }
  Result<RemoteVault> vault = RemoteVault::connect(*vault_, {place_.node, node}, where_[static_cast<size_t>(node)]);
  if (!vault) return Error(fmt::format("cannot fetch a snapshot from node {}", node)).caused_by(vault.error());
  remotes_.emplace_back(node, std::move(*vault));
  return &remotes_.back().second;
}

Result<void> Keeper::settle(const Found* found) {
  for (auto& [id, file] : own_vault_) {
    const auto generation = file.read(!is_copy_id(id));
    const bool is_chosen = found && generation && generation->world_size == found->choice.world_size &&
                           generation->step == found->choice.step;
    for (int slot = 0; slot < 2; ++slot) {
      if (id != id_of(place_.rank, slot)) continue;
      files_[slot] = file;
      if (is_chosen) complete_slot_ = slot;
    }
    const bool is_older = found && generation && generation->world_size == found->choice.world_size &&
                          generation->step < found->choice.step;
    if (place_.local_rank == 0 && !is_chosen && !is_older) file.invalidate();
  }
  own_vault_.clear();
  remotes_.clear();
  has_settled_ = true;
  {
    const std::lock_guard lock(mutex_);
    complete_step_ = found ? std::optional(found->choice.step) : std::nullopt;
  }
  return meet(key("settled"), [this, begin = Clock::now()] {
    return look_around(begin, "the other ranks to go on from the same memory snapshot");
  });
}

Result<void> Keeper::make_room(uint64_t num_bytes) {
  const int slot = 1 - complete_slot_;
  if (files_[slot] && files_[slot]->size() >= num_bytes) return {};
  files_[slot].reset();
  const uint64_t capacity = num_bytes + kSpareBytes;
  base::Fd fd;
  Result<GenerationFile> file = GenerationFile::create(capacity, &fd);
  if (!file) return file.error();
  if (Result<void> put = vault_->put(id_of(place_.rank, slot), fd); !put) return put;
  files_[slot] = std::move(*file);
  return {};
}

Result<Room> Keeper::begin(Generation generation, const std::string& meta) {
  if (Result<void> waited = wait(); !waited) return waited.error();
  generation.rank = place_.rank;
  generation.world_size = place_.world_size;
  generation.first_rank = place_.first_rank();
  generation.local_world_size = place_.local_world_size;
  generation.num_meta_bytes = meta.size();
  std::tie(generation.shared_begin, generation.num_shared_bytes) =
      share_of(generation.shared_total, place_.local_rank, place_.local_world_size);
  const auto parts = parts_of(generation);
  if (!parts) return Error("the state is too large for a snapshot");
  if (Result<void> made = make_room(parts->end); !made) {
    tell_failure(made.error());
    return made.error();
  }
  GenerationFile& file = *files_[1 - complete_slot_];
  file.begin(generation, meta);
  written_ = generation;
  return Room{file.own(generation), file.shared(generation), generation.shared_begin};
}

void Keeper::commit() {
  files_[1 - complete_slot_]->commit();
  start_background();
}

void Keeper::start_background() {
  {
    const std::lock_guard lock(mutex_);
    is_busy_ = true;
  }
  changed_.notify_all();
}

// The others wait for this rank, or soon will.
void Keeper::tell_failure(const Error& error) {
  failure_ = error.describe();
  start_background();
}

void Keeper::abandon() { files_[1 - complete_slot_]->invalidate(); }

std::optional<int64_t> Keeper::complete_step() {
  const std::lock_guard lock(mutex_);
  return complete_step_;
}

std::string Keeper::partner_problem() {
  const std::lock_guard lock(mutex_);
  return std::exchange(partner_problem_, "");
}

void Keeper::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_busy_ || is_over_; });
    if (is_over_) return;
    lock.unlock();
    const Result<void> finished = finish(written_, 1 - complete_slot_);
    lock.lock();
    if (!finished && !error_) error_ = finished.error();
    is_busy_ = false;
    changed_.notify_all();
  }
}

// The caller of begin() and commit() touches nothing of this before wait() has let it through.
Result<void> Keeper::finish(const Generation& generation, int slot) {
  if (failure_) {
    (void)store_->set(key("failure"), fmt::format("rank {}: {}", place_.rank, *failure_));
    (void)agree(kCannotGoOn);
    return give_back(*failure_);
  }
  if (place_.num_nodes > 1) send_copy(generation, slot);
  const Result<bool> agreed = agree(static_cast<int64_t>(generation.shared_layout & 0x7FFFFFFF));
  if (!agreed) return agreed.error();
  if (!*agreed) {
    files_[slot]->invalidate();
    shares_ = false;
    return {};
  }
  complete_slot_ = slot;
  {
    const std::lock_guard lock(mutex_);
    complete_step_ = generation.step;
  }
  if (place_.local_rank != 0 || std::exchange(has_dropped_, true)) return {};
  return drop_stale(generation.step);
}

// Training goes on, so what is kept grows old from now on: nobody should come back to it.
Error Keeper::give_back(const std::string& why) {
  for (int slot = 0; slot < 2; ++slot) {
    if (!files_[slot]) continue;
    files_[slot]->invalidate();
    (void)vault_->drop(id_of(place_.rank, slot));  // local rank 0 may have been here before it was made
  }
  if (place_.local_rank == 0) {
    const Result<std::vector<HeldFile>> files = vault_->take_all();
    for (size_t i = 0; files && i < files->size(); ++i) (void)vault_->drop((*files)[i].id);
  }
  return described_error(why);
}

void Keeper::send_copy(const Generation& generation, int slot) {
  Result<void> sent;
  if (!partner_) {
    const int node = (place_.node + 1) % place_.num_nodes;
    Result<RemoteVault> connected =
        RemoteVault::connect(*vault_, {place_.node, node}, where_[static_cast<size_t>(node)]);
    const std::lock_guard lock(mutex_);
    if (connected) {
      partner_.emplace(std::move(*connected));
      partner_socket_ = partner_->socket();
    } else {
      sent = connected.error();
    }
  }
  if (partner_) sent = send_copy_to(*partner_, generation, slot);
  if (sent) return;
  const std::lock_guard lock(mutex_);
  partner_socket_ = -1;
  partner_.reset();
  copy_sizes_[0] = copy_sizes_[1] = 0;
  if (!is_over_) partner_problem_ = sent.error().describe();
}

// As a file of this node is written: it says that it is unfinished until the last word.
Result<void> Keeper::send_copy_to(RemoteVault& partner, const Generation& generation, int slot) {
  const std::string id = copy_id(place_.rank, slot);
  const uint64_t end = parts_of(generation)->shared;
  if (copy_sizes_[slot] < end) {
    copy_sizes_[slot] = end + kSpareBytes;
    if (Result<void> made = partner.make(id, copy_sizes_[slot]); !made) return made;
  }
  const std::span<const std::byte> bytes = files_[slot]->bytes();
  const std::vector<std::byte> nothing(kHeaderBytes);
  if (Result<void> sent = partner.write(id, 0, nothing); !sent) return sent;
  if (end > kHeaderBytes) {
    if (Result<void> sent = partner.write(id, kHeaderBytes, bytes.subspan(kHeaderBytes, end - kHeaderBytes)); !sent)
      return sent;
  }
  return partner.write(id, 0, bytes.first(kHeaderBytes));
}

// What runs with other ranks on this node have left, and copies of ranks whose partner is another node now.
Result<void> Keeper::drop_stale(int64_t step) {
  Result<std::vector<HeldFile>> files = vault_->take_all();
  if (!files) return files.error();
  std::set<int> copied;
  std::vector<std::string> own;
  for (int i = 0; i < place_.local_world_size; ++i) {
    for (int slot = 0; slot < 2; ++slot) own.push_back(id_of(place_.first_rank() + i, slot));
  }
  for (const HeldFile& file : *files) {
    const auto opened =
        is_copy_id(file.id) ? GenerationFile::open(file.fd, file.size) : Result<GenerationFile>(Error(""));
    const auto generation = opened ? opened->read(/*has_shared=*/false) : std::nullopt;
    if (generation && generation->world_size == place_.world_size && generation->step >= step)
      copied.insert(generation->rank);
  }
  for (const HeldFile& file : *files) {
    bool is_used = std::find(own.begin(), own.end(), file.id) != own.end();
    for (const int rank : copied) is_used = is_used || file.id == copy_id(rank, 0) || file.id == copy_id(rank, 1);
    if (is_used) continue;
    if (Result<void> dropped = vault_->drop(file.id); !dropped) return dropped;
  }
  return {};
}

}  // namespace cohort::vault
