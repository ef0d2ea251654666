// cohort-ckpt: shows, compares and converts files of tensors and folders of checkpoints. Does not link LibTorch.
#include <pthread.h>
#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "cohort/base/file/open_file.h"
#include "cohort/base/log/log.h"
#include "cohort/version.h"
#include "tools/cohort-ckpt/commands.h"
#include "tools/parse_problem.h"

namespace cohort::ckpt_cli {
namespace {

constexpr const char* kFileKinds =
    "\n\nFILE: a file of torch.save (.pt, .pth) or safetensors; a folder of safetensors files with an index, or one "
    "of\n"
    "torch.distributed.checkpoint; for ls and verify also the folder of a run, which a Checkpointer keeps.\n\n"
    "Exit codes: 0 fine, 1 a file is damaged or cannot be read, 2 wrong usage; of diff: 0 the same, 1 different, 2 "
    "trouble.";

class Commands {
 public:
  explicit Commands(CLI::App& app) {
    add_read(app, "ls", "list tensors, or the checkpoints of a run", list_command);
    add_show(app);
    add_read(app, "verify", "read everything, and compare it with its checksums", verify_command);
    add_diff(app);
    auto* convert =
        add_convert(app, "convert", "write another format: .pt or .safetensors by the ending of TO, else a folder",
                    convert_command);
    convert->add_option("FROM", from_, "file or folder")->required();
    convert->add_option("TO", convert_.to, "file or folder to write")->required();
    convert->add_flag("--dcp", convert_.dcp, "write a folder of torch.distributed.checkpoint");
    auto* consolidate = add_convert(app, "consolidate", "write a sharded checkpoint as one file, .pt or .safetensors",
                                    consolidate_command);
    consolidate->add_option("FROM", from_, "folder")->required();
    consolidate->add_option("TO", convert_.to, "file to write")->required();
    auto* average = add_convert(
        app, "average", "write the mean of several files with the same tensors; integers come from the last one",
        average_command);
    average->add_option("FROM", convert_.from, "files or folders")->required()->expected(1, -1);
    average->add_option("--out", convert_.to, "file or folder to write")->required();
  }

  int run() const { return chosen_(); }

 private:
  CLI::App* add(CLI::App& app, const char* name, const char* summary, std::function<int()> run) {
    auto* command = app.add_subcommand(name, summary);
    command->callback([this, run = std::move(run)] { chosen_ = run; });
    return command;
  }
  void add_read(CLI::App& app, const char* name, const char* summary, int (*run)(const ReadFlags&)) {
    auto* command = add(app, name, summary, [this, run] { return run(read_); });
    command->add_option("FILE", read_.paths, "files or folders")->required()->expected(1, -1);
    command->add_flag("--json", read_.json, "print JSON");
  }
  void add_show(CLI::App& app) {
    auto* command = add(app, "show", "print values, and minimum, maximum, mean and norm of tensors",
                        [this] { return show_command(show_); });
    command->add_option("FILE", show_.path, "file or folder")->required();
    command->add_option("NAME", show_.names, "tensors or values (default: every value)")->expected(0, -1);
    command->add_option("--elements", show_.elements, "number of elements of each tensor to print (default: 0)")
        ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
    command->add_flag("--json", show_.json, "print JSON");
  }
  void add_diff(CLI::App& app) {
    auto* command = add(app, "diff", "show the differences of two files", [this] { return diff_command(diff_); });
    command->add_option("A", diff_.first, "file or folder")->required();
    command->add_option("B", diff_.second, "file or folder")->required();
    command
        ->add_option("--tolerance", diff_.tolerance, "largest difference of elements that counts as equal (default: 0)")
        ->check(CLI::NonNegativeNumber);
    command->add_flag("--json", diff_.json, "print JSON");
  }
  CLI::App* add_convert(CLI::App& app, const char* name, const char* summary, int (*run)(const ConvertFlags&)) {
    auto* command = add(app, name, summary, [this, run] {
      if (!from_.empty()) convert_.from = {from_};
      return run(convert_);
    });
    command->add_flag("--force", convert_.force, "replace existing files (default: an error)");
    return command;
  }

  ReadFlags read_;
  ShowFlags show_;
  DiffFlags diff_;
  ConvertFlags convert_;
  std::string from_;
  std::function<int()> chosen_;
};

int main_command(int argc, char** argv) {
  CLI::App app(std::string("Shows, compares and converts files of tensors and checkpoints.") + kFileKinds,
               "cohort ckpt");
  app.set_version_flag("--version", "cohort-ckpt " COHORT_VERSION, "show the version");
  app.require_subcommand(1);
  const Commands commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::string problem =
        parse_problem(app, error, {{"info", "ls"}, {"inspect", "ls"}, {"list", "ls"}, {"compare", "diff"}});
    base::log_error(problem +
                    "\n  hint: run cohort ckpt --help for the commands, cohort ckpt COMMAND --help for its flags");
    return kUsageError;
  }
  return commands.run();
}

struct Call {
  int argc;
  char** argv;
  int exit_code;
};

void* run_call(void* argument) {
  Call& call = *static_cast<Call*>(argument);
  try {
    call.exit_code = main_command(call.argc, call.argv);
  } catch (const std::exception& error) {  // out of memory
    base::log_error(error.what());
    call.exit_code = kFault;
  }
  return nullptr;
}

// Files may have nested lists, which are read recursively and need more than a small stack (ulimit -s).
int run_on_own_stack(int argc, char** argv) {
  constexpr size_t kStackBytes = size_t{8} << 20;
  Call call{argc, argv, kFault};
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, kStackBytes) != 0 ||
      pthread_create(&thread, &attributes, run_call, &call) != 0) {
    run_call(&call);
  } else {
    pthread_join(thread, nullptr);
  }
  return call.exit_code;
}

}  // namespace
}  // namespace cohort::ckpt_cli

int main(int argc, char** argv) {
  cohort::base::open_standard_streams();
  return cohort::ckpt_cli::run_on_own_stack(argc, argv);
}
