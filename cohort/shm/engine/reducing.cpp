// The collectives that combine elements.
//
// N is the number of ranks. The message is split into windows, and a window into one chunk per rank. Every element is combined by
// one kernel call in the order of ranks, so the bits depend neither on the rank that does it nor on the split.
//
//   inline     up to 24 bytes are in the mailbox: one round
//   small      to one root, up to 2 KiB: one round, in which only the root waits
//   direct     every rank stages its window, every rank combines all of it: one round per window
//   pipelined  round k: stage the chunks of window k that others combine, and the result of window k - 1; meet; collect the
//              results of k - 1; combine the own chunk of k. Windows + 1 rounds; per byte of the message a rank stages
//              (N-1)/N, combines 1/N from N sources, and collects (N-1)/N
//   shared     tensors in shared memory: every rank combines its chunk in place and writes it to all: two rounds
#include <fmt/format.h>
#include <algorithm>

#include "cohort/base/text/text.h"
#include "cohort/shm/engine/collective.h"
#include "cohort/shm/kernels/kernels.h"
#include "cohort/shm/plan/windows.h"
#include "cohort/shm/terms/bytes.h"

namespace cohort::shm {
namespace {

// Small enough for a second-level cache, with the tensors' windows beside it.
constexpr size_t kDirectWindowBytes = 256 << 10;
// The limit for all ranks together. Up to this size one round in which every rank reads everything is as fast as two, as measured
// with 4 and 8 ranks on 2 cores.
constexpr size_t kDirectTotalBytes = 128 << 10;

// The reduction: dtype, operation, and the ranks' factors once they are known.
class Reducer {
 public:
  Reducer(Elements elements, Reduction reduction)
      : element_size_(size_of(elements.dtype)),
        needs_factors_(reduction.op == ReduceOp::kPremulSum),
        kernel_(reduce_kernel(elements.dtype, reduction.op)) {}

  size_t element_size() const { return element_size_; }
  void learn_factors(const Collective& collective) {
    if (needs_factors_) factors_ = collective.factors();
  }
  void operator()(void* out, const void* const* ins, int num_inputs, size_t count) const {
    if (count > 0) kernel_(out, ins, factors_.data(), num_inputs, count);
  }

 private:
  size_t element_size_;
  bool needs_factors_;
  ReduceKernel kernel_;
  std::vector<double> factors_;
};

// One pointer per rank, without an allocation for common numbers of ranks.
class Sources {
 public:
  explicit Sources(int size) {
    if (size > kInside) many_.resize(static_cast<size_t>(size));
    data_ = size > kInside ? many_.data() : few_;
  }
  const void*& operator[](int rank) { return data_[rank]; }
  const void* const* data() const { return data_; }

 private:
  static constexpr int kInside = 16;
  const void* few_[kInside];
  std::vector<const void*> many_;
  const void** data_;
};

Outcome check_reduction(Elements elements, Reduction reduction) {
  if (can_reduce(elements.dtype, reduction.op)) return nullptr;
  return fail({Failure::Kind::kArgument,
               {fmt::format("{} cannot be reduced with {}", name_of(elements.dtype),
                            reduction.op == ReduceOp::kNone ? "no ReduceOp" : name_of(reduction.op))},
               ""});
}

// All-reduce, and reduce to one root (only the root writes its `out`).
struct AllReduce {
  static constexpr int kEveryRank = -1;

  Collective& collective;
  Reducer& reducer;
  const void* in;
  void* out;
  size_t count;
  int root = kEveryRank;

  int rank() const { return collective.rank(); }
  int size() const { return collective.size(); }
  bool has_result() const { return root == kEveryRank || root == rank(); }
  bool runs_ahead() const { return root != kEveryRank && is_small(bytes(count)); }
  size_t bytes(size_t elements) const { return elements * reducer.element_size(); }

  template <class Stage>
  Outcome open_with(Stage stage) const {
    if (auto failure = collective.open_with(stage)) return failure;
    reducer.learn_factors(collective);
    return nullptr;
  }

  // Reduces to one root, for which the other ranks do not wait.
  Outcome run_small() const {
    const auto num_bytes = bytes(count);
    if (rank() != root) {
      copy_bytes(collective.small_input(num_bytes), in, num_bytes);
      return collective.give();
    }
    if (auto failure = open_with([] {})) return failure;
    Sources sources(size());
    for (int peer = 0; peer < size(); ++peer) {
      sources[peer] = peer == root ? in : collective.small_input_of(peer, num_bytes);
    }
    reducer(out, sources.data(), size(), count);
    return nullptr;
  }

  Outcome run_inline() const {
    copy_bytes(collective.inline_payload(), in, bytes(count));
    if (auto failure = open_with([] {})) return failure;
    Sources sources(size());
    for (int peer = 0; peer < size(); ++peer) sources[peer] = collective.inline_payload_of(peer);
    reducer(out, sources.data(), size(), count);
    return nullptr;
  }

