// The collectives that move bytes.
#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <optional>

#include "cohort/base/text/text.h"
#include "cohort/shm/engine/collective.h"
#include "cohort/shm/plan/windows.h"
#include "cohort/shm/terms/bytes.h"

namespace cohort::shm {
namespace {

constexpr size_t kCacheLine = 64;

// Every rank copies its chunk of the root's tensor to all others.
Outcome share_broadcast(Collective& collective, size_t num_bytes, int root) {
  const auto mine = chunk_of({0, num_bytes}, collective.rank(), collective.size(), 1);
  const Windows blocks{mine.count, kBlockBytes};
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (auto failure = collective.check()) return failure;
    const auto begin = mine.begin + blocks[i].begin;
    for (int peer = 0; peer < collective.size(); ++peer) {
      if (peer != root)
        copy_bytes(collective.offer_of(peer) + begin, collective.offer_of(root) + begin, blocks[i].count);
    }
  }
  return collective.finish();
}

Outcome run_small_broadcast(Collective& collective, void* data, size_t num_bytes, int root) {
  if (collective.rank() == root) {
    copy_bytes(collective.small_input(num_bytes), data, num_bytes);
    return collective.give();
  }
  if (auto failure = collective.take_from(root)) return failure;
  copy_bytes(data, collective.small_input_of(root, num_bytes), num_bytes);
  return nullptr;
}

Outcome run_broadcast(Collective& collective, void* data, size_t num_bytes, int root) {
  const bool is_root = collective.rank() == root;
  const Windows windows{num_bytes, collective.slot_bytes()};
  if (num_bytes > staged_bytes) collective.offer(data, num_bytes);
  if (windows.size() == 0) return collective.open();
  for (size_t i = 0; i < windows.size(); ++i) {
    const auto window = windows[i];
    const auto stage = [&] {
      if (is_root) copy_bytes(collective.input_slot(), at(data, window.begin), window.count);
    };
    if (i > 0) stage();
    if (auto failure = i == 0 ? collective.open_with(stage) : collective.meet()) return failure;
    if (collective.is_all_shared()) return share_broadcast(collective, num_bytes, root);
    if (!is_root) copy_bytes(at(data, window.begin), collective.input_of(root), window.count);
  }
  return nullptr;
}

struct AllGather {
  Collective& collective;
  const void* in;
  void* const* outs;
  size_t num_bytes;

  int rank() const { return collective.rank(); }
  int size() const { return collective.size(); }
  size_t total() const { return num_bytes * static_cast<size_t>(size()); }

  // Writing one's own part to all ranks reads less than reading all parts, but needs the results to be contiguous.
  void offer() const {
    if (num_bytes <= staged_bytes) return;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && do_overlap(in, num_bytes, outs[peer], num_bytes)) return;
    }
    const bool is_one_piece = are_adjacent(outs, num_bytes, size());
    if (is_one_piece) collective.offer(outs[0], total());
    if (!is_one_piece) collective.offer(in, num_bytes);
  }

  // Requires that the results were offered.
  Outcome write_to_all() const {
    const Windows blocks{num_bytes, kBlockBytes};
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (auto failure = collective.check()) return failure;
      const auto begin = static_cast<size_t>(rank()) * num_bytes + blocks[i].begin;
      for (int step = 0; step < size(); ++step) {
        const int peer = (rank() + step) % size();
        copy_bytes(collective.offer_of(peer) + begin, at(in, blocks[i].begin), blocks[i].count);
      }
    }
    return collective.finish();
  }

  // Requires that the inputs were offered.
  Outcome read_from_all() const {
    for (int peer = 0; peer < size(); ++peer) {
      copy_bytes(outs[peer], peer == rank() ? in : collective.offer_of(peer), num_bytes);
    }
    return collective.finish();
  }

  Outcome run_inline() const {
    copy_bytes(collective.inline_payload(), in, num_bytes);
    if (auto failure = collective.open()) return failure;
    for (int peer = 0; peer < size(); ++peer) copy_bytes(outs[peer], collective.inline_payload_of(peer), num_bytes);
    return nullptr;
  }

  Outcome run() const {
    if (num_bytes <= Collective::kInlineBytes) return run_inline();
    const Windows windows{num_bytes, collective.slot_bytes()};
    offer();
    if (windows.size() == 0) return collective.open();
    for (size_t i = 0; i < windows.size(); ++i) {
      const auto window = windows[i];
      const auto stage = [&] { copy_bytes(collective.input_slot(), at(in, window.begin), window.count); };
      if (i > 0) stage();
      if (auto failure = i == 0 ? collective.open_with(stage) : collective.meet()) return failure;
      if (collective.is_all_shared()) {
        return collective.num_offered_bytes() == num_bytes ? read_from_all() : write_to_all();
      }
      for (int peer = 0; peer < size(); ++peer) {
        const void* const source = peer == rank() ? at(in, window.begin) : collective.input_of(peer);
        copy_bytes(at(outs[peer], window.begin), source, window.count);
      }
    }
    return nullptr;
  }
};

