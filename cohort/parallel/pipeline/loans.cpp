#include "cohort/parallel/pipeline/loans.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "cohort/comm/backend/plain_tensor.h"
#include "cohort/comm/collectives/common_memory.h"
#include "cohort/comm/collectives/shm_empty.h"

namespace cohort::pipeline {

/// 1: returned. The borrower writes 1 after its last read; the lender writes 0 before it lends again.
struct Loans::Word {
  std::atomic<uint64_t> is_returned;
};

namespace {

// With more ranks a table of all pairs is not worth it.
constexpr int kMostLenders = 64;

bool is_returned(const Loans::Loan& loan) {
  // Acquire: the borrower's last reads and writes come before the next use of the memory.
  return loan.word->is_returned.load(std::memory_order_acquire) != 0;
}

// Whether nobody else holds the tensor or its memory, so that nobody here sees changes by a borrower. Memory that a storage has
// from elsewhere than the allocator (from_blob) may also be somebody else's.
bool is_exclusive(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.storage().data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter() && comm::is_plain(tensor);
}

// The tensors that borrowers had when Loans was destroyed.
struct LeftLoans {
  shm::SharedMemoryPtr memory;
  std::vector<Loans::Loan> loans;
  pid_t owner = ::getpid();
};

// Takes these in, and releases returned ones. Never destroyed: others may read them while this process exits.
void keep_until_returned(LeftLoans left) {
  static std::mutex mutex;
  static auto& all = *new std::vector<LeftLoans>;
  std::vector<Loans::Loan> returned;  // destroyed without the lock
  const std::lock_guard lock(mutex);
  if (!left.loans.empty()) all.push_back(std::move(left));
  for (LeftLoans& each : all) {
    if (each.owner != ::getpid()) continue;  // of the process that this one was forked from, and not readable here
    const auto first = std::partition(each.loans.begin(), each.loans.end(),
                                      [](const Loans::Loan& loan) { return !is_returned(loan); });
    std::move(first, each.loans.end(), std::back_inserter(returned));
    each.loans.erase(first, each.loans.end());
  }
  std::erase_if(all, [](const LeftLoans& each) { return each.loans.empty(); });
}

size_t bytes_of_words(int group_size) {
  const auto num_pairs = static_cast<size_t>(group_size) * static_cast<size_t>(group_size);
  return shm::whole_pages(num_pairs * Loans::kNumSlots * sizeof(Loans::Word));
}

}  // namespace

at::Tensor LoanSlip::tensor() const {
  at::Tensor slip = at::empty({kLength}, at::kLong);
  auto* const values = slip.mutable_data_ptr<int64_t>();
  values[0] = static_cast<int64_t>(area);
  values[1] = offset;
  values[2] = slot;
  return slip;
}

LoanSlip LoanSlip::read(const at::Tensor& tensor) {
  const auto* const values = tensor.const_data_ptr<int64_t>();
  return {static_cast<Area>(values[0]), values[1], values[2]};
}

bool Loans::are_possible(const Group& group, int group_size) {
  return group_size > 1 && group_size <= kMostLenders && comm::has_shared_memory(group);
}

Loans::Loans(const Group& group, size_t part_bytes)
    : rank_(group ? group->getRank() : get_rank()),
      group_size_(group ? group->getSize() : get_world_size()),
      part_bytes_(shm::whole_pages(part_bytes)),
      arenas_(comm::arenas_of(group)),
      free_slots_(static_cast<size_t>(group_size_)) {
  const size_t num_bytes = bytes_of_words(group_size_) + part_bytes_ * static_cast<size_t>(group_size_);
  memory_ = comm::make_common_memory(num_bytes, /*has_pages=*/false, group).writable;
  if (part_bytes_ > 0) free_.add({0, part_bytes_});
  for (auto& slots : free_slots_) {
    for (int slot = kNumSlots - 1; slot >= 0; --slot) slots.push_back(slot);
  }
}

Loans::~Loans() {
  if (::getpid() != owner_) return;  // a forked child does not have the memory
  take_back();
  // Borrowers keep the common memory themselves.
  std::erase_if(lent_, [](const Loan& loan) { return !loan.tensor.defined(); });
  keep_until_returned({memory_, std::move(lent_)});
}

Loans::Word* Loans::word(int lender, int borrower, int slot) const {
  const auto pair = static_cast<size_t>(lender) * static_cast<size_t>(group_size_) + static_cast<size_t>(borrower);
  return reinterpret_cast<Word*>(memory_->data()) + pair * kNumSlots + static_cast<size_t>(slot);
}

std::byte* Loans::part(int rank) const {
  return memory_->data() + bytes_of_words(group_size_) + part_bytes_ * static_cast<size_t>(rank);
}

LoanSlip Loans::lend(const at::Tensor& tensor, int borrower) {
  take_back();
  auto& slots = free_slots_[static_cast<size_t>(borrower)];
  if (slots.empty()) return {};
  Loan loan{word(rank_, borrower, slots.back()), borrower, slots.back(), {}, {}};
  LoanSlip slip{LoanSlip::Area::kNone, 0, loan.slot};
  const auto* const data = is_exclusive(tensor) ? static_cast<const std::byte*>(tensor.const_data_ptr()) : nullptr;
  const shm::SharedMemory* const arena = arenas_.empty() ? nullptr : arenas_[static_cast<size_t>(rank_)].get();
  if (data && arena && data >= arena->data() && data < arena->data() + arena->size()) {
    slip.area = LoanSlip::Area::kArena;
    slip.offset = data - arena->data();
    loan.tensor = tensor.detach();
  } else if (const auto offset = free_.take(part_bytes_of(tensor.nbytes()))) {
    slip.area = LoanSlip::Area::kCommon;
    slip.offset = static_cast<int64_t>(*offset);
    loan.block = {*offset, part_bytes_of(tensor.nbytes())};
    const at::NoGradGuard no_grad;
    at::from_blob(part(rank_) + *offset, tensor.sizes(), tensor.options().requires_grad(false)).copy_(tensor);
  } else {
    return {};
  }
  slots.pop_back();
  lent_.push_back(std::move(loan));
  return slip;
}

at::Tensor Loans::borrow(const LoanSlip& slip, const TensorMeta& meta, int lender) const {
  const bool is_in_arena = slip.area == LoanSlip::Area::kArena && !arenas_.empty();
  const auto& memory = is_in_arena ? arenas_[static_cast<size_t>(lender)] : memory_;
  const size_t most = is_in_arena ? memory->size() : part_bytes_, num_bytes = bytes_of(meta);
  const auto offset = static_cast<size_t>(slip.offset);
  if ((!is_in_arena && slip.area != LoanSlip::Area::kCommon) || num_bytes > most || offset > most - num_bytes ||
      slip.slot < 0 || slip.slot >= kNumSlots) {
    C10_THROW_ERROR(DistBackendError,
                    fmt::format("[cohort] pipeline: rank {} of the group lends memory outside its own: {} bytes "
                                "from {} on in area {}, slot {}",
                                lender, num_bytes, slip.offset, static_cast<int64_t>(slip.area), slip.slot));
  }
  auto* const data = (is_in_arena ? memory->data() : part(lender)) + offset;
  // A forked child does not have the memory, and its parent's loan continues.
  auto give_back = [memory, words = memory_, word = word(lender, rank_, static_cast<int>(slip.slot)),
                    owner = ::getpid()](void*) {
    if (::getpid() == owner) word->is_returned.store(1, std::memory_order_release);
  };
  return at::from_blob(data, meta.sizes, std::move(give_back), at::TensorOptions(meta.dtype));
}

void Loans::take_back() {
  const auto first = std::partition(lent_.begin(), lent_.end(), [](const Loan& loan) { return !is_returned(loan); });
  for (auto loan = first; loan != lent_.end(); ++loan) {
    loan->word->is_returned.store(0, std::memory_order_relaxed);
    free_slots_[static_cast<size_t>(loan->borrower)].push_back(loan->slot);
    if (loan->block.bytes > 0) free_.add(loan->block);
  }
  lent_.erase(first, lent_.end());
}

}  // namespace cohort::pipeline
