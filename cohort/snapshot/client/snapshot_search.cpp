#include "cohort/snapshot/client/snapshot_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/snapshot/free_memory.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

Result<Finding> SnapshotSearch::look(ServerConnection& server, store::Store& store, const std::string& prefix) {
  if (Result<void> read = read_own_files(server); !read) return read.error();
  if (Result<void> exchanged = exchange_lists(server, store, prefix); !exchanged) return exchanged.error();
  Finding look;
  const auto choice = choose(all_, place_.world_size, &look.why_not);
  if (!choice) return look;
  look.found = Found{.choice = *choice};
  if (Result<void> fetched = fetch(server, *look.found); !fetched) return fetched.error();
  return look;
}

Result<void> SnapshotSearch::read_own_files(ServerConnection& server) {
  Result<std::vector<StoredFile>> files = server.take_all();
  if (!files) return files.error();
  own_files_.clear();
  for (const StoredFile& file : *files) {
    Result<VersionFile> opened = VersionFile::open(file.fd, file.size);
    if (opened) own_files_.emplace_back(file.id, std::move(*opened));
  }
  return {};
}

Result<void> SnapshotSearch::exchange_lists(ServerConnection& server, store::Store& store, const std::string& prefix) {
  if (place_.local_rank == 0) {
    const Result<std::string> where = server.where();
    if (!where) return where.error();
    std::vector<StoredVersion> held;
    for (const auto& [id, file] : own_files_) {
      if (const auto version = file.read(!is_copy_id(id))) {
        held.push_back({.id = id, .size = file.size(), .version = *version});
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
    Result<std::vector<StoredVersion>> held =
        parse_list(end == std::string::npos ? "" : text.substr(end + 1), static_cast<int>(node));
    if (!held) return held.error();
    where_.push_back(text.substr(0, end));
    all_.insert(all_.end(), held->begin(), held->end());
  }
  return {};
}

Result<void> SnapshotSearch::fetch(ServerConnection& server, Found& found) {
  found.is_same_world = found.choice.world_size == place_.world_size;
  const int wanted = found.is_same_world || place_.rank < found.choice.world_size ? place_.rank : 0;
  const StoredVersion* own = find_own(all_, found.choice, wanted, place_.node);
  for (int rank = 0; !own && rank < found.choice.world_size; ++rank)
    own = find_own(all_, found.choice, rank, place_.node);
  if (!own) return Error(fmt::format("the snapshot of step {} has vanished", found.choice.step));
  const VersionParts parts = *parts_of(own->version);
  const auto head = bytes_from(server, *own, {parts.meta, own->version.num_meta_bytes}, found);
  if (!head) return head.error();
  found.meta.assign(reinterpret_cast<const char*>(head->data()), head->size());
  const auto bytes = bytes_from(server, *own, {parts.own, own->version.num_own_bytes}, found);
  if (!bytes) return bytes.error();
  found.own = *bytes;
  if (own->version.shared_total == 0) return {};
  for (const StoredVersion* held : find_shared(all_, found.choice, place_.node)) {
    const auto share =
        bytes_from(server, *held, {parts_of(held->version)->shared, held->version.num_shared_bytes}, found);
    if (!share) return share.error();
    if (held->version.shared_layout != own->version.shared_layout) {
      return Error(fmt::format("the snapshots of step {} do not fit together", found.choice.step));
    }
    found.shares.push_back({held->version.shared_begin, *share});
  }
  return {};
}

// Maps the bytes if they are on this node's server, else fetches them.
Result<std::span<const std::byte>> SnapshotSearch::bytes_from(ServerConnection& server, const StoredVersion& held,
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
  const Result<RemoteServerConnection*> other = remote(server, held.node);
  if (!other) return other.error();
  if (Result<void> checked = check_free_memory(size); !checked) return checked.error();
  std::vector<std::byte> bytes(size);
  if (size > 0) {
    if (Result<void> read = (*other)->read(held.id, offset, bytes); !read) return read.error();
  }
  found.fetched.push_back(std::move(bytes));
  return std::span<const std::byte>(found.fetched.back());
}

Result<RemoteServerConnection*> SnapshotSearch::remote(ServerConnection& own, int node) {
  for (auto& [number, server] : remotes_) {
    if (number == node) return &server;
  }
  Result<RemoteServerConnection> server = RemoteServerConnection::connect(own, {place_.node, node}, where(node));
  if (!server) return Error(fmt::format("cannot fetch a snapshot from node {}", node)).caused_by(server.error());
  remotes_.emplace_back(node, std::move(*server));
  return &remotes_.back().second;
}

}  // namespace cohort::snapshot