Outcome run_small_gather(Collective& collective, const void* in, void* const* outs, size_t num_bytes, int root) {
  if (collective.rank() != root) {
    copy_bytes(collective.small_input(num_bytes), in, num_bytes);
    return collective.give();
  }
  if (auto failure = collective.open()) return failure;
  for (int peer = 0; peer < collective.size(); ++peer) {
    copy_bytes(outs[peer], peer == root ? in : collective.small_input_of(peer, num_bytes), num_bytes);
  }
  return nullptr;
}

Outcome run_gather(Collective& collective, const void* in, void* const* outs, size_t num_bytes, int root) {
  const int rank = collective.rank();
  const Windows windows{num_bytes, collective.slot_bytes()};
  if (num_bytes > staged_bytes) collective.offer(in, num_bytes);
  if (windows.size() == 0) return collective.open();
  for (size_t i = 0; i < windows.size(); ++i) {
    const auto window = windows[i];
    const auto stage = [&] {
      if (rank != root) copy_bytes(collective.input_slot(), at(in, window.begin), window.count);
    };
    if (i > 0) stage();
    if (auto failure = i == 0 ? collective.open_with(stage) : collective.meet()) return failure;
    const bool in_place = collective.is_all_shared();
    const Range range = in_place ? Range{0, num_bytes} : window;
    for (int peer = 0; rank == root && peer < collective.size(); ++peer) {
      const void* const staged = in_place ? collective.offer_of(peer) : collective.input_of(peer);
      copy_bytes(at(outs[peer], range.begin), peer == rank ? at(in, range.begin) : staged, range.count);
    }
    if (in_place) return collective.finish();
  }
  return nullptr;
}

Outcome run_small_scatter(Collective& collective, const void* const* ins, void* out, size_t num_bytes, int root) {
  const auto total = num_bytes * static_cast<size_t>(collective.size());
  const auto offset_of = [&](int rank) { return static_cast<size_t>(rank) * num_bytes; };
  if (collective.rank() != root) {
    if (auto failure = collective.take_from(root)) return failure;
    copy_bytes(out, collective.small_input_of(root, total) + offset_of(collective.rank()), num_bytes);
    return nullptr;
  }
  auto* const slot = collective.small_input(total);
  for (int peer = 0; peer < collective.size(); ++peer) {
    if (peer != root) copy_bytes(slot + offset_of(peer), ins[peer], num_bytes);
  }
  copy_bytes(out, ins[root], num_bytes);
  return collective.give();
}

Outcome run_scatter(Collective& collective, const void* const* ins, void* out, size_t num_bytes, int root) {
  const auto size = static_cast<size_t>(collective.size());
  const bool is_root = collective.rank() == root;
  // Each rank has a part of the slot.
  const auto part = collective.slot_bytes() / size / kCacheLine * kCacheLine;
  const Windows windows{num_bytes, part};
  if (windows.size() == 0) return collective.open();
  for (size_t i = 0; i < windows.size(); ++i) {
    const auto window = windows[i];
    for (size_t peer = 0; is_root && peer < size; ++peer) {
      copy_bytes(collective.input_slot() + peer * part, at(ins[peer], window.begin), window.count);
    }
    if (auto failure = i == 0 ? collective.open() : collective.meet()) return failure;
    copy_bytes(at(out, window.begin), collective.input_of(root) + static_cast<size_t>(collective.rank()) * part,
               window.count);
  }
  return nullptr;
}

// all_to_all: a slot begins with the counts that its rank sends to and expects from each rank, then has a part per rank. If all
// counts are one number on all ranks, as the mailboxes say, nobody reads them there; and a few bytes fit into the mailbox, too.
struct AllToAll {
  Collective& collective;
  const void* const* ins;
  const size_t* in_counts;
  void* const* outs;
  const size_t* out_counts;
  size_t element_size;
  size_t header_bytes;
  size_t part;  ///< bytes per pair of ranks and window

  size_t size() const { return static_cast<size_t>(collective.size()); }

  // The number of elements between any two ranks, as far as this rank knows; nothing if the numbers differ.
  std::optional<size_t> even_count() const {
    for (size_t peer = 0; peer < size(); ++peer) {
      if (in_counts[peer] != in_counts[0] || out_counts[peer] != in_counts[0]) return std::nullopt;
    }
    return in_counts[0];
  }
  static constexpr auto kUneven = ~uint64_t{0};

