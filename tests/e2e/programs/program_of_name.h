/// Programs of the end-to-end tests that are compiled and linked as one, because LibTorch's headers cost each source 7 s
/// before its first line. CMakeLists.txt writes the sources that hold them and gives the file each program's name.
#pragma once

#include <functional>

namespace cohort::test {

bool add_program(const char* name, std::function<int(int, char**)> main);

/// So that main() may have parameters or not.
inline int call_main(int (*main)(), int /*argc*/, char** /*argv*/) { return main(); }
inline int call_main(int (*main)(int, char**), int argc, char** argv) { return main(argc, argv); }

}  // namespace cohort::test
