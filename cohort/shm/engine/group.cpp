// Joining, leaving and failing; the operations are in moving.cpp and reducing.cpp.
#include "cohort/shm/engine/group.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/log/log.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/env.h"
#include "cohort/base/system/host.h"
#include "cohort/base/system/process_state.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/engine/group_state.h"
#include "cohort/shm/memory/handover.h"
#include "cohort/shm/report/dump.h"
#include "cohort/shm/segment/peer_record.h"

namespace cohort::shm {
namespace {

using base::Error;
using base::Result;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kMagic = 0x636f686f72742d31;  // "cohort-1"
constexpr uint32_t kVersion = 6;

Result<void> check(const GroupOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return Error(fmt::format("rank {} is out of range. Valid ranks are 0 to {}", options.rank, options.world_size - 1));
  }
  const auto size = static_cast<size_t>(options.world_size);
  if ((!options.pids.empty() && options.pids.size() != size) ||
      (!options.global_ranks.empty() && options.global_ranks.size() != size)) {
    return Error("pids and global_ranks must have one entry per rank");
  }
  // A slot holds two counts and some bytes for each rank: see all_to_all.
  if (options.slot_bytes / size < 2 * sizeof(size_t) + 128) {
    return Error(fmt::format("slots of {} are too small for {} ranks", base::format_bytes(options.slot_bytes), size));
  }
  if (options.slot_bytes == 0 || options.slot_bytes % 4096 != 0) {
    return Error(fmt::format("slot_bytes must be a multiple of 4096, got {}", options.slot_bytes));
  }
  return {};
}

Meeting to_meeting(const GroupOptions& options, Clock::time_point deadline) {
  Meeting meeting{options.address, options.rank, options.world_size, deadline, {}};
  meeting.find_obstacle = [&options](const std::vector<int>& absent) -> std::string {
    for (size_t i = 0; i < absent.size() && !options.pids.empty(); ++i) {
      const auto pid = options.pids[static_cast<size_t>(absent[i])];
      if (pid != getpid() && base::read_process_state(pid).gone()) {
        if (options.has_lost_a_rank) *options.has_lost_a_rank = true;
        return fmt::format("rank {} (pid {}) has ended before it connected to the shared memory",
                           name_of_rank(options, absent[i]), pid);
      }
    }
    return options.find_obstacle ? (*options.find_obstacle)() : "";
  };
  return meeting;
}

Result<SharedMemoryPtr> meet_in_memory(const GroupOptions& options, size_t num_bytes, const Meeting& meeting) {
  if (options.rank == 0) {
    base::Fd fd;
    auto memory = SharedMemory::create(num_bytes, &fd);
    if (!memory) return memory;
    const Segment segment((*memory)->data(), {options.world_size, options.slot_bytes});
    segment.block(0).connected_pid.store(getpid(), std::memory_order_relaxed);
    const auto pids = hand_over(meeting, fd);
    if (!pids) return pids.error();
    for (int rank = 1; rank < options.world_size; ++rank) {
      segment.block(rank).connected_pid.store((*pids)[static_cast<size_t>(rank)], std::memory_order_relaxed);
    }
    return memory;
  }
  const auto fd = receive_handed_over(meeting);
  if (!fd) return fd.error();
  return SharedMemory::open(*fd, num_bytes);
}

// Checks for missing ranks in the rounds of join().
class Arrival final : public Lookout {
 public:
  Arrival(Group::State& state, Clock::time_point deadline) : state_(state), deadline_(deadline) {}
  Outcome look() override {
    const auto missing = state_.ranks_not_in(state_.round);
    for (const int peer : missing) {
      if (auto failure = state_.look_after(peer)) return failure;
    }
    if (state_.options.find_obstacle) {
      if (auto obstacle = (*state_.options.find_obstacle)(); !obstacle.empty()) {
        return fail({Failure::Kind::kObstacle, {std::move(obstacle)}, ""});
      }
    }
    if (Clock::now() < deadline_) return nullptr;
    return fail({Failure::Kind::kTimeout, {base::ranks_in_words(missing) + " did not arrive in time"}, "", missing});
  }

