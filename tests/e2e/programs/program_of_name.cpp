// The main() of several programs in one: runs that one whose name it was started by.
#include "tests/e2e/programs/program_of_name.h"

#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <utility>

namespace cohort::test {
namespace {

std::map<std::string, std::function<int(int, char**)>>& programs() {
  static std::map<std::string, std::function<int(int, char**)>> all;
  return all;
}

}  // namespace

bool add_program(const char* name, std::function<int(int, char**)> main) {
  return programs().emplace(name, std::move(main)).second;
}

}  // namespace cohort::test

int main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  const auto program = cohort::test::programs().find(name);
  if (program != cohort::test::programs().end()) return program->second(argc, argv);
  std::cerr << "there is no program \"" << name << "\" in this file\n";
  return 2;
}