  bool is_even_everywhere() const {
    const auto mine = collective.said_by<uint64_t>(collective.rank());
    for (int peer = 0; peer < collective.size(); ++peer) {
      if (collective.said_by<uint64_t>(peer) != mine) return false;
    }
    return mine != kUneven;
  }

  size_t part_bytes() const { return in_counts[0] * element_size; }
  bool fits_inline() const { return part_bytes() * size() <= Collective::kInlineBytes; }

  void stage_inline() const {
    for (size_t peer = 0; peer < size(); ++peer) {
      copy_bytes(collective.inline_payload() + peer * part_bytes(), ins[peer], part_bytes());
    }
  }

  void collect_inline() const {
    const auto offset = static_cast<size_t>(collective.rank()) * part_bytes();
    for (int peer = 0; peer < collective.size(); ++peer) {
      copy_bytes(outs[peer], collective.inline_payload_of(peer) + offset, part_bytes());
    }
  }

  void stage_counts() const {
    auto* const slot = collective.input_slot();
    std::memcpy(slot, in_counts, size() * sizeof(size_t));
    std::memcpy(slot + size() * sizeof(size_t), out_counts, size() * sizeof(size_t));
  }

  void stage(size_t window_index) const {
    auto* const slot = collective.input_slot();
    for (size_t peer = 0; peer < size(); ++peer) {
      if (static_cast<int>(peer) == collective.rank()) continue;
      const auto window = Windows{in_counts[peer] * element_size, part}[window_index];
      copy_bytes(slot + header_bytes + peer * part, at(ins[peer], window.begin), window.count);
    }
  }

  void collect(size_t window_index) const {
    const auto rank = static_cast<size_t>(collective.rank());
    for (size_t peer = 0; peer < size(); ++peer) {
      const auto window = Windows{out_counts[peer] * element_size, part}[window_index];
      const auto* const staged = collective.input_of(static_cast<int>(peer)) + header_bytes + rank * part;
      copy_bytes(at(outs[peer], window.begin), peer == rank ? at(ins[peer], window.begin) : staged, window.count);
    }
  }

  // Offers the inputs if they are contiguous and nothing is received there.
  void offer() const {
    collective.expect_uneven_offers();
    size_t total = 0;
    for (size_t peer = 0; peer < size(); ++peer) {
      if (ins[peer] != at(ins[0], total) && in_counts[peer] > 0) return;
      total += in_counts[peer] * element_size;
    }
    for (size_t peer = 0; peer < size(); ++peer) {
      if (do_overlap(ins[0], total, outs[peer], out_counts[peer] * element_size)) return;
    }
    if (total > staged_bytes) collective.offer(ins[0], total);
  }

  Outcome read_from_all() const {
    const auto rank = static_cast<size_t>(collective.rank());
    for (size_t peer = 0; peer < size(); ++peer) {
      size_t before = 0;
      for (size_t to = 0; to < rank; ++to) before += sent(peer, to);
      const auto* const source = collective.offer_of(static_cast<int>(peer)) + before * element_size;
      copy_bytes(outs[peer], source, sent(peer, rank) * element_size);
    }
    return collective.finish();
  }

  size_t sent(size_t from, size_t to) const { return header_entry(from, to); }
  size_t expected(size_t by, size_t from) const { return header_entry(by, size() + from); }
  size_t header_entry(size_t rank, size_t index) const {
    size_t value = 0;
    std::memcpy(&value, collective.input_of(static_cast<int>(rank)) + index * sizeof(size_t), sizeof(value));
    return value;
  }

  int name_of(size_t rank) const { return collective.group().name_of_rank(static_cast<int>(rank)); }

  // Every rank sees all counts, so all get the same result. Sets `largest` to the largest count.
  Outcome find_mismatch(size_t* largest) const {
    for (size_t from = 0; from < size(); ++from) {
      for (size_t to = 0; to < size(); ++to) {
        *largest = std::max(*largest, sent(from, to));
        if (sent(from, to) == expected(to, from)) continue;
        return collective.group().record({Failure::Kind::kMismatch,
                                          {fmt::format("rank {} sends {} elements to rank {}, which expects {} from it",
                                                       name_of(from), sent(from, to), name_of(to), expected(to, from))},
                                          "give output splits that match the other ranks' input splits"});
      }
    }
    return nullptr;
  }
};

