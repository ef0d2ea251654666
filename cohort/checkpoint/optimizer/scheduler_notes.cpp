#include "cohort/checkpoint/optimizer/scheduler_notes.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "cohort/checkpoint/optimizer/python_values.h"

namespace cohort::checkpoint::detail {
namespace {

struct NotesTable {
  std::mutex mutex;
  std::unordered_map<const torch::optim::Optimizer*, std::weak_ptr<SchedulerNotes>> notes;
};

NotesTable& notes_table() {
  static auto& table = *new NotesTable();
  return table;
}

}  // namespace

std::shared_ptr<SchedulerNotes> SchedulerNotes::of(const torch::optim::Optimizer& optimizer) {
  auto& table = notes_table();
  const std::lock_guard lock(table.mutex);
  std::erase_if(table.notes, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = table.notes[&optimizer];
  auto notes = entry.lock();
  if (!notes) entry = notes = std::make_shared<SchedulerNotes>();
  return notes;
}

std::shared_ptr<SchedulerNotes> SchedulerNotes::find(const torch::optim::Optimizer& optimizer) {
  auto& table = notes_table();
  const std::lock_guard lock(table.mutex);
  const auto found = table.notes.find(&optimizer);
  return found == table.notes.end() ? nullptr : found->second.lock();
}

const SchedulerNotes::Notes& SchedulerNotes::group(size_t group) const {
  static const Notes kNone;
  return group < groups_.size() ? groups_[group] : kNone;
}

std::optional<double> SchedulerNotes::get(size_t group, const std::string& key) const {
  for (const auto& [name, value] : this->group(group)) {
    if (name == key) return value;
  }
  return std::nullopt;
}

void SchedulerNotes::set(size_t group, const std::string& key, double value) {
  if (groups_.size() <= group) groups_.resize(group + 1);
  for (auto& [name, old] : groups_[group]) {
    if (name == key) {
      old = value;
      return;
    }
  }
  groups_[group].emplace_back(key, value);
}

void SchedulerNotes::load(size_t group, const c10::IValue& entries) {
  for (const auto& entry : entries.toGenericDict()) {
    const auto key = key_text(entry.key());
    const auto& value = entry.value();
    if (!is_scheduler_note(key) || !(value.isDouble() || value.isInt())) continue;
    set(group, key, value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt()));
  }
}

bool is_scheduler_note(const std::string& key) {
  static constexpr std::array<std::string_view, 6> kKeys = {"initial_lr",    "max_lr",       "min_lr",
                                                            "base_momentum", "max_momentum", "swa_lr"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

}  // namespace cohort::checkpoint::detail