 private:
  Group::State& state_;
  Clock::time_point deadline_;
};

Outcome meet(Group::State& state, Clock::time_point deadline) {
  const auto round = state.met = ++state.round;
  const auto& gathering = state.gathering(round);
  gathering.arrive(round);
  Arrival arrival(state, deadline);
  return wait_for(gathering, round, state.patience, arrival);
}

// Runs the first round, in which every rank describes itself.
Outcome announce(Group::State& state, Clock::time_point deadline) {
  auto& block = state.segment.block(state.rank());
  block.peer = this_process();
  block.presence.store(kJoined, std::memory_order_release);
  if (auto failure = meet(state, deadline)) return failure;
  std::vector<PeerRecord> peers;
  for (int peer = 0; peer < state.size(); ++peer) peers.push_back(state.segment.block(peer).peer);
  state.patience = have_cores_of_their_own(peers) ? Patience::own_core() : Patience::shared_cores();
  return nullptr;
}

base::Result<std::vector<SharedMemoryPtr>> map_arenas(const Group::State& state) {
  std::vector<SharedMemoryPtr> arenas;
  for (int peer = 0; peer < state.size(); ++peer) {
    const auto& record = state.segment.block(peer).peer;
    auto arena = map_arena(record.pid, record.arena);
    if (!arena) {
      return Error(fmt::format(
                       "group \"{}\" copies tensors through its own shared memory, because the memory of rank {}'s "
                       "tensors cannot be mapped",
                       state.options.name, state.name_of_rank(peer)))
          .caused_by(arena.error());
    }
    arenas.push_back(std::move(*arena));
  }
  return arenas;
}

// Runs the second round, if every rank has an arena: each rank says whether it could map the arenas of all others.
Outcome exchange_arenas(Group::State& state, Clock::time_point deadline) {
  for (int peer = 0; peer < state.size(); ++peer) {
    if (state.segment.block(peer).peer.arena.fd < 0) return nullptr;
  }
  const auto payload = [&state](int rank) -> std::byte& { return state.segment.block(rank).mailboxes[0].payload[0]; };
  constexpr std::byte kMapped{1};
  auto arenas = map_arenas(state);
  if (!arenas) base::log_warning(arenas.error().describe());
  if (arenas) payload(state.rank()) = kMapped;
  if (auto failure = meet(state, deadline)) return failure;
  for (int peer = 0; peer < state.size(); ++peer) {
    if (payload(peer) != kMapped) return nullptr;
  }
  state.regions.set_arenas(std::move(*arenas));
  return nullptr;
}

}  // namespace

std::string new_address() {
  uint64_t words[2] = {};
  while (getrandom(words, sizeof(words), 0) != sizeof(words)) {
  }
  char text[64];
  std::snprintf(text, sizeof(text), "cohort-%016lx%016lx", static_cast<unsigned long>(words[0]),
                static_cast<unsigned long>(words[1]));
  return text;
}

std::string host_scope() {
  return fmt::format("{}/{}/{}/{}/{}/v{}", base::boot_id(), base::namespace_of("/proc/self/ns/pid"),
                     base::namespace_of("/proc/self/ns/net"), geteuid(), base::get_env("COHORT_HOST_ID").value_or(""),
                     kVersion);
}

Group::State::State(const GroupOptions& group_options, SharedMemoryPtr shared_memory)
    : options(group_options),
      memory(std::move(shared_memory)),
      segment(memory->data(), {group_options.world_size, group_options.slot_bytes}),
      trace(segment.trace_area(group_options.rank)),
      traced(segment, {group_options.trace_name, group_options.name, group_options.rank, group_options.global_ranks}),
      regions(group_options.rank) {
  for (uint64_t number = 0; number < kRounds; ++number) {
    const auto counter_of = [&](int peer) { return &segment.mailbox(peer, number).round; };
    gatherings[number] = {.own = counter_of(rank()), .bell = &segment.header().bell};
    for (int i = 1; i < size(); ++i) gatherings[number].others.push_back(counter_of((rank() + i) % size()));
  }
}

std::string Group::State::describe(int rank) const {
  return fmt::format("rank {} ({})", name_of_rank(rank), shm::describe(segment.block(rank).peer));
}

std::vector<int> Group::State::ranks_not_in(uint64_t round_number) const {
  std::vector<int> missing;
  for (int peer = 0; peer < size(); ++peer) {
    const auto& counter = segment.mailbox(peer, round_number).round;
    if (peer != rank() && !counter.has_reached(round_number)) missing.push_back(peer);
  }
  return missing;
}

std::vector<Signature> Group::State::calls_in(uint64_t round_number) const {
  std::vector<Signature> calls;
  for (int peer = 0; peer < size(); ++peer) calls.push_back(segment.mailbox(peer, round_number).called());
  return calls;
}