  Outcome run_direct(const Windows& windows) const {
    Sources sources(size());
    for (size_t i = 0; i < windows.size(); ++i) {
      const auto begin = bytes(windows[i].begin);
      const auto stage = [&] {
        if (root != rank()) copy_bytes(collective.input_slot(), at(in, begin), bytes(windows[i].count));
      };
      if (i > 0) stage();
      if (auto failure = i == 0 ? open_with(stage) : collective.meet()) return failure;
      if (i == 0 && collective.is_all_shared()) return run_shared();
      if (!has_result()) continue;
      for (int peer = 0; peer < size(); ++peer) {
        sources[peer] = peer == rank() ? at(in, begin) : collective.input_of(peer);
      }
      reducer(at(out, begin), sources.data(), size(), windows[i].count);
    }
    return nullptr;
  }

  // Stages every rank's chunk of a window, in the order of the window.
  void stage(const Range& window) const {
    const auto mine = chunk(window, rank());
    auto* const slot = collective.input_slot();
    copy_bytes(slot, at(in, bytes(window.begin)), bytes(mine.begin - window.begin));
    copy_bytes(slot + bytes(mine.end() - window.begin), at(in, bytes(mine.end())), bytes(window.end() - mine.end()));
  }

  // Combines the own chunk into the result slot of the next round, and into `out`.
  void combine(const Range& window) const {
    const auto mine = chunk(window, rank());
    auto* const result = collective.result_slot();
    const auto block = kBlockBytes / reducer.element_size();
    Sources sources(size());
    for (size_t begin = 0; begin < mine.count; begin += block) {
      const auto num_elements = std::min(block, mine.count - begin);
      const auto offset = bytes(mine.begin - window.begin + begin);
      for (int peer = 0; peer < size(); ++peer) {
        sources[peer] = peer == rank() ? at(in, bytes(mine.begin + begin)) : collective.input_of(peer) + offset;
      }
      auto* const target = result + bytes(begin);
      reducer(target, sources.data(), size(), num_elements);
      if (has_result()) copy_bytes(at(out, bytes(mine.begin + begin)), target, bytes(num_elements));
    }
  }

  void collect(const Range& window) const {
    if (!has_result()) return;
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      const auto theirs = chunk(window, peer);
      copy_bytes(at(out, bytes(theirs.begin)), collective.result_of(peer), bytes(theirs.count));
    }
  }

  Outcome run_pipelined(const Windows& windows) const {
    for (size_t i = 0; i <= windows.size(); ++i) {
      if (0 < i && i < windows.size()) stage(windows[i]);
      if (auto failure = i == 0 ? open_with([&] { stage(windows[0]); }) : collective.meet()) return failure;
      if (i == 0 && collective.is_all_shared()) return run_shared();
      if (i > 0) collect(windows[i - 1]);
      if (i < windows.size()) combine(windows[i]);
    }
    return nullptr;
  }

  // Requires in == out on every rank that has a result.
  Outcome run_shared() const {
    const auto mine = chunk({0, count}, rank());
    const auto block = kBlockBytes / reducer.element_size();
    Sources sources(size());
    for (size_t begin = 0; begin < mine.count; begin += block) {
      if (auto failure = collective.check()) return failure;
      const auto num_elements = std::min(block, mine.count - begin);
      const auto offset = bytes(mine.begin + begin);
      for (int peer = 0; peer < size(); ++peer) sources[peer] = collective.offer_of(peer) + offset;
      const int first = root == kEveryRank ? rank() : root;
      auto* const target = collective.offer_of(first) + offset;
      reducer(target, sources.data(), size(), num_elements);
      for (int i = 1; root == kEveryRank && i < size(); ++i) {
        copy_bytes(collective.offer_of((first + i) % size()) + offset, target, bytes(num_elements));
      }
    }
    return collective.finish();
  }

  Range chunk(const Range& window, int peer) const { return chunk_of(window, peer, size(), reducer.element_size()); }

  // One more round costs time, but combining everything on every rank processes N times the bytes.
  bool is_direct() const { return size() <= 2 || bytes(count) * static_cast<size_t>(size()) <= kDirectTotalBytes; }
  Windows direct_windows() const {
    return {count, std::min(collective.slot_bytes(), kDirectWindowBytes) / reducer.element_size()};
  }

  Outcome run() const {
    const auto num_bytes = bytes(count);
    if (runs_ahead()) return run_small();
    if (num_bytes <= Collective::kInlineBytes && root == kEveryRank) return run_inline();
    const bool is_in_place = in == out || !has_result();
    if (is_in_place && num_bytes > staged_bytes) collective.offer(in, num_bytes);
    if (is_direct()) return run_direct(direct_windows());
    return run_pipelined({count, collective.slot_bytes() / reducer.element_size()});
  }
};

struct ReduceScatter {
  Collective& collective;
  Reducer& reducer;
  const void* const* ins;
  void* out;
  size_t count;

  int rank() const { return collective.rank(); }
  int size() const { return collective.size(); }
  size_t bytes(size_t elements) const { return elements * reducer.element_size(); }
  size_t total() const { return bytes(count) * static_cast<size_t>(size()); }
  size_t part_bytes() const { return collective.slot_bytes() / static_cast<size_t>(size()) / 64 * 64; }

