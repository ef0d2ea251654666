#include "cohort/elastic/plan/worker_allocator.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cohort/base/file/file.h"

namespace cohort::elastic {
namespace {

using Variables = std::map<std::string, std::string>;

// A folder with empty files of these names.
class Folder {
 public:
  explicit Folder(const std::vector<std::string>& files)
      : path_(*base::make_unique_directory(base::temporary_folder() + "/cohort-allocator-")) {
    for (const auto& file : files) std::ofstream(path_ + "/" + file) << "";
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string message_of(const std::string& name, const std::vector<std::string>& folders) {
  const auto variables = allocator_variables(name, {}, folders);
  return variables ? "no error" : variables.error().describe();
}

TEST(WorkerAllocator, DefaultAndSharedPreloadNothing) {
  EXPECT_EQ(*allocator_variables("default", {}, {}), Variables{});
  EXPECT_EQ(*allocator_variables("shared", {{"LD_PRELOAD", "/x.so"}}, {}),
            (Variables{{"COHORT_SHARED_ALLOCATOR", "1"}}));
}

TEST(WorkerAllocator, TheFirstLibraryComesBeforeWhatIsPreloadedAlready) {
  const Folder empty({}), first({"libtcmalloc_minimal.so.4"}), second({"libtcmalloc.so"});
  const auto variables =
      allocator_variables("tcmalloc", {{"LD_PRELOAD", "/x.so"}}, {empty.path(), first.path(), second.path()});
  EXPECT_EQ(*variables, (Variables{{"LD_PRELOAD", first.path() + "/libtcmalloc_minimal.so.4:/x.so"}}));
}

TEST(WorkerAllocator, JemallocHasTheSettingsOfPyTorchsLauncher) {
  const Folder folder({"libjemalloc.so.2"});
  const auto library = folder.path() + "/libjemalloc.so.2";
  EXPECT_EQ(*allocator_variables("jemalloc", {}, {folder.path()}),
            (Variables{{"LD_PRELOAD", library},
                       {"MALLOC_CONF", "oversize_threshold:1,background_thread:true,metadata_thp:auto"}}));
  EXPECT_EQ(*allocator_variables("jemalloc", {{"MALLOC_CONF", "thp:always"}}, {folder.path()}),
            (Variables{{"LD_PRELOAD", library}}));
}

TEST(WorkerAllocator, FoldersAreThoseOfPyTorchsLauncher) {
  EXPECT_EQ(
      library_folders({{"CONDA_PREFIX", "/conda"}, {"VIRTUAL_ENV", "/venv"}, {"HOME", "/home/me"}}),
      (std::vector<std::string>{"/conda/lib", "/venv/lib", "/home/me/.local/lib", "/usr/local/lib", "/usr/local/lib64",
                                "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"}));
}

TEST(WorkerAllocator, Messages) {
  EXPECT_EQ(message_of("tcmaloc", {}),
            "--allocator=tcmaloc must be one of default, shared, tcmalloc, jemalloc (did you mean \"tcmalloc\"?)");
  EXPECT_EQ(message_of("jemalloc", {"/nowhere", "/nothing"}),
            "--allocator=jemalloc: there is no libjemalloc.so or libjemalloc.so.2 in /nowhere, /nothing\n"
            "  hint: install it (Debian's package is libjemalloc2), or set LD_PRELOAD yourself");
}

}  // namespace
}  // namespace cohort::elastic