bool Group::State::do_calls_agree(uint64_t round_number) const {
  const auto calls = calls_in(round_number);
  return std::all_of(calls.begin(), calls.end(), [&](const Signature& call) { return agree(call, calls.front()); });
}

std::optional<uint64_t> Group::State::find_mismatch() const {
  for (auto number = met + 1; number <= round && ranks_not_in(number).empty(); ++number) {
    if (!do_calls_agree(number)) return number;
  }
  return std::nullopt;
}

Failure Group::State::mismatch_in(uint64_t round_number, bool is_earlier) const {
  const auto calls = calls_in(round_number);
  Failure failure{Failure::Kind::kMismatch, table_of(calls, options.purposes, options.global_ranks),
                  hint_for(calls, options.purposes)};
  if (is_earlier) {
    failure.causes.insert(
        failure.causes.begin(),
        "the ranks' calls differ since an earlier call, in which not every rank had to wait for the others");
  }
  return failure;
}

Outcome Group::State::mismatch_found_by_another(uint64_t call) {
  if (met == round || segment.header().failed_rank.load(std::memory_order_acquire) == 0 || has_failed) return nullptr;
  const auto found = find_mismatch();
  return found ? record(mismatch_in(*found, /*is_earlier=*/*found < call)) : nullptr;
}

// Reads the state of other ranks once, because they may fail at any moment.
Outcome Group::State::obstacle_to_begin() {
  const bool has_another_failed = segment.header().failed_rank.load(std::memory_order_acquire) != 0;
  if (!has_another_failed && !has_failed && !is_aborted) return nullptr;
  if (has_another_failed) {
    if (auto found = mismatch_found_by_another(round + 1)) return found;
  }
  return failure();
}

Outcome Group::State::look_after(int peer, uint8_t purpose) const {
  const auto& block = segment.block(peer);
  const auto presence = block.presence.load(std::memory_order_acquire);
  if (const int pid = block.connected_pid.load(std::memory_order_relaxed);
      presence == kAbsent && pid != 0 && pid != getpid() && base::read_process_state(pid).gone()) {
    return fail({Failure::Kind::kLostRank,
                 {fmt::format("rank {} (pid {}) has ended before it joined", name_of_rank(peer), pid)},
                 fmt::format("look at the output of rank {} for the reason", name_of_rank(peer))});
  }
  if (presence != kAbsent && is_gone(block.peer)) {
    // Only a rank that has left may have ended normally.
    return fail(
        {Failure::Kind::kLostRank,
         {describe(peer) + " " + how_it_ended(block.peer)},
         options.purposes.lost_hint(fmt::format("look at the output of rank {} for the reason", name_of_rank(peer)),
                                    presence == kLeft ? purpose : 0)});
  }
  // A rank that leaves after a failure is not the cause; a rank that left before others were done with it is.
  auto first = first_failure_of_another();
  if (first && first->kind != Failure::Kind::kLostRank) return first;
  if (presence == kLeft) {
    return fail({Failure::Kind::kLostRank,
                 {describe(peer) + " has left the group by destroying it"},
                 purpose == 0 ? fmt::format("let rank {} make as many calls as the others before it destroys the group",
                                            name_of_rank(peer))
                              : options.purposes.hint(purpose, purpose)});
  }
  return first;
}

Outcome Group::State::failure() {
  if (is_aborted.load(std::memory_order_acquire)) {
    return record({Failure::Kind::kAborted, {"the group was aborted on this rank"}, ""});
  }
  // Relaxed: only decides whether to check; refusal() acquires. The line is written once in the life of a group.
  if (!has_failed.load(std::memory_order_relaxed) &&
      segment.header().failed_rank.load(std::memory_order_relaxed) == 0) {
    return nullptr;
  }
  return refusal();
}

void Group::State::report(const Outcome& failure) {
  if (failure->kind == Failure::Kind::kTimeout) {
    const auto path = note_timeout(fmt::format("a send or receive on group \"{}\"", options.name));
    if (!path.empty()) say_where(path);
  }
  record(*failure);
}

Outcome Group::State::first_failure_of_another() const {
  const auto failed = static_cast<int>(segment.header().failed_rank.load(std::memory_order_acquire)) - 1;
  if (failed < 0 || failed == rank()) return nullptr;
  const auto& block = segment.block(failed);
  const std::string text(block.failure_text, strnlen(block.failure_text, kFailureTextBytes));
  const auto kind = static_cast<Failure::Kind>(block.failure_kind);
  // The layer above knows the next step after a timeout.
  const auto hint =
      kind == Failure::Kind::kTimeout ? "" : fmt::format("see the error of rank {}", name_of_rank(failed));
  return fail({kind, {fmt::format("{} failed first: {}", describe(failed), text)}, hint});
}