  void stage(const Range& window) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      copy_bytes(collective.input_slot() + static_cast<size_t>(peer) * part_bytes(), at(ins[peer], bytes(window.begin)),
                 bytes(window.count));
    }
  }

  void combine(const Range& window) const {
    Sources sources(size());
    for (int peer = 0; peer < size(); ++peer) {
      const auto* const staged = collective.input_of(peer) + static_cast<size_t>(rank()) * part_bytes();
      sources[peer] = peer == rank() ? at(ins[rank()], bytes(window.begin)) : staged;
    }
    reducer(at(out, bytes(window.begin)), sources.data(), size(), window.count);
  }

  // Requires that all parts were offered, contiguously.
  Outcome run_shared() const {
    const auto mine = bytes(count) * static_cast<size_t>(rank());
    const Windows blocks{count, kBlockBytes / reducer.element_size()};
    Sources sources(size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (int peer = 0; peer < size(); ++peer) {
        sources[peer] = collective.offer_of(peer) + mine + bytes(blocks[i].begin);
      }
      reducer(at(out, bytes(blocks[i].begin)), sources.data(), size(), blocks[i].count);
    }
    return collective.finish();
  }

  // Offers all parts if they are contiguous and the result does not overlap parts that others read.
  void offer() const {
    if (total() <= staged_bytes || !are_adjacent(ins, bytes(count), size())) return;
    if (out != ins[rank()] && do_overlap(out, bytes(count), ins[0], total())) return;
    collective.offer(ins[0], total());
  }

  Outcome run_inline() const {
    for (int peer = 0; peer < size(); ++peer) {
      copy_bytes(collective.inline_payload() + bytes(count) * static_cast<size_t>(peer), ins[peer], bytes(count));
    }
    if (auto failure = collective.open()) return failure;
    reducer.learn_factors(collective);
    Sources sources(size());
    for (int peer = 0; peer < size(); ++peer) {
      sources[peer] = collective.inline_payload_of(peer) + bytes(count) * static_cast<size_t>(rank());
    }
    reducer(out, sources.data(), size(), count);
    return nullptr;
  }

  Outcome run() const {
    if (total() <= Collective::kInlineBytes) return run_inline();
    offer();
    const Windows windows{count, part_bytes() / reducer.element_size()};
    for (size_t i = 0; i < std::max<size_t>(windows.size(), 1); ++i) {
      if (i > 0) stage(windows[i]);
      if (auto failure = i == 0 ? collective.open_with([&] { stage(windows[0]); }) : collective.meet()) return failure;
      if (i == 0) reducer.learn_factors(collective);
      if (i == 0 && collective.is_all_shared()) return run_shared();
      combine(windows[i]);
    }
    return nullptr;
  }
};

Call to_call(OpKind kind, Elements elements, Reduction reduction, int root = -1) {
  return {.kind = kind, .dtype = elements.dtype, .reduce_op = reduction.op, .root = root, .count = elements.count};
}

}  // namespace

Outcome Group::all_reduce(const void* in, void* out, Elements elements, Reduction reduction,
                          const CallOptions& options) {
  if (auto wrong = check_reduction(elements, reduction)) return wrong;
  const auto call = to_call(OpKind::kAllReduce, elements, reduction);
  return run_collective(*state_, call, make_record(call, elements.count, elements.count, options), options,
                        [&](Collective& collective) {
                          Reducer reducer(elements, reduction);
                          collective.say(reduction.factor);
                          return AllReduce{collective, reducer, in, out, elements.count}.run();
                        });
}

Outcome Group::reduce(const void* in, void* out, Elements elements, Reduction reduction, int root,
                      const CallOptions& options) {
  if (auto wrong = check_reduction(elements, reduction)) return wrong;
  if (auto wrong = check_root(root, world_size())) return wrong;
  const auto call = to_call(OpKind::kReduce, elements, reduction, root);
  const auto num_outputs = rank() == root ? elements.count : 0;
  return run_collective(
      *state_, call, make_record(call, elements.count, num_outputs, options), options,
      [&](Collective& collective) {
        Reducer reducer(elements, reduction);
        collective.say(reduction.factor);
        return AllReduce{collective, reducer, in, out, elements.count, root}.run();
      },
      is_small(elements.num_bytes()));
}

Outcome Group::reduce_scatter(const void* const* ins, void* out, Elements elements, Reduction reduction,
                              const CallOptions& options) {
  if (auto wrong = check_reduction(elements, reduction)) return wrong;
  const auto call = to_call(OpKind::kReduceScatter, elements, reduction);
  const auto num_inputs = elements.count * static_cast<size_t>(world_size());
  return run_collective(*state_, call, make_record(call, num_inputs, elements.count, options), options,
                        [&](Collective& collective) {
                          Reducer reducer(elements, reduction);
                          collective.say(reduction.factor);
                          return ReduceScatter{collective, reducer, ins, out, elements.count}.run();
                        });
}

}  // namespace cohort::shm
