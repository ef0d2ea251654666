#include "cohort/vault/keeper/snapshot_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/vault/memory_room.h"

namespace cohort::vault {

using base::Error;
using base::Result;

Result<Finding> SnapshotSearch::look(VaultClient& vault, store::Store& store, const std::string& prefix) {
  if (Result<void> read = read_own_files(vault); !read) return read.error();
  if (Result<void> exchanged = exchange_lists(vault, store, prefix); !exchanged) return exchanged.error();
  Finding look;
  const auto choice = choose(all_, place_.world_size, &look.why_not);
  if (!choice) return look;
  look.found = Found{.choice = *choice};
  if (Result<void> fetched = fetch(vault, *look.found); !fetched) return fetched.error();
  return look;
}

Result<void> SnapshotSearch::read_own_files(VaultClient& vault) {
  Result<std::vector<HeldFile>> files = vault.take_all();
  if (!files) return files.error();
  own_files_.clear();
  for (const HeldFile& file : *files) {
    Result<GenerationFile> opened = GenerationFile::open(file.fd, file.size);
    if (opened) own_files_.emplace_back(file.id, std::move(*opened));
  }
  return {};
}

Result<void> SnapshotSearch::exchange_lists(VaultClient& vault, store::Store& store, const std::string& prefix) {
  if (place_.local_rank == 0) {
    const Result<std::string> where = vault.where();
    if (!where) return where.error();
    std::vector<Held> held;
    for (const auto& [id, file] : own_files_) {
      if (const auto generation = file.read(!is_copy_id(id))) {
        held.push_back({.id = id, .size = file.size(), .generation = *generation});
      }
    }
    const std::string text = *where + "\n" + list_in_text(held);
    if (Result<void> set = store.set(prefix + fmt::format("node/{}", place_.node), text); !set) return set;
  }
  store::Store::Keys keys;
  for (int node = 0; node < place_.num_nodes; ++node) keys.push_back(prefix + fmt::format("node/{}", node));
  const char* const what = "the other nodes to say which memory snapshots they have";
  if (Result<void> waited = waits_.await(store, keys, what); !waited) return waited;
  const Result<store::Store::Values> texts = store.multi_get(keys);
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

Result<void> SnapshotSearch::fetch(VaultClient& vault, Found& found) {
  found.is_same_world = found.choice.world_size == place_.world_size;
  const int wanted = found.is_same_world || place_.rank < found.choice.world_size ? place_.rank : 0;
  const Held* own = find_own(all_, found.choice, wanted, place_.node);
  for (int rank = 0; !own && rank < found.choice.world_size; ++rank)
    own = find_own(all_, found.choice, rank, place_.node);
  if (!own) return Error(fmt::format("the snapshot of step {} has vanished", found.choice.step));
  const GenerationParts parts = *parts_of(own->generation);
  const auto head = bytes_from(vault, *own, {parts.meta, own->generation.num_meta_bytes}, found);
  if (!head) return head.error();
  found.meta.assign(reinterpret_cast<const char*>(head->data()), head->size());
  const auto bytes = bytes_from(vault, *own, {parts.own, own->generation.num_own_bytes}, found);
  if (!bytes) return bytes.error();
  found.own = *bytes;
  if (own->generation.shared_total == 0) return {};
  for (const Held* held : find_shared(all_, found.choice, place_.node)) {
    const auto share =
        bytes_from(vault, *held, {parts_of(held->generation)->shared, held->generation.num_shared_bytes}, found);
    if (!share) return share.error();
    if (held->generation.shared_layout != own->generation.shared_layout) {
      return Error(fmt::format("the snapshots of step {} do not fit together", found.choice.step));
    }
    found.shares.push_back({held->generation.shared_begin, *share});
  }
  return {};
}

// Maps the bytes if they are on this node's server, else fetches them.
Result<std::span<const std::byte>> SnapshotSearch::bytes_from(VaultClient& vault, const Held& held,
                                                              const std::pair<uint64_t, uint64_t>& range,
                                                              Found& found) {
  const auto [offset, size] = range;
  if (held.node == place_.node) {
    const auto file =
        std::find_if(own_files_.begin(), own_files_.end(), [&](const auto& f) { return f.first == held.id; });
    if (file == own_files_.end() || offset + size > file->second.size()) {
      return Error(fmt::format("the snapshot of step {} has vanished", found.choice.step));
    }
    found.mapped.push_back(file->second.memory());
    return std::span<const std::byte>(file->second.bytes().subspan(offset, size));
  }
  found.from_node = held.node;
  const Result<RemoteVault*> other = remote(vault, held.node);
  if (!other) return other.error();
  if (Result<void> checked = check_memory_room(size); !checked) return checked.error();
  std::vector<std::byte> bytes(size);
  if (size > 0) {
    if (Result<void> read = (*other)->read(held.id, offset, bytes); !read) return read.error();
  }
  found.fetched.push_back(std::move(bytes));
  return std::span<const std::byte>(found.fetched.back());
}

Result<RemoteVault*> SnapshotSearch::remote(VaultClient& own, int node) {
  for (auto& [number, vault] : remotes_) {
    if (number == node) return &vault;
  }
  Result<RemoteVault> vault = RemoteVault::connect(own, {place_.node, node}, where(node));
  if (!vault) return Error(fmt::format("cannot fetch a snapshot from node {}", node)).caused_by(vault.error());
  remotes_.emplace_back(node, std::move(*vault));
  return &remotes_.back().second;
}

}  // namespace cohort::vault