Outcome Group::State::record(Failure failure) {
  const std::lock_guard lock(failure_mutex);
  if (first_failure) return first_failure;
  first_failure = fail(std::move(failure));
  auto& block = segment.block(rank());
  block.failure_kind = static_cast<uint32_t>(first_failure->kind);
  std::string text;
  for (const auto& cause : first_failure->causes) text += (text.empty() ? "" : "; ") + cause;
  std::strncpy(block.failure_text, text.c_str(), kFailureTextBytes - 1);
  uint32_t nobody = 0;
  // Release: orders the text before the number that leads to it; look_after() acquires it.
  segment.header().failed_rank.compare_exchange_strong(nobody, static_cast<uint32_t>(rank()) + 1,
                                                       std::memory_order_acq_rel);
  has_failed.store(true, std::memory_order_release);
  return first_failure;
}

Outcome Group::State::refusal() {
  if (!has_failed.load(std::memory_order_acquire)) {
    const auto first = first_failure_of_another();
    return first ? record(*first) : nullptr;
  }
  const std::lock_guard lock(failure_mutex);
  auto failure = *first_failure;
  failure.causes.insert(failure.causes.begin(), "the group has failed before and takes no more operations");
  return fail(std::move(failure));
}

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Group>> Group::join(const GroupOptions& options) {
  if (auto fine = check(options); !fine) return fine.error();
  const auto deadline = base::deadline_after(options.timeout);
  const Layout layout{options.world_size, options.slot_bytes};
  const auto what = [&] { return fmt::format("cannot join the shared memory of group \"{}\"", options.name); };
  auto memory = meet_in_memory(options, layout.num_bytes(), to_meeting(options, deadline));
  if (!memory) return Error(what()).caused_by(memory.error());
  auto state = std::make_unique<State>(options, std::move(*memory));
  auto& header = state->segment.header();
  if (options.rank == 0) {
    header.version = kVersion;
    header.world_size = options.world_size;
    header.num_bytes = layout.num_bytes();
    header.slot_bytes = options.slot_bytes;
    header.magic = kMagic;
  }
  auto failure = announce(*state, deadline);
  if (!failure) failure = exchange_arenas(*state, deadline);
  if (failure) {
    auto text = failure->causes.front();
    state->record(*failure);
    if (options.has_lost_a_rank && failure->kind == Failure::Kind::kLostRank) *options.has_lost_a_rank = true;
    return Error(what()).caused_by(Error(std::move(text)));
  }
  // Rank 0 wrote the header before it announced itself.
  if (header.magic != kMagic || header.version != kVersion || header.world_size != options.world_size) {
    return Error(what()).caused_by(Error("it was made for another group"));
  }
  // From here on other threads read the state through these.
  auto* const raw = state.get();
  state->options.find_obstacle = nullptr;
  state->options.has_lost_a_rank = nullptr;
  state->exchange = make_exchange(
      {.rank = options.rank,
       .world_size = options.world_size,
       .patience = state->patience,
       .timeout = options.timeout,
       .channel = [raw](int source, int destination) { return raw->segment.channel(source, destination); },
       .global_ranks = options.global_ranks,
       .regions = &raw->regions,
       .neighbors = raw,
       .trace = &raw->trace});
  return std::unique_ptr<Group>(new Group(std::move(state)));
}

Group::~Group() {
  // A forked child has none of the threads, and it is not this rank that leaves.
  if (getpid() != state_->owner) {
    [[maybe_unused]] const auto* left_alone = state_.release();
    return;
  }
  state_->exchange.reset();
  state_->segment.block(rank()).presence.store(kLeft, std::memory_order_release);
}

int Group::rank() const { return state_->rank(); }
int Group::world_size() const { return state_->size(); }
const std::string& Group::name() const { return state_->options.name; }
Exchange& Group::exchange() { return *state_->exchange; }
Trace& Group::trace() { return state_->trace; }

void Group::abort() {
  state_->is_aborted.store(true, std::memory_order_release);
  state_->exchange->interrupt();
}

Outcome Group::failure() const {
  const std::lock_guard lock(state_->failure_mutex);
  return state_->first_failure;
}

}  // namespace cohort::shm
