#include "cohort/checkpoint/checkpointer/folder_lock.h"

#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "cohort/base/file/file.h"

namespace cohort::checkpoint {
namespace {

using base::Error;
using base::LockFile;
using base::Result;

constexpr std::chrono::seconds kTimeToEnd{5};
constexpr std::chrono::milliseconds kPause{50};

// The locks of this process; several Checkpointers of one job may use a folder. Leaked, because these may be destroyed at exit.
struct Locks {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<LockFile>> of_folder;
};
Locks& locks() {
  static Locks& all = *new Locks;
  return all;
}

std::string lock_path(const std::string& folder) { return folder + "/.lock"; }

}  // namespace

// Returns false if another process has the lock.
Result<bool> FolderLock::try_take() {
  std::error_code error;
  const std::string name = std::filesystem::weakly_canonical(folder_, error).string();
  Locks& all = locks();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<LockFile>& known = all.of_folder[error ? folder_ : name];
  lock_ = known.lock();
  if (lock_) return true;
  Result<std::optional<LockFile>> taken = LockFile::try_take(lock_path(folder_));
  if (!taken) return taken.error();
  if (!*taken) return false;
  lock_ = std::make_shared<LockFile>(std::move(**taken));
  known = lock_;
  return true;
}

Result<void> FolderLock::take() {
  if (lock_) return {};
  if (Result<void> made = base::make_directories(folder_); !made) return made;
  const auto deadline = std::chrono::steady_clock::now() + kTimeToEnd;
  for (;;) {
    const Result<bool> taken = try_take();
    if (!taken) return taken.error();
    if (*taken) return {};
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  const std::string owner = LockFile::owner(lock_path(folder_));
  return Error("another job saves its checkpoints in \"" + folder_ + "\": " + (owner.empty() ? "a process" : owner) +
               " has locked \"" + lock_path(folder_) + "\"")
      .with_hint("give each job a folder of its own, or end the other one");
}

Result<void> FolderLock::take_if_possible() {
  std::error_code error;
  if (!std::filesystem::is_directory(folder_, error)) return {};
  const Result<bool> taken = try_take();
  return taken && !*taken ? take() : Result<void>();
}

}  // namespace cohort::checkpoint
