/// Files in memory for tests of readers: written byte by byte, and cut off at every length.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace cohort::test {

template <typename T>
std::string little(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
template <typename T>
std::string big(T value) {
  const std::string bytes = little(value);
  return {bytes.rbegin(), bytes.rend()};
}

/// Each part of the bytes from the start on is an error of some lines, by `read(name, bytes)`; all of them are none.
template <typename Read>
void expect_truncation_is_an_error(const std::string& bytes, Read read) {
  ASSERT_TRUE(read(std::string_view(bytes)).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    // In memory of its own, so that a sanitizer sees a read behind its end.
    const std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    const auto result = read(std::string_view(part.data(), part.size()));
    ASSERT_FALSE(result.ok()) << "cut off after " << size << " of " << bytes.size() << " bytes";
    EXPECT_NE(result.error().describe().find("cut"), std::string::npos) << result.error().describe();
  }
}

}  // namespace cohort::test