Outcome run_all_to_all(AllToAll& plan) {
  const auto even_count = plan.even_count();
  const bool is_inline = even_count && plan.fits_inline();
  if (is_inline) {
    plan.stage_inline();
  } else {
    plan.offer();
  }
  plan.collective.say(even_count.value_or(AllToAll::kUneven));
  plan.stage_counts();
  const auto stage = [&] {
    plan.stage_counts();
    plan.stage(0);
  };
  if (auto failure = plan.collective.open_with(stage)) return failure;
  const bool is_even = plan.is_even_everywhere();
  if (is_even && is_inline) {
    plan.collect_inline();
    return nullptr;
  }
  size_t largest = plan.in_counts[0];
  if (!is_even) {
    if (auto failure = plan.find_mismatch(&largest)) return failure;
  }
  if (plan.collective.is_all_shared()) return plan.read_from_all();
  const Windows windows{largest * plan.element_size, plan.part};
  for (size_t i = 0; i < std::max<size_t>(windows.size(), 1); ++i) {
    if (i > 0) {
      plan.stage(i);
      if (auto failure = plan.collective.meet()) return failure;
    }
    plan.collect(i);
  }
  return nullptr;
}

}  // namespace

Outcome Group::barrier(const CallOptions& options) {
  const Call call{.kind = OpKind::kBarrier};
  return run_collective(*state_, call, make_record(call, 0, 0, options), options,
                        [](Collective& collective) { return collective.open(); });
}

Outcome Group::broadcast(void* data, Elements elements, int root, const CallOptions& options) {
  if (auto wrong = check_root(root, world_size())) return wrong;
  const Call call{.kind = OpKind::kBroadcast, .dtype = elements.dtype, .root = root, .count = elements.count};
  const auto num_bytes = elements.num_bytes();
  const bool runs_ahead = is_small(num_bytes);
  return run_collective(
      *state_, call, make_record(call, elements.count, elements.count, options), options,
      [&](Collective& collective) {
        return runs_ahead ? run_small_broadcast(collective, data, num_bytes, root)
                          : run_broadcast(collective, data, num_bytes, root);
      },
      runs_ahead);
}

Outcome Group::all_gather(const void* in, void* const* outs, Elements elements, const CallOptions& options) {
  const Call call{.kind = OpKind::kAllGather, .dtype = elements.dtype, .count = elements.count};
  const auto total = elements.count * static_cast<size_t>(world_size());
  return run_collective(*state_, call, make_record(call, elements.count, total, options), options,
                        [&](Collective& collective) {
                          return AllGather{collective, in, outs, elements.num_bytes()}.run();
                        });
}

Outcome Group::gather(const void* in, void* const* outs, Elements elements, int root, const CallOptions& options) {
  if (auto wrong = check_root(root, world_size())) return wrong;
  const Call call{.kind = OpKind::kGather, .dtype = elements.dtype, .root = root, .count = elements.count};
  const auto total = rank() == root ? elements.count * static_cast<size_t>(world_size()) : 0;
  const auto num_bytes = elements.num_bytes();
  const bool runs_ahead = is_small(num_bytes);
  return run_collective(
      *state_, call, make_record(call, elements.count, total, options), options,
      [&](Collective& collective) {
        return runs_ahead ? run_small_gather(collective, in, outs, num_bytes, root)
                          : run_gather(collective, in, outs, num_bytes, root);
      },
      runs_ahead);
}

Outcome Group::scatter(const void* const* ins, void* out, Elements elements, int root, const CallOptions& options) {
  if (auto wrong = check_root(root, world_size())) return wrong;
  const Call call{.kind = OpKind::kScatter, .dtype = elements.dtype, .root = root, .count = elements.count};
  const auto total = rank() == root ? elements.count * static_cast<size_t>(world_size()) : 0;
  const auto num_bytes = elements.num_bytes();
  const bool runs_ahead = is_small(num_bytes * static_cast<size_t>(world_size()));
  return run_collective(
      *state_, call, make_record(call, total, elements.count, options), options,
      [&](Collective& collective) {
        return runs_ahead ? run_small_scatter(collective, ins, out, num_bytes, root)
                          : run_scatter(collective, ins, out, num_bytes, root);
      },
      runs_ahead);
}

Outcome Group::all_to_all(const void* const* ins, const size_t* in_counts, void* const* outs, const size_t* out_counts,
                          DType dtype, const CallOptions& options) {
  const Call call{.kind = OpKind::kAllToAll, .dtype = dtype};
  size_t num_inputs = 0;
  size_t num_outputs = 0;
  const auto size = static_cast<size_t>(world_size());
  for (size_t peer = 0; peer < size; ++peer) {
    num_inputs += in_counts[peer];
    num_outputs += out_counts[peer];
  }
  const auto header = (2 * size * sizeof(size_t) + kCacheLine - 1) / kCacheLine * kCacheLine;
  const auto part = (state_->options.slot_bytes - header) / size / kCacheLine * kCacheLine;
  return run_collective(*state_, call, make_record(call, num_inputs, num_outputs, options), options,
                        [&](Collective& collective) {
                          AllToAll plan{collective, ins, in_counts, outs, out_counts, size_of(dtype), header, part};
                          return run_all_to_all(plan);
                        });
}

}  // namespace cohort::shm
