#include "cohort/elastic/output/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "cohort/base/file/file.h"

namespace cohort::elastic {
namespace {

TEST(PrefixedLines, WholeLinesOnly) {
  PrefixedLines lines("[default0]:");
  EXPECT_EQ(lines.append("one\ntw"), "[default0]:one\n");
  EXPECT_EQ(lines.append("o\n\n"), "[default0]:two\n[default0]:\n");
  EXPECT_EQ(lines.append("rest"), "");
  EXPECT_EQ(lines.finish(), "[default0]:rest\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(PrefixedLines, CarriageReturnEndsALine) {
  PrefixedLines lines("> ");
  EXPECT_EQ(lines.append("10%\r20%\r\nend\r"), "> 10%\n> 20%\n> end\n");
  EXPECT_EQ(lines.append("\nnext\n"), "> next\n");
}

TEST(Console, NeverWritesMoreThanAPipeTakesAtOnce) {
  base::Pipe pipe = base::make_pipe().value();
  Console console(pipe.write_end.get());
  const std::string text = std::string(3000, 'a') + "\n" + std::string(3000, 'b') + "\n";
  console.append(text);
  console.write_some();
  char buffer[8192];
  // Up to the last end of a line that fits.
  EXPECT_EQ(::read(pipe.read_end.get(), buffer, sizeof buffer), 3001);
  EXPECT_TRUE(console.has_pending());
  console.write_some();
  EXPECT_EQ(::read(pipe.read_end.get(), buffer, sizeof buffer), 3001);
  EXPECT_FALSE(console.has_pending());
}

TEST(Console, AsksItsSourcesToWait) {
  Console console(-1);
  console.append(std::string(2 << 20, 'x'));
  EXPECT_TRUE(console.is_full());
}

TEST(Console, ClosedReaderDropsText) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  base::Pipe pipe = base::make_pipe().value();
  pipe.read_end.reset();
  Console console(pipe.write_end.get());
  console.append("lost\n");
  console.write_some();
  EXPECT_FALSE(console.has_pending());
  console.append("more\n");
  EXPECT_FALSE(console.has_pending());
  ::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace cohort::elastic
