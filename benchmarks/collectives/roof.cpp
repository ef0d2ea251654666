#include "benchmarks/collectives/roof.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

// Clang ignores the alignment after `using`.
typedef float Floats __attribute__((vector_size(64), aligned(4), may_alias));
static_assert(alignof(Floats) == alignof(float));
constexpr size_t kVector = sizeof(Floats);
constexpr size_t kMostStreams = 16;
constexpr size_t kStageBytes = size_t{256} << 10;

struct Streams {
  const std::byte* reads[kMostStreams];
  std::byte* writes[kMostStreams];
  size_t num_reads = 0;
  size_t num_writes = 0;
};

// Writes the sum of all reads to each target; 0 means any number. Moves bfloat16 as float32, as the bytes are the same.
template <size_t kReads, size_t kWrites>
[[gnu::always_inline]] inline void walk(const Streams& streams, size_t num_bytes) {
  // A local copy, so that no write can change a pointer.
  const Streams local = streams;
  const size_t num_reads = kReads ? kReads : local.num_reads;
  const size_t num_writes = kWrites ? kWrites : local.num_writes;
  for (size_t at = 0; at + kVector <= num_bytes; at += kVector) {
    Floats sum = *reinterpret_cast<const Floats*>(local.reads[0] + at);
    for (size_t i = 1; i < num_reads; ++i) sum += *reinterpret_cast<const Floats*>(local.reads[i] + at);
    for (size_t i = 0; i < num_writes; ++i) *reinterpret_cast<Floats*>(local.writes[i] + at) = sum;
  }
}

template <size_t kReads>
[[gnu::always_inline]] inline void walk_reads(const Streams& streams, size_t num_bytes) {
  if (streams.num_writes == 1) return walk<kReads, 1>(streams, num_bytes);
  if (streams.num_writes == kReads) return walk<kReads, kReads>(streams, num_bytes);
  if (streams.num_writes == 2) return walk<kReads, 2>(streams, num_bytes);
  return walk<kReads, 0>(streams, num_bytes);
}

[[gnu::always_inline]] inline void walk_any(const Streams& streams, size_t num_bytes) {
  switch (streams.num_reads) {
    case 1:
      return walk_reads<1>(streams, num_bytes);
    case 2:
      return walk_reads<2>(streams, num_bytes);
    case 4:
      return walk_reads<4>(streams, num_bytes);
    case 8:
      return walk_reads<8>(streams, num_bytes);
    default:
      return walk<0, 0>(streams, num_bytes);
  }
}

using Walk = void (*)(const Streams&, size_t);
void walk_baseline(const Streams& streams, size_t num_bytes) { walk_any(streams, num_bytes); }
#if defined(__x86_64__)
[[gnu::target("avx2")]] void walk_avx2(const Streams& streams, size_t num_bytes) { walk_any(streams, num_bytes); }
#if defined(__clang__)
[[gnu::target("avx512f"), clang::min_vector_width(512)]]
#else
[[gnu::target("avx512f,prefer-vector-width=512")]]
#endif
void walk_avx512(const Streams& streams, size_t num_bytes) {
  walk_any(streams, num_bytes);
}
#endif

Walk best_walk() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return walk_avx512;
  if (__builtin_cpu_supports("avx2")) return walk_avx2;
#endif
  return walk_baseline;
}

size_t num_staged(const std::vector<Move>& moves) {
  int most = 1;
  for (const Move& move : moves) most = std::max({most, move.num_staged_reads, move.num_staged_writes});
  return static_cast<size_t>(most);
}

// One of `count` segments of a stream, divided at whole vectors.
class Segment {
 public:
  Segment(size_t num_bytes, size_t index, size_t count)
      : begin_(cut(num_bytes, index, count)), end_(index + 1 == count ? num_bytes : cut(num_bytes, index + 1, count)) {}
  size_t begin() const { return begin_; }
  size_t size() const { return end_ - begin_; }

 private:
  static size_t cut(size_t num_bytes, size_t index, size_t count) {
    return num_bytes * index / count / kVector * kVector;
  }
  size_t begin_;
  size_t end_;
};

struct Program {
  std::vector<Move> moves;
  Buffers buffers;
  std::shared_ptr<std::byte> stage;
  size_t lane_bytes = 0;
  size_t num_segments = 1;
  bool uses_memcpy = false;
  Walk walk = nullptr;

  void run_move(const Move& move, const Segment& segment) const {
    Streams streams;
    for (const size_t read : move.reads) streams.reads[streams.num_reads++] = buffers.input + read + segment.begin();
    for (const size_t write : move.writes)
      streams.writes[streams.num_writes++] = buffers.output + write + segment.begin();
    for (int i = 0; i < move.num_staged_reads; ++i) streams.reads[streams.num_reads++] = lane(i);
    for (int i = 0; i < move.num_staged_writes; ++i) streams.writes[streams.num_writes++] = lane(i);
    if (!uses_memcpy || streams.num_reads > 1) return walk(streams, segment.size());
    for (size_t i = 0; i < streams.num_writes; ++i) std::memcpy(streams.writes[i], streams.reads[0], segment.size());
  }
  std::byte* lane(int index) const { return stage.get() + lane_bytes * static_cast<size_t>(index); }
  void operator()() const {
    for (size_t index = 0; index < num_segments; ++index) {
      for (const Move& move : moves) run_move(move, Segment(move.num_bytes, index, num_segments));
    }
  }
};

}  // namespace

std::vector<std::string> all_roof_styles() {
  std::vector<std::string> names;
  for (const char* plan : {"roof-whole", "roof-cut"}) {
    for (const char* loop : {"-loop", "-memcpy"}) {
      for (const char* size : {"-64KiB", "-256KiB"}) names.push_back(std::string(plan) + loop + size);
    }
  }
  return names;
}

std::vector<std::string> roof_styles(const CollectiveCase& what) {
  std::vector<std::string> names;
  for (const std::string& name : all_roof_styles()) {
    const auto style = parse_roof_style(name);
    if (style.plan == TrafficPlan::kCut && !has_two_plans(what)) continue;
    if (style.stage_bytes != kStageBytes && what.memory != Memory::kPrivate) continue;
    names.push_back(name);
  }
  return names;
}

RoofStyle parse_roof_style(const std::string& name) {
  const auto parts = base::split(name, '-');
  const auto size = parts.size() == 4 ? parse_size(parts[3]) : std::nullopt;
  if (!size || parts[0] != "roof") throw std::runtime_error("not a way to probe the roof: \"" + name + "\"");
  return {.plan = parts[1] == "cut" ? TrafficPlan::kCut : TrafficPlan::kWhole,
          .uses_memcpy = parts[2] == "memcpy",
          .stage_bytes = *size};
}

Call Roof::prepare(const CollectiveCase& what, const Buffers& buffers) {
  Program program;
  program.moves = plan_traffic(what, rank_, style_.plan);
  program.buffers = buffers;
  program.uses_memcpy = style_.uses_memcpy;
  program.walk = best_walk();
  if (what.memory == Memory::kPrivate) {
    size_t longest = 0;
    for (const Move& move : program.moves) longest = std::max(longest, move.num_bytes);
    const size_t lanes = num_staged(program.moves);
    program.lane_bytes = std::max(style_.stage_bytes / lanes / kVector * kVector, 2 * kVector);
    // Dividing at vectors makes a segment up to one vector longer.
    program.num_segments = longest / (program.lane_bytes - kVector) + 1;
    program.stage = allocate_private(program.lane_bytes * lanes);
    std::memset(program.stage.get(), 0, program.lane_bytes * lanes);
  }
  return program;
}

}  // namespace cohort::bench
